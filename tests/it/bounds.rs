//! The bounds of a turn and of what it may hold: how functions are offered, budgets, and sizes of everything.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use teamster_mesh::{Function, Worker};
use teamster_protocol::{
    Class, Contract, Data, Event, Message, MessageId, Principal, SessionId, Trust, Visibility,
    event::EndReason,
    function::router::{ChatRequest, Completion, Part, Price},
    hook::{Binding, Point, Stage},
    input::{Send, SessionOptions, TurnOptions},
    limits,
    message::{ResultKind, StopReason},
    policy::{Exposure, FunctionPolicy},
    usage::{Budget, BudgetKind, NanoUsd},
};
use teamster_testkit::wait;

use crate::scene::{
    Gate, Parts, Scene, calls, completion, id, name, outcomes, raw_call, results, says, session,
};

/// A worker with one read whose answer is `unit`, as often as asked for, and one that takes its time.
pub fn big() -> Worker {
    let contract = |function: &str| {
        let mut contract = Contract::new::<Value, Value>(id(function), "Answers much.");
        contract.class = Class::Read;
        contract.data = Data::Public;
        contract.trust = Trust::Trusted;
        contract.visibility = Visibility::Agent;
        contract
    };
    let read = Arc::new(|_, body: Bytes| -> teamster_mesh::function::BoxFuture<_> {
        let request: Value = serde_json::from_slice(&body).expect("JSON");
        let unit = request["unit"].as_str().expect("a unit");
        let times = usize::try_from(request["times"].as_u64().expect("a number")).expect("small");
        let answer = unit.repeat(times);
        Box::pin(async move { Ok(Bytes::from(answer)) })
    });
    let nap = Function::new(contract("big::nap"), |_, _: Value| async {
        wait::work(Duration::from_millis(600)).await;
        Ok(json!("awake"))
    });
    Worker::new(name("big"), "Answers much.")
        .function(Function::raw(contract("big::read"), read))
        .function(nap)
}

async fn scene(
    model: impl Fn(&ChatRequest) -> Completion + std::marker::Send + Sync + 'static,
) -> Scene {
    let mut parts = Parts::new(model);
    parts.workers.push(big());
    let scene = Scene::start(parts).await;
    scene.wait_for(&["big::read"]).await;
    scene
}

pub fn offering(allow: &[&str]) -> TurnOptions {
    let allow = allow.iter().map(|glob| (*glob).to_owned()).collect();
    TurnOptions {
        functions: Some(FunctionPolicy {
            allow,
            ..FunctionPolicy::default()
        }),
        ..TurnOptions::default()
    }
}

fn within(budget: Budget) -> TurnOptions {
    TurnOptions {
        budget,
        max_output_tokens: Some(10),
        ..offering(&["t::*", "big::*"])
    }
}

/// No commit of a session is larger than one may be.
async fn check_commits(scene: &Scene, session: &SessionId) {
    for commit in scene.commits(session).await {
        let bytes = commit.encode().expect("encodes").len();
        assert!(
            bytes <= limits::COMMIT_BYTES_MAX,
            "commit {} has {bytes} bytes",
            commit.n
        );
    }
}

/// The session still works: the next message is answered.
async fn check_alive(scene: &Scene, session: &SessionId) {
    scene.send(session, "still there?").await;
    scene.idle(session).await;
    let events = scene.events(session).await;
    let is_answered = events.iter().rev().find_map(|event| match event {
        Event::TurnEnded { reason, .. } => Some(*reason == EndReason::Completed),
        _ => None,
    });
    assert_eq!(is_answered, Some(true), "{:?}", events.last());
    check_commits(scene, session).await;
}

fn is_asked_again(request: &ChatRequest) -> bool {
    request
        .messages
        .iter()
        .rev()
        .find_map(|message| match message.as_ref() {
            Message::User { text, .. } => Some(text == "still there?"),
            _ => None,
        })
        == Some(true)
}

fn exceeded(events: &[Event]) -> (BudgetKind, u64, u64) {
    events
        .iter()
        .find_map(|event| match event {
            Event::BudgetExceeded { which, limit, used } => Some((*which, *limit, *used)),
            _ => None,
        })
        .expect("the log says which bound was met")
}

