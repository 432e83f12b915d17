//! What the tests share: requests, engines, readings of completions.

use std::time::Duration;

use serde_json::Value;
use teamster_protocol::{
    Message, MessageId, Principal, RequestId,
    function::router::{ChatRequest, Completion, DeltaKind, Part, Tool},
};
use teamster_router::{Config, Engine, engine::Stop};
use teamster_testkit::{ModelServer, wait};

/// Longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A configuration with one provider, `x`, at this server. `more` are further fields of the tree.
pub(crate) fn config(server: &ModelServer, more: &str) -> Config {
    let yaml = format!(
        "{{providers: {{x: {{base_url: '{}'}}}}, {more}}}",
        server.base_url()
    );
    serde_yaml::from_str(&yaml).expect("valid")
}

/// An engine that never tries again.
pub(crate) fn engine(server: &ModelServer) -> Engine {
    Engine::new(&config(server, "retry: {attempts_max: 1}"))
}

/// An engine that tries three times, without a noticeable wait.
pub(crate) fn patient(server: &ModelServer) -> Engine {
    Engine::new(&config(server, "retry: {base_ms: 2, cap_ms: 2}"))
}

pub(crate) fn user(text: &str) -> Message {
    Message::User {
        id: MessageId::parse("msg_1").expect("valid"),
        from: Principal::parse("owner").expect("valid"),
        text: text.to_owned(),
    }
}

pub(crate) fn request(id: &str) -> ChatRequest {
    ChatRequest {
        request_id: RequestId::parse(id).expect("valid"),
        session_id: None,
        model: "x/m".to_owned(),
        system_prompt: None,
        messages: vec![user("hi").into()],
        tools: Vec::new(),
        max_output_tokens: None,
        is_first: false,
    }
}

pub(crate) fn tool(name: &str, parameters: Value) -> Tool {
    Tool {
        name: name.to_owned(),
        description: String::new(),
        parameters,
    }
}

/// Generates, with everything that was visible meanwhile.
pub(crate) async fn generate(
    engine: &Engine,
    request: &ChatRequest,
) -> (Completion, Vec<DeltaKind>) {
    let mut deltas = Vec::new();
    let stop = Stop::default();
    let generated = engine.generate(request, &stop, &mut deltas);
    let completion = wait::within(LIMIT, "the generation ends", generated).await;
    (completion, deltas)
}

/// The visible text.
pub(crate) fn text(completion: &Completion) -> String {
    let texts = completion.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        Part::Thinking { .. } | Part::Call { .. } => None,
    });
    texts.collect()
}

/// The calls as name and arguments.
pub(crate) fn calls(completion: &Completion) -> Vec<(&str, &str)> {
    let calls = completion.parts.iter().filter_map(|part| match part {
        Part::Call { name, arguments } => Some((name.as_str(), arguments.as_str())),
        Part::Text { .. } | Part::Thinking { .. } => None,
    });
    calls.collect()
}

/// The reasons of the retries that were visible.
pub(crate) fn retries(deltas: &[DeltaKind]) -> Vec<(u32, u64, &str)> {
    let retries = deltas.iter().filter_map(|delta| match delta {
        DeltaKind::Retry {
            attempt,
            wait_ms,
            reason,
        } => Some((*attempt, *wait_ms, reason.as_str())),
        _ => None,
    });
    retries.collect()
}
