//! A session whose own words fill the window: what is said then, and that the way out is one.

use std::collections::BTreeMap;

use serde_json::json;
use teamster_protocol::{
    Message,
    event::EndReason,
    function::{harness::SendReply, router::ChatRequest, session::ChangeReply},
};

use crate::scene::{Parts, Scene, says, session};

/// Bytes of each message: 500 tokens.
const BYTES: usize = 2000;

fn failure(reason: Option<&EndReason>) -> Option<String> {
    match reason {
        Some(EndReason::Failed { code, message }) if code == "context.overflow" => {
            Some(message.clone())
        }
        Some(EndReason::Completed) => None,
        other => panic!("{other:?}"),
    }
}

/// CTX-1: nothing that people and the model said is left out, so that a session can become too long for its model. Every further
/// message ends in one failure; it names a command that begins a session at a point before, and there the talk goes on.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_1_a_session_that_its_own_words_fill_can_be_gone_on_from_an_earlier_point() {
    let mut parts = Parts::new(|_| says("heard"));
    let config = teamster_context::Config {
        windows: BTreeMap::from([("test/model".to_owned(), 6000)]),
        ..teamster_context::Config::default()
    };
    let sessions = teamster_session::Config { file: None };
    parts.workers = vec![
        teamster_context::worker(&config).expect("a worker"),
        teamster_session::worker(&sessions).expect("a worker"),
    ];
    let scene = Scene::start(parts).await;
    scene
        .wait_for(&["context::assemble", "session::fork"])
        .await;
    let id = session("s");
    let mut turns = 0;
    let first = loop {
        scene.send(&id, &"w ".repeat(BYTES / 2)).await;
        turns += 1;
        let reasons = scene.ended(&id, turns).await;
        if let Some(message) = failure(reasons.last()) {
            break message;
        }
        assert!(turns < 20, "the window is never full");
    };
    assert!(turns > 2, "some of it was heard");
    scene.send(&id, "and now?").await;
    turns += 1;
    let reasons = scene.ended(&id, turns).await;
    let message = failure(reasons.last()).expect("it is still full");
    assert!(first.contains("(window 6000)"), "{first}");
    for way in [
        "--model PROVIDER/NAME",
        "teamster config set 'context.windows.\"test/model\"' TOKENS",
    ] {
        assert!(message.contains(way), "{message}");
    }

    let (_, rest) = message
        .split_once("`teamster sessions fork --at ")
        .unwrap_or_else(|| panic!("no way out: {message}"));
    let (commit, _) = rest.split_once(" s`").expect("the command's end");
    let at: u64 = commit.parse().expect("a commit");
    let request = json!({"session_id": id, "at": at, "new_session_id": "t"});
    let _: ChangeReply = scene
        .operate("session::fork", &request)
        .await
        .expect("it is begun");
    let fork = session("t");
    for turns in 1..=2 {
        // Nothing is asked for here: the fork does as the source did.
        let request = json!({"session_id": fork, "message": "and now?"});
        let _: SendReply = scene
            .operate("harness::send", &request)
            .await
            .expect("accepted");
        let reasons = scene.ended(&fork, turns).await;
        assert_eq!(reasons.last(), Some(&EndReason::Completed));
    }
    let heard = scene.requests.lock().expect("lock").clone();
    let (first, last) = (heard.first(), heard.last().expect("requests"));
    let count = last.messages.len();
    assert!(count > 4, "it goes on with what was said before: {count}");
    let names = |request: &ChatRequest| -> Vec<String> {
        let tools = request.tools.iter();
        tools.map(|tool| tool.name.clone()).collect()
    };
    let offered = names(last);
    assert_eq!(offered, names(first.expect("requests")));
    assert!(!offered.is_empty(), "the same functions are offered");
}

/// CTX-1: where no context worker answers, the model gets the end of the history in whole turns, within the configured bytes, however
/// long the session becomes. A turn that is larger than that by itself is one failure that names the way out.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_1_without_the_context_worker_the_end_of_the_history_is_sent() {
    const BOUND: usize = 8000;
    let mut parts = Parts::new(|_| says("heard"));
    parts.harness.history_bytes = BOUND;
    let scene = Scene::start(parts).await;
    let id = session("s");
    let turns = 10;
    for turn in 1..=turns {
        let text = format!("{turn:02} {}", "w".repeat(BYTES));
        scene.send(&id, &text).await;
        let reasons = scene.ended(&id, turn).await;
        assert_eq!(reasons.last(), Some(&EndReason::Completed));
        let request = scene.requests.lock().expect("lock").last().cloned();
        let messages = request.expect("a request").messages;
        let bytes: usize = messages
            .iter()
            .map(|message| match message.as_ref() {
                Message::User { text, .. } => text.len(),
                _ => 0,
            })
            .sum();
        assert!(bytes <= BOUND, "{bytes}");
        let is_newest = |message: &Message| matches!(message, Message::User { text: said, .. } if *said == text);
        assert!(messages.last().is_some_and(|message| is_newest(message)));
        let is_user = |message: &Message| matches!(message, Message::User { .. });
        assert!(
            messages.first().is_some_and(|message| is_user(message)),
            "whole turns"
        );
        assert!(messages.len() >= 2 * turn.min(3) - 1, "as much as fits");
    }
    scene.send(&id, &"w".repeat(BOUND + 1)).await;
    let reasons = scene.ended(&id, turns + 1).await;
    let message = failure(reasons.last()).expect("it is too large");
    for way in [
        "`teamster sessions fork --at COMMIT s`",
        "`teamster sessions tail --after 0 s`",
        "--model PROVIDER/NAME",
    ] {
        assert!(message.contains(way), "{message}");
    }
}