/// One tool for all functions: they are found by the discovery functions, which show what the turn allows and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn one_tool_reaches_what_is_allowed_and_discovery_shows_no_more() {
    let trigger = |function: &str, payload: &str| {
        let arguments = format!(r#"{{"function": "{function}", "payload": {payload}}}"#);
        raw_call("agent_trigger", &arguments)
    };
    let exact = r#"{ "path" : "\u0061" }"#;
    let scene = Scene::start(Parts::new(move |request| match results(request).len() {
        0 => trigger("engine::functions::list", r#"{"search": "COUNTS"}"#),
        1 => trigger("engine::functions::info", r#"{"function_id": "t::read"}"#),
        2 => trigger(
            "engine::functions::info",
            r#"{"function_id": "t::destroy"}"#,
        ),
        3 => trigger(
            "engine::functions::info",
            r#"{"function_id": "harness::send"}"#,
        ),
        4 => trigger("t::destroy", "{}"),
        5 => trigger("harness::send", r#"{"message": "more"}"#),
        6 => trigger("t::read", r#""{}""#),
        7 => raw_call("t::read", "{}"),
        8 => trigger("t::read", exact),
        _ => says("done"),
    }))
    .await;
    let session = session("s");
    let options = TurnOptions {
        functions: Some(FunctionPolicy {
            allow: vec!["t::*".to_owned()],
            deny: vec!["t::destroy".to_owned()],
            expose: Exposure::AgentTrigger,
        }),
        ..TurnOptions::default()
    };
    scene.send_options(&session, "go", options).await;
    assert_eq!(scene.ended(&session, 1).await, [EndReason::Completed]);
    let events = scene.events(&session).await;
    assert_eq!(
        outcomes(&events),
        [
            ResultKind::Ok,
            ResultKind::Ok,
            ResultKind::Error,
            ResultKind::Error,
            ResultKind::DeniedByPolicy,
            ResultKind::DeniedByPolicy,
            ResultKind::Invalid,
            ResultKind::Ok,
            ResultKind::Ok
        ]
    );
    let requests = scene.requests.lock().expect("lock").clone();
    for request in &requests {
        let tools: Vec<&str> = request
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(tools, ["agent_trigger"]);
    }
    let texts = results(requests.last().expect("a request"));
    let listed: Value = serde_json::from_str(&texts[0]).expect("JSON");
    let listed: Vec<&str> = listed["functions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| entry["function_id"].as_str().expect("an id"))
        .collect();
    assert_eq!(listed, ["t::fail", "t::read", "t::slow", "t::write"]);
    let info: Value = serde_json::from_str(&texts[1]).expect("JSON");
    assert_eq!(info["contract"]["id"], "t::read");
    assert_eq!(
        scene
            .bodies
            .lock()
            .expect("lock")
            .last()
            .map(String::as_str),
        Some(exact)
    );
    assert_eq!(
        (
            scene.count("t::destroy"),
            scene.status(&session).await.turns
        ),
        (0, 1)
    );
}

/// Steps: the turn ends before the generation that is one too many, and the log says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_at_its_steps_and_at_its_tokens() {
    let scene = scene(|request| {
        let count = results(request).len();
        calls(&[("t::write", json!({"count": count}))])
    })
    .await;
    let steps = session("steps");
    let budget = Budget {
        steps: Some(3),
        ..Budget::default()
    };
    scene.send_options(&steps, "go", within(budget)).await;
    let which = BudgetKind::Steps;
    assert_eq!(scene.ended(&steps, 1).await, [EndReason::Budget { which }]);
    let events = scene.events(&steps).await;
    assert_eq!(exceeded(&events), (which, 3, 3));
    assert_eq!(scene.requests.lock().expect("lock").len(), 3);
    assert_eq!(outcomes(&events), [ResultKind::Ok; 3]);

    scene.requests.lock().expect("lock").clear();
    let tokens = session("tokens");
    let budget = Budget {
        tokens: Some(300),
        ..Budget::default()
    };
    scene.send_options(&tokens, "go", within(budget)).await;
    let which = BudgetKind::Tokens;
    assert_eq!(scene.ended(&tokens, 1).await, [EndReason::Budget { which }]);
    let (_, limit, used) = exceeded(&scene.events(&tokens).await);
    assert!(limit == 300 && used > limit, "{used}");
    let spent = scene.status(&tokens).await.usage.total();
    let asked = scene.requests.lock().expect("lock").len();
    assert!(
        spent <= 300 && asked >= 2,
        "{spent} tokens in {asked} steps"
    );
}

/// SEC-36, SEC-37: a bound on calls met within one message keeps the rest from running.
#[tokio::test(flavor = "multi_thread")]
async fn sec_36_calls_beyond_the_bound_of_a_turn_do_not_run() {
    let scene = scene(|_| {
        let call = |n: u64| ("t::write", json!({ "n": n }));
        calls(&[call(0), call(1), call(2), call(3)])
    })
    .await;
    let id = session("s");
    let budget = Budget {
        calls: Some(2),
        ..Budget::default()
    };
    scene.send_options(&id, "go", within(budget)).await;
    let which = BudgetKind::Calls;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Budget { which }]);
    let events = scene.events(&id).await;
    assert_eq!(exceeded(&events), (which, 2, 2));
    assert_eq!(
        outcomes(&events),
        [
            ResultKind::Ok,
            ResultKind::Ok,
            ResultKind::Cancelled,
            ResultKind::Cancelled
        ]
    );
    assert_eq!(scene.count("t::write"), 2);
}

/// SEC-37: a thousand calls in one answer: each has a result, and what is beyond the bound of a message does not run.
#[tokio::test(flavor = "multi_thread")]
async fn sec_37_a_thousand_calls_in_one_answer_are_answered_and_bounded() {
    let scene = scene(|request| {
        if results(request).is_empty() {
            let call = ("t::write", json!({}));
            calls(&vec![call; 1000])
        } else {
            says("done")
        }
    })
    .await;
    let id = session("s");
    scene
        .send_options(&id, "go", within(Budget::default()))
        .await;
    assert_eq!(scene.ended(&id, 1).await.len(), 1);
    let outcomes = outcomes(&scene.events(&id).await);
    assert_eq!(outcomes.len(), 1000);
    let ran = outcomes.iter().filter(|kind| **kind == ResultKind::Ok);
    assert_eq!(ran.count(), limits::CALLS_PER_MESSAGE_MAX);
    check_alive(&scene, &id).await;
}

/// Money: the worst case of the next generation counts, by the price that the router tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_before_it_could_cost_too_much() {
    let mut parts = Parts::new(|request| {
        let count = results(request).len();
        let answer = calls(&[("t::write", json!({"count": count}))]);
        Completion {
            cost: Some(NanoUsd(450_000)),
            ..answer
        }
    });
    parts.price = Some(Price {
        input: NanoUsd(1_000),
        cache_read: NanoUsd(100),
        cache_write: NanoUsd(1_000),
        output: NanoUsd(2_000),
        as_of: "2026-01-01".to_owned(),
    });
    let scene = Scene::start(parts).await;
    scene.wait_for(&["router::models::get"]).await;
    let id = session("s");
    let budget = Budget {
        cost: Some(NanoUsd(1_000_000)),
        ..Budget::default()
    };
    scene.send_options(&id, "go", within(budget)).await;
    let which = BudgetKind::Cost;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Budget { which }]);
    let (_, limit, used) = exceeded(&scene.events(&id).await);
    assert!(limit == 1_000_000 && used > limit, "{used}");
    let status = scene.status(&id).await;
    assert_eq!(status.cost, NanoUsd(900_000), "two generations were paid");
}

