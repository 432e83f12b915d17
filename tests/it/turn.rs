//! Turns from end to end: what enters, what is stored, what takes effect.

use serde_json::json;
use teamster_protocol::{
    Event, Message, Phase,
    event::EndReason,
    function::harness::{SendState, StopReply},
    input::Decision,
    message::{Content, ResultKind},
};

use crate::scene::{Gate, Parts, Scene, calls, results, says, session};

fn has_results(request: &teamster_protocol::function::router::ChatRequest) -> bool {
    request
        .messages
        .iter()
        .any(|message| matches!(message.as_ref(), Message::FunctionResult { .. }))
}

fn outcomes(events: &[Event]) -> Vec<ResultKind> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::CallFinished { outcome, .. } | Event::CallRefused { outcome, .. } => {
                Some(*outcome)
            }
            _ => None,
        })
        .collect()
}

/// A turn with one call takes four commits: claim, answer with intent, outcome with the next request, end.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_one_call_is_four_commits() {
    let scene = Scene::start(Parts::new(|request| match results(request).len() {
        0 => calls(&[("t::write", json!({"a": 1}))]),
        _ => says("done"),
    }))
    .await;
    let id = session("chat/42 é");
    let reply = scene.send(&id, "hello").await;
    assert_eq!(
        (reply.state, reply.deduplicated),
        (SendState::Queued, false)
    );
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let commits = scene.commits(&id).await;
    assert_eq!(commits.len(), 4);
    assert_eq!(
        commits.last().map(|commit| commit.head.phase),
        Some(Phase::Idle)
    );
    assert_eq!(scene.count("t::write"), 1);
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Ok]);
    let status = scene.status(&id).await;
    assert_eq!(
        (status.status.as_str(), status.turns, status.usage.total()),
        ("idle", 1, 30)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn conc_1_messages_are_answered_once_and_in_order() {
    let scene = Scene::start(Parts::new(|request| {
        let last = request
            .messages
            .iter()
            .rev()
            .find_map(|message| match message.as_ref() {
                Message::User { text, .. } => Some(text.clone()),
                _ => None,
            });
        says(&format!("re: {}", last.unwrap_or_default()))
    }))
    .await;
    let id = session("s");
    for index in 0..10 {
        scene.send(&id, &format!("m{index}")).await;
    }
    // Messages that come in while a turn runs join it, so there may be fewer turns than messages.
    teamster_testkit::wait::until(
        crate::scene::LIMIT,
        "an idle session with an empty queue",
        || async {
            let status = scene.status(&id).await;
            status.status == "idle" && status.queued == 0
        },
    )
    .await;
    let texts: Vec<String> = scene
        .events(&id)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::MessageAdded {
                message: Message::User { text, .. },
                ..
            } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(
        texts,
        (0..10).map(|index| format!("m{index}")).collect::<Vec<_>>()
    );
}

/// The same key gives the same answer, and one message.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_send_is_one_message() {
    let scene = Scene::start(Parts::new(|_| says("hi"))).await;
    let id = session("s");
    let first = scene
        .send_with(&id, "hello", Some("k"))
        .await
        .expect("accepted");
    scene.ended(&id, 1).await;
    let again = scene
        .send_with(&id, "hello", Some("k"))
        .await
        .expect("accepted");
    assert_eq!((again.message_id, again.seq), (first.message_id, first.seq));
    assert!(again.deduplicated);
    scene.send(&id, "other").await;
    scene.ended(&id, 2).await;
    assert_eq!(scene.status(&id).await.turns, 2);
}

/// A message that comes while the model answers steers the same turn.
#[tokio::test(flavor = "multi_thread")]
async fn conc_2_a_message_in_mid_generation_steers_the_same_turn() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|request| {
        let users = request
            .messages
            .iter()
            .filter(|message| matches!(message.as_ref(), Message::User { .. }))
            .count();
        says(&format!("saw {users}"))
    });
    parts.model_gate = Some(gate.clone());
    let scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "one").await;
    gate.reached(1).await;
    assert_eq!(scene.send(&id, "two").await.state, SendState::Merged);
    gate.open();
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.status(&id).await.turns, 1);
    let answers: Vec<String> = scene
        .events(&id)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::GenerationFinished {
                message: Some(Message::Assistant { content, .. }),
                ..
            } => Some(content),
            _ => None,
        })
        .flatten()
        .filter_map(|part| match part {
            Content::Text { text } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(answers, ["saw 1", "saw 2"]);
}

/// LOOP-1: a stop in mid-generation keeps the partial and ends the turn; the next message works.
#[tokio::test(flavor = "multi_thread")]
async fn loop_1_a_stop_ends_a_generation_and_keeps_its_part() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|_| says("whole"));
    parts.model_gate = Some(gate.clone());
    let scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "one").await;
    gate.reached(1).await;
    let reply: StopReply = scene
        .operate("harness::stop", &json!({"session_id": id}))
        .await
        .expect("stored");
    assert!(reply.stopping);
    assert!(matches!(
        scene.ended(&id, 1).await[..],
        [EndReason::Cancelled { .. }]
    ));
    let has_partial = scene.events(&id).await.iter().any(|event| {
        matches!(
            event,
            Event::GenerationInterrupted {
                partial: Some(Message::Assistant { partial: true, .. }),
                ..
            }
        )
    });
    assert!(has_partial);
    gate.open();
    scene.send(&id, "two").await;
    assert_eq!(scene.ended(&id, 2).await[1], EndReason::Completed);
}

