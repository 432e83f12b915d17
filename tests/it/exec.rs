//! A command that a model asks for, over all workers: asked about, run, logged, projected, and read by the model.

use serde_json::{Value, json};
use teamster_protocol::{
    Message,
    event::EndReason,
    function::{harness::SendRequest, router::ChatRequest},
    input::{Decision, SessionOptions, TurnOptions},
    message::ResultKind,
    policy::FunctionPolicy,
};

use crate::scene::{Parts, Scene, calls, outcomes, results, says, session};

/// The workers that a command passes through.
async fn scene(
    model: impl Fn(&ChatRequest) -> teamster_protocol::function::router::Completion
    + Send
    + Sync
    + 'static,
) -> Scene {
    let sandbox = teamster_sandbox::Config {
        helper: Some(env!("CARGO_BIN_EXE_teamster").into()),
        ..teamster_sandbox::Config::default()
    };
    let sessions = teamster_session::Config { file: None };
    let mut parts = Parts::new(model);
    parts.workers = vec![
        teamster_sandbox::worker(sandbox),
        teamster_session::worker(&sessions).expect("a worker"),
        teamster_context::worker(&teamster_context::Config::default()).expect("a worker"),
    ];
    let scene = Scene::start(parts).await;
    scene
        .wait_for(&["sandbox::exec", "session::search", "context::assemble"])
        .await;
    scene
}

/// SBX-2: output that is no text does not break the log, the projection, or any request after it. Nothing runs before a person has
/// seen the arguments one by one and said yes.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_2_binary_output_passes_through_a_turn_and_the_next_one_works() {
    let scene = scene(|request| {
        let is_next =
            |message: &Message| matches!(message, Message::User { text, .. } if text == "next");
        if results(request).is_empty() && !request.messages.iter().any(|message| is_next(message)) {
            calls(&[(
                "sandbox::exec",
                json!({"argv": ["printf", "a\\000b\\377 kiwi\\033[2J\\n"]}),
            )])
        } else {
            says("done")
        }
    })
    .await;
    let workspace = tempfile::tempdir().expect("a workspace");
    let id = session("s");
    let send = async |text: &str| {
        let request = SendRequest {
            session_id: Some(id.clone()),
            message: text.to_owned(),
            session: SessionOptions {
                workspace: workspace.path().to_str().map(str::to_owned),
                ..SessionOptions::default()
            },
            options: TurnOptions {
                functions: Some(FunctionPolicy {
                    allow: vec!["sandbox::exec".to_owned()],
                    ..FunctionPolicy::default()
                }),
                ..TurnOptions::default()
            },
            ..SendRequest::default()
        };
        let request = serde_json::to_value(request).expect("encodes");
        let sent: Result<Value, _> = scene.operate("harness::send", &request).await;
        sent.expect("accepted");
    };
    send("go").await;
    let pending = scene.pending().await;
    assert_eq!(pending.function.as_str(), "sandbox::exec");
    assert_eq!(
        pending.arguments.as_str(),
        r#"{"argv":["printf","a\\000b\\377 kiwi\\033[2J\\n"]}"#
    );
    scene
        .resolve(&pending, Decision::Approve)
        .await
        .expect("decided");
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Ok]);
    send("next").await;
    assert_eq!(scene.ended(&id, 2).await.len(), 2);
    let requests = scene.requests.lock().expect("lock").clone();
    let last = requests.last().expect("requests");
    let read = last
        .messages
        .iter()
        .find_map(|message| match message.as_ref() {
            Message::FunctionResult { text, .. } => Some(text.clone()),
            _ => None,
        });
    let read = read.expect("the result stays in the history");
    let reply: Value =
        serde_json::from_str(&read).unwrap_or_else(|error| panic!("{error}: {read}"));
    let text = reply["stdout"]["text"].as_str().expect("text");
    assert!(text.starts_with("a\u{2400}b\u{fffd} kiwi"), "{text:?}");
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    assert_eq!(reply["stdout"]["binary"], true, "{reply}");
    let found: Value = scene
        .operate("session::search", &json!({"query": "kiwi"}))
        .await
        .expect("found");
    assert!(
        found["hits"]
            .as_array()
            .is_some_and(|hits| !hits.is_empty()),
        "{found}"
    );
}