/// Time: what a turn works is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_at_its_time() {
    let scene = scene(|_| calls(&[("big::nap", json!({}))])).await;
    let id = session("s");
    let budget = Budget {
        wall_ms: Some(500),
        ..Budget::default()
    };
    scene.send_options(&id, "go", within(budget)).await;
    let which = BudgetKind::Wall;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Budget { which }]);
    let (_, limit, used) = exceeded(&scene.events(&id).await);
    assert!(limit == 500 && used >= limit, "{used}");
}

/// Time: a model that does not come to an end is ended with the turn, and what it had said is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_generation_ends_at_the_turns_time() {
    let mut parts = Parts::new(|_| says("never"));
    parts.model_gate = Some(Gate::shut());
    let scene = Scene::start(parts).await;
    let id = session("s");
    let budget = Budget {
        wall_ms: Some(500),
        ..Budget::default()
    };
    scene.send_options(&id, "go", within(budget)).await;
    let which = BudgetKind::Wall;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Budget { which }]);
    let is_kept = scene.events(&id).await.iter().any(|event| {
        matches!(
            event,
            Event::GenerationInterrupted {
                partial: Some(_),
                ..
            }
        )
    });
    assert!(is_kept);
}

/// UNI-1: messages up to their bound are taken whole, longer ones are refused with words.
#[tokio::test(flavor = "multi_thread")]
async fn uni_1_a_message_is_taken_whole_or_refused() {
    let scene = scene(|_| says("read")).await;
    let id = session("s");
    for text in [
        "中".repeat(40_000),
        "x".repeat(limits::MESSAGE_BYTES_MAX),
        "\u{1}\u{1b}[2J\u{7f}\u{202e}".repeat(2_000),
    ] {
        scene.send(&id, &text).await;
        scene.idle(&id).await;
        let requests = scene.requests.lock().expect("lock").clone();
        let is_whole = requests.last().is_some_and(|request| {
            request
                .messages
                .iter()
                .any(|message| matches!(message.as_ref(), Message::User { text: read, .. } if *read == text))
        });
        assert!(is_whole);
    }
    for text in [
        "x".repeat(limits::MESSAGE_BYTES_MAX + 1),
        "\u{1}".repeat(120_000),
    ] {
        let refused = scene
            .send_with(&id, &text, None)
            .await
            .expect_err("too long");
        assert_eq!(refused.code, "harness.message_too_large");
    }
    check_alive(&scene, &id).await;
}

