//! Tools and histories as a strict server sees them.

use std::sync::Arc;

use serde_json::{Value, json};
use teamster_protocol::{
    CallId, FunctionId, Message, MessageId,
    function::router::ErrorKind,
    message::{Content, ResultKind, StopReason, WireCall},
};
use teamster_testkit::{
    ModelServer,
    model::{Reply, Request, Script},
};

use crate::support::{generate, patient, request, retries, text, tool, user};

/// What strict servers refuse: schemas that are no plain objects, empty texts, calls without results, ids twice.
fn strict(request: &Request) -> Result<(), String> {
    let body = request.json();
    for (place, tool) in body["tools"].as_array().into_iter().flatten().enumerate() {
        let parameters = &tool["function"]["parameters"];
        if parameters["type"] != "object" || parameters.get("anyOf").is_some() {
            return Err(format!(
                "Invalid schema for function: tools[{place}].function.parameters"
            ));
        }
        if parameters["properties"].get("cursed").is_some() {
            let name = tool["function"]["name"].as_str().unwrap_or_default();
            return Err(format!(
                "Invalid schema for function '{name}': unknown type"
            ));
        }
    }
    let mut ids = std::collections::BTreeSet::new();
    let mut open: Vec<Value> = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        if message["content"] == ""
            || (message["content"].is_null() && message.get("tool_calls").is_none())
        {
            return Err("messages: text content blocks must be non-empty".to_owned());
        }
        if message["role"] == "tool" {
            open.retain(|id| *id != message["tool_call_id"]);
            continue;
        }
        if !open.is_empty() {
            return Err(
                "an assistant message with tool_calls must be followed by tool messages".to_owned(),
            );
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            if !ids.insert(call["id"].to_string()) {
                return Err("tool_call ids must be unique".to_owned());
            }
            open.push(call["id"].clone());
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err("a tool call lacks its result".to_owned())
    }
}

async fn strict_server() -> ModelServer {
    ModelServer::start(Script::answer(|request| match strict(request) {
        Ok(()) => Reply::says("ok"),
        Err(message) => Reply::status(400)
            .json(&json!({"error": {"message": message, "type": "invalid_request_error"}})),
    }))
    .await
}

#[tokio::test]
async fn hist_6_a_tool_that_the_provider_refuses_is_left_out_and_the_others_work() {
    let server = strict_server().await;
    let engine = patient(&server);
    let mut asked = request("s.1.1");
    asked.tools = vec![
        tool(
            "good",
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        ),
        tool(
            "alternatives",
            json!({"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]}),
        ),
        tool("text", json!({"type": "string"})),
        tool(
            "cursed",
            json!({"type": "object", "properties": {"cursed": {"type": "anything"}}}),
        ),
    ];
    let (completion, deltas) = generate(&engine, &asked).await;
    assert_eq!((text(&completion).as_str(), completion.attempts), ("ok", 2));
    let told = retries(&deltas);
    assert!(told.len() == 1 && told[0].2.contains("cursed"), "{told:?}");
    let offered = |number: usize| -> Vec<String> {
        let body = server.requests()[number].json();
        body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|tool| {
                tool["function"]["name"]
                    .as_str()
                    .expect("a name")
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(offered(0), ["good", "alternatives", "cursed"]);
    assert_eq!(offered(1), ["good", "alternatives"]);
    // The next request knows it already.
    let (completion, deltas) = generate(&engine, &asked).await;
    assert_eq!((completion.attempts, retries(&deltas).len()), (1, 0));
    assert_eq!(offered(2), ["good", "alternatives"]);
}

#[tokio::test]
async fn hist_6_a_refusal_that_names_no_tool_is_final() {
    let server = ModelServer::start(vec![
        Reply::status(400).json(&json!({"error": {"message": "tool_choice is wrong"}})),
    ])
    .await;
    let mut asked = request("s.1.1");
    asked.tools = vec![tool("good", json!({}))];
    let (completion, _) = generate(&patient(&server), &asked).await;
    assert_eq!(
        completion.error.map(|error| error.kind),
        Some(ErrorKind::Rejected)
    );
    assert_eq!((completion.stop, server.count()), (StopReason::Error, 1));
}

fn assistant(content: Vec<Content>) -> Message {
    Message::Assistant {
        id: MessageId::parse("msg_2").expect("valid"),
        content,
        partial: false,
    }
}

fn call(id: &str, arguments: &str) -> Content {
    Content::Call(WireCall {
        call: CallId::parse(id).expect("valid"),
        name: "fs__read".to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn result(id: &str, text: &str) -> Message {
    Message::FunctionResult {
        call: CallId::parse(id).expect("valid"),
        function: FunctionId::parse("fs::read").ok(),
        text: text.to_owned(),
        outcome: ResultKind::Ok,
    }
}

/// HIST-2, HIST-3, HIST-4, HIST-7 on the wire: a strict server takes what is sent.
#[tokio::test]
async fn hist_2_a_strict_server_takes_every_damaged_history() {
    let server = strict_server().await;
    let engine = patient(&server);
    let nothing = Content::Text {
        text: String::new(),
    };
    let thought = Content::Thinking {
        text: "hm".to_owned(),
        signature: None,
    };
    for history in [
        vec![user("x"), assistant(vec![call("call_1", "{}")]), user("hi")],
        vec![
            user("x"),
            assistant(vec![nothing, call("call_1", "{\"p\":\"x")]),
            result("call_1", ""),
        ],
        vec![user("x"), assistant(vec![thought]), user("go on")],
        vec![
            user("x"),
            assistant(vec![call("call_1", "{}")]),
            result("call_1", "a"),
            assistant(vec![call("call_1", "{}")]),
            result("call_1", "b"),
        ],
        vec![result("call_9", "orphan"), user("hi")],
        vec![
            user("x"),
            assistant(vec![call("call_1", ""), call("call_2", "[1]")]),
            user("steer"),
            result("call_2", "b"),
            result("call_1", "a"),
        ],
    ] {
        let mut asked = request("s.1.1");
        asked.messages = history.into_iter().map(Arc::new).collect();
        let (completion, _) = generate(&engine, &asked).await;
        assert_eq!(completion.error, None, "{:?}", asked.messages);
        assert_eq!(text(&completion), "ok");
    }
}

#[tokio::test]
async fn cost_2_the_request_asks_for_a_stream_with_usage() {
    let server = strict_server().await;
    let mut asked = request("s.1.1");
    asked.system_prompt = Some("Be brief.".to_owned());
    asked.model = "x/vendor/model:tag".to_owned();
    asked.max_output_tokens = Some(100);
    let (completion, _) = generate(&patient(&server), &asked).await;
    assert_eq!(completion.model, "x/vendor/model:tag");
    let sent = &server.requests()[0];
    assert_eq!(sent.line, "POST /v1/chat/completions");
    assert_eq!(
        sent.json(),
        json!({
            "model": "vendor/model:tag",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
            "max_tokens": 100,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
    assert_eq!(sent.header("authorization"), None);
}