/// LOOP-1: a call that ignores its cancellation is abandoned; its outcome is unknown and said to be.
#[tokio::test(flavor = "multi_thread")]
async fn loop_1_a_stop_ends_a_call() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|request| match results(request).len() {
        0 => calls(&[("t::slow", json!({}))]),
        _ => says("done"),
    });
    parts.call_gate = Some(gate.clone());
    let scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "go").await;
    gate.reached(1).await;
    let _: StopReply = scene
        .operate("harness::stop", &json!({"session_id": id}))
        .await
        .expect("stored");
    assert!(matches!(
        scene.ended(&id, 1).await[..],
        [EndReason::Cancelled { .. }]
    ));
    assert_eq!(scene.status(&id).await.status, "idle");
    assert_eq!(scene.count("t::slow"), 1);
}

/// A destructive call waits for a person; what is approved runs once, and the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn sec_29_an_approved_call_runs_once() {
    let scene = Scene::start(Parts::new(|request| match results(request).len() {
        0 => calls(&[
            ("t::destroy", json!({"what": "all"})),
            ("t::read", json!({})),
        ]),
        _ => says("done"),
    }))
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    assert_eq!(pending.arguments.as_str(), "{\"what\":\"all\"}");
    assert_eq!(scene.status(&id).await.status, "awaiting_approval");
    assert_eq!((scene.count("t::destroy"), scene.count("t::read")), (0, 0));
    let reply = scene
        .resolve(&pending, Decision::Approve)
        .await
        .expect("resolved");
    assert!(reply.won);
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let late = scene
        .resolve(&pending, Decision::Deny { reason: None })
        .await;
    assert!(late.is_err() || late.is_ok_and(|reply| !reply.won));
    assert_eq!((scene.count("t::destroy"), scene.count("t::read")), (1, 1));
    assert_eq!(
        outcomes(&scene.events(&id).await),
        [ResultKind::Ok, ResultKind::Ok]
    );
}

/// APPR-2: a message while a decision is pending neither resolves nor cancels it; it is read when the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn appr_2_a_message_does_not_touch_a_pending_approval() {
    let scene = Scene::start(Parts::new(|request| {
        if has_results(request) {
            says("done")
        } else {
            calls(&[("t::destroy", json!({}))])
        }
    }))
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    scene.send(&id, "what is the time?").await;
    assert_eq!(scene.pending().await.approval_id, pending.approval_id);
    scene
        .resolve(
            &pending,
            Decision::Deny {
                reason: Some("not today".to_owned()),
            },
        )
        .await
        .expect("resolved");
    scene.ended(&id, 1).await;
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events)[0], ResultKind::DeniedByOwner);
    let users = events
        .iter()
        .filter(|event| {
            matches!(
                event,
                Event::MessageAdded {
                    message: Message::User { .. },
                    ..
                }
            )
        })
        .count();
    assert_eq!(users, 2);
    assert_eq!(scene.count("t::destroy"), 0);
}

/// APPR-8: denial by policy, an absent gate and a failing function are told apart.
#[tokio::test(flavor = "multi_thread")]
async fn appr_8_an_absent_gate_denies() {
    let mut parts = Parts::new(|request| match results(request).len() {
        0 => calls(&[("t::read", json!({})), ("x::y", json!({}))]),
        _ => says("done"),
    });
    parts.with_gate_worker = false;
    let scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "go").await;
    scene.ended(&id, 1).await;
    assert_eq!(
        outcomes(&scene.events(&id).await),
        [ResultKind::GateUnavailable, ResultKind::DeniedByPolicy]
    );
    assert_eq!(scene.count("t::read"), 0);
}

/// HIST-4, LOOP-3: malformed and unknown calls become results, their siblings run, the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn hist_4_a_bad_call_does_not_take_its_siblings_down() {
    use teamster_protocol::{function::router::Part, message::StopReason};
    let scene = Scene::start(Parts::new(|request| match results(request).len() {
        0 => {
            let part = |name: &str, arguments: &str| Part::Call {
                name: name.to_owned(),
                arguments: arguments.to_owned(),
            };
            crate::scene::completion(
                vec![
                    part("t__read", "{\"p\":\"x"),
                    part("t__read", "[1]"),
                    part("search_files", "{}"),
                    part("t__fail", "{}"),
                    part("t__read", "{}"),
                ],
                StopReason::Call,
            )
        }
        _ => says("done"),
    }))
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let mut kinds = outcomes(&scene.events(&id).await);
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    assert_eq!(
        kinds,
        [
            ResultKind::Error,
            ResultKind::Invalid,
            ResultKind::Invalid,
            ResultKind::Invalid,
            ResultKind::Ok
        ]
    );
    assert_eq!(scene.count("t::read"), 1);
}

/// BUS-5: without a router the turn fails with a reason that says so, and the session works once it is back.
#[tokio::test(flavor = "multi_thread")]
async fn bus_5_a_missing_router_fails_the_turn_by_name() {
    let mut scene = Scene::start(Parts::new(|_| says("hi"))).await;
    scene.drain("router").await;
    let id = session("s");
    scene.send(&id, "go").await;
    let reasons = scene.ended(&id, 1).await;
    assert!(
        matches!(&reasons[..], [EndReason::Failed { code, message }]
        if code == "model.not_configured" && message.contains("no router")),
        "{reasons:?}"
    );
}