/// A message that a client stored past the harness and that no commit can hold does not stop its session.
#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_no_commit_can_hold_is_dropped_with_the_reason() {
    let scene = scene(|_| says("read")).await;
    let session = session("s");
    let message = MessageId::of_input(&session, "in", "huge");
    let send = Send {
        id: message.clone(),
        from: Principal::parse("owner").expect("valid"),
        text: "\u{1}".repeat(limits::MESSAGE_BYTES_MAX),
        at_ms: 1,
        session: SessionOptions::default(),
        options: TurnOptions::default(),
    };
    let body = serde_json::to_vec(&send).expect("encodes");
    assert!(body.len() > limits::COMMIT_BYTES_MAX);
    let lanes = scene.operator.lanes();
    lanes
        .send(&session, &message, body.into())
        .await
        .expect("stored");
    check_alive(&scene, &session).await;
    let dropped = |event: &Event| matches!(event, Event::InputDropped { .. });
    assert!(scene.events(&session).await.iter().any(dropped));
}

/// SEC-40, UNI-1: results are cut with a mark between characters; four huge ones at once fit into a commit.
#[tokio::test(flavor = "multi_thread")]
async fn sec_40_huge_results_are_cut_with_a_mark() {
    for unit in ["x", "中", "\u{1}", "\"\\"] {
        let scene = scene(move |request| {
            if is_asked_again(request) || !results(request).is_empty() {
                return says("done");
            }
            let call = ("big::read", json!({"unit": unit, "times": 300_000}));
            calls(&[call.clone(), call.clone(), call.clone(), call.clone(), call])
        })
        .await;
        let id = session("s");
        scene.send_options(&id, "go", offering(&["big::*"])).await;
        assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
        let events = scene.events(&id).await;
        assert_eq!(outcomes(&events), [ResultKind::Ok; 5]);
        for event in &events {
            if let Event::CallFinished { text, .. } = event {
                assert!(text.len() <= limits::RESULT_BYTES_MAX);
                assert!(text.contains(" bytes left out; context::read {"), "{text}");
            }
        }
        check_alive(&scene, &id).await;
    }
}

/// A huge answer ends its turn by name; answers up to the bound are kept whole, whatever is in them.
#[tokio::test(flavor = "multi_thread")]
async fn a_huge_answer_ends_its_turn_and_not_its_session() {
    let scene = scene(|request| {
        if is_asked_again(request) {
            return says("yes");
        }
        let last = request.messages.last();
        match last.map(AsRef::as_ref) {
            Some(Message::User { text, .. }) if text == "control" => says(&"\u{1}".repeat(200_000)),
            Some(Message::User { text, .. }) if text == "large" => says(&"x".repeat(230_000)),
            _ => says(&"x".repeat(600_000)),
        }
    })
    .await;
    let id = session("s");
    for (number, (text, is_kept)) in [("huge", false), ("large", true), ("control", false)]
        .into_iter()
        .enumerate()
    {
        scene.send(&id, text).await;
        let reasons = scene.ended(&id, number + 1).await;
        match reasons.last().expect("ended") {
            EndReason::Completed => assert!(is_kept, "{text}"),
            EndReason::Failed { code, .. } => {
                assert!(!is_kept && code == "model.rejected", "{code}");
            }
            other => panic!("{other:?}"),
        }
    }
    check_alive(&scene, &id).await;
}

/// Large calls that all wait for a person: each stands in the answer and in its question, and no commit is too large.
#[tokio::test(flavor = "multi_thread")]
async fn many_large_questions_at_once_are_all_asked() {
    let scene = scene(|request| {
        if is_asked_again(request) || !results(request).is_empty() {
            return says("done");
        }
        let arguments = json!({"what": "x".repeat(6_900)}).to_string();
        let part = Part::Call {
            name: "t__destroy".to_owned(),
            arguments,
        };
        completion(vec![part; limits::CALLS_PER_MESSAGE_MAX], StopReason::Call)
    })
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    wait::until(crate::scene::LIMIT, "all questions", || async {
        scene.status(&id).await.approvals.len() == limits::CALLS_PER_MESSAGE_MAX
    })
    .await;
    check_commits(&scene, &id).await;
    let _: Value = scene
        .operate("harness::stop", &json!({"session_id": id}))
        .await
        .expect("stored");
    scene.ended(&id, 1).await;
    check_alive(&scene, &id).await;
}

/// A hook that answers without measure ends a turn at most, never a session.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_without_measure_does_not_stop_a_session() {
    let text = "x".repeat(700_000);
    let many: Vec<String> = vec!["n".repeat(40_000); 40];
    let changes = |mutations: Value| json!({"decision": "continue", "mutations": mutations});
    let arguments = json!({"a": text}).to_string();
    let cases = [
        (
            Point::PreTurn,
            Stage::Judge,
            json!({"decision": "deny", "reason": text}),
        ),
        (
            Point::PreTurn,
            Stage::Judge,
            json!({"decision": "continue", "annotation": text}),
        ),
        (
            Point::PreGenerate,
            Stage::Judge,
            changes(json!({"system_prompt": text})),
        ),
        (
            Point::PreGenerate,
            Stage::Judge,
            changes(json!({"append": many})),
        ),
        (
            Point::PreTrigger,
            Stage::Shape,
            changes(json!({"arguments": arguments})),
        ),
        (
            Point::PreTrigger,
            Stage::Judge,
            json!({"decision": "deny", "reason": text}),
        ),
        (
            Point::PostTrigger,
            Stage::Judge,
            changes(json!({"result": {"text": text, "is_error": false}})),
        ),
    ];
    for (point, stage, answer) in cases {
        let mut contract = Contract::new::<Value, Value>(id("guard::check"), "Says much.");
        contract.visibility = Visibility::Worker;
        let handler = Arc::new(
            move |_, _: Bytes| -> teamster_mesh::function::BoxFuture<_> {
                let answer = answer.to_string();
                Box::pin(async move { Ok(Bytes::from(answer)) })
            },
        );
        let binding = Binding {
            point,
            function: id("guard::check"),
            priority: 0,
            stage,
            functions: Vec::new(),
            timeout_ms: None,
            on_error: None,
        };
        let mut parts = Parts::new(|request| {
            if !is_asked_again(request) && results(request).is_empty() {
                let call = ("t::write", json!({}));
                return calls(&vec![call; limits::CALLS_PER_MESSAGE_MAX]);
            }
            says("done")
        });
        parts.workers.push(
            Worker::new(name("guard"), "Says much.")
                .function(Function::raw(contract, handler))
                .hook(binding),
        );
        let mut scene = Scene::start(parts).await;
        let session = session("s");
        scene.send(&session, "go").await;
        scene.ended(&session, 1).await;
        check_commits(&scene, &session).await;
        scene.drain("guard").await;
        let registry = scene.operator.registry().await.expect("registry");
        registry.unbind("guard").await.expect("removed");
        wait::until(
            crate::scene::LIMIT,
            "the session is answered again",
            || async {
                scene.send(&session, "still there?").await;
                scene.idle(&session).await;
                let events = scene.events(&session).await;
                events.iter().rev().find_map(|event| match event {
                    Event::TurnEnded { reason, .. } => Some(*reason == EndReason::Completed),
                    _ => None,
                }) == Some(true)
            },
        )
        .await;
        check_commits(&scene, &session).await;
    }
}
