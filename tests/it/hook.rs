//! Hooks as other workers bind them: what each point may change, and what a hook that fails means.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use teamster_mesh::{
    Function, Worker,
    function::{BoxFuture, Ctx},
};
use teamster_protocol::{
    Arguments, Contract, Event, Fault, Visibility,
    event::EndReason,
    function::router::ChatRequest,
    hook::{Binding, CallResult, Mutations, OnError, Point, Request, Stage, Verdict},
    message::ResultKind,
};

use crate::scene::{LIMIT, Parts, Scene, calls, id, name, results, says, session};

/// How a hook of a scenario answers.
type Answer = fn(Request) -> BoxFuture<Result<Bytes, Fault>>;

fn binding(point: Point, on_error: Option<OnError>) -> Binding {
    Binding {
        point,
        function: id("guard::check"),
        priority: 0,
        stage: Stage::Judge,
        functions: Vec::new(),
        timeout_ms: Some(150),
        on_error,
    }
}

/// A worker with one hook function, bound as said.
fn guard(bindings: Vec<Binding>, answer: Answer) -> Worker {
    let mut contract = Contract::new::<Request, Verdict>(id("guard::check"), "Looks at a turn.");
    contract.visibility = Visibility::Worker;
    let handler = move |_: Ctx, body: Bytes| match serde_json::from_slice(&body) {
        Ok(request) => answer(request),
        Err(error) => panic!("a hook is told what it can read: {error}"),
    };
    let worker = Worker::new(name("guard"), "Looks at turns.")
        .function(Function::raw(contract, Arc::new(handler)));
    bindings.into_iter().fold(worker, Worker::hook)
}

fn verdict(verdict: &Verdict) -> BoxFuture<Result<Bytes, Fault>> {
    let body = serde_json::to_vec(verdict).expect("encodes");
    Box::pin(async move { Ok(body.into()) })
}

fn text(text: &'static str) -> BoxFuture<Result<Bytes, Fault>> {
    Box::pin(async move { Ok(text.into()) })
}

fn never(_: Request) -> BoxFuture<Result<Bytes, Fault>> {
    Box::pin(std::future::pending())
}

/// A model that reads once and then is done.
fn reads_once(request: &ChatRequest) -> teamster_protocol::function::router::Completion {
    if results(request).is_empty() {
        calls(&[("t::read", json!({"path": "a"}))])
    } else {
        says("done")
    }
}

async fn scene(bindings: Vec<Binding>, answer: Answer) -> Scene {
    let bound = bindings.len();
    let mut parts = Parts::new(reads_once);
    parts.workers.push(guard(bindings, answer));
    let scene = Scene::start(parts).await;
    let registry = scene.operator.registry().await.expect("registry");
    registry
        .wait(LIMIT, |catalog| {
            let is_ours = |(binding, _): &&(Binding, _)| binding.function == id("guard::check");
            catalog.hooks.iter().filter(is_ours).count() == bound
        })
        .await;
    scene
}

fn refusals(events: &[Event]) -> Vec<ResultKind> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::CallRefused { outcome, .. } => Some(*outcome),
            _ => None,
        })
        .collect()
}

/// HOOK-1: a guard that is slow, answers nonsense or fails is a denial; the function runs in none of the cases.
#[tokio::test(flavor = "multi_thread")]
async fn hook_1_a_guard_that_fails_is_a_denial() {
    let answers: [Answer; 4] = [
        never,
        |_| text("{"),
        |_| text(r#"{"decision": "maybe"}"#),
        |_| Box::pin(async { Err(Fault::internal("guard.broken", "it broke")) }),
    ];
    for answer in answers {
        let scene = scene(vec![binding(Point::PreTrigger, None)], answer).await;
        let id = session("s");
        scene.send(&id, "go").await;
        assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
        assert_eq!(scene.count("t::read"), 0);
        assert_eq!(
            refusals(&scene.events(&id).await),
            [ResultKind::GateUnavailable]
        );
    }
}

/// HOOK-1: a binding that fails closed outlives its worker; without the worker nothing runs.
#[tokio::test(flavor = "multi_thread")]
async fn hook_1_a_guard_that_is_gone_still_denies() {
    let bound = vec![binding(Point::PreTrigger, None)];
    let mut scene = scene(bound, |_| verdict(&Verdict::proceed())).await;
    scene.drain("guard").await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::read"), 0);
    assert_eq!(
        refusals(&scene.events(&id).await),
        [ResultKind::GateUnavailable]
    );
}

/// HOOK-2: a hook that never answers is left at its deadline: before the call as its binding says, after it as nothing.
#[tokio::test(flavor = "multi_thread")]
async fn hook_2_a_hook_that_hangs_is_left_at_its_deadline() {
    let bound = vec![
        binding(Point::PreTurn, Some(OnError::FailOpen)),
        binding(Point::PreTrigger, Some(OnError::FailOpen)),
        binding(Point::PostGenerate, None),
        binding(Point::PostTrigger, None),
    ];
    let scene = scene(bound, never).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::read"), 1);
    let said = scene.events(&id).await.into_iter().any(|event| {
        matches!(event, Event::HookRan { annotation: Some(note), .. } if note.contains("the hook guard::check failed"))
    });
    assert!(said, "the log says that the hook failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_before_the_turn_ends_it_before_anything_is_spent() {
    let scene = scene(vec![binding(Point::PreTurn, None)], |_| {
        verdict(&Verdict::Deny {
            reason: "not today".to_owned(),
            judgement: None,
        })
    })
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    let reasons = scene.ended(&id, 1).await;
    assert!(
        matches!(&reasons[..], [EndReason::Denied { message, .. }] if message.contains("not today")),
        "{reasons:?}"
    );
    assert!(scene.requests.lock().expect("lock").is_empty());
}

/// What the hook of the next test answers, point by point.
fn changes(request: Request) -> BoxFuture<Result<Bytes, Fault>> {
    let mut mutations = Mutations::default();
    match request.point {
        Point::PreGenerate => mutations.system_prompt = Some("be brief".to_owned()),
        Point::PreTrigger => {
            mutations.arguments = Some(Arguments::parse(r#"{ "path": "b" }"#).expect("valid"));
        }
        Point::PostTrigger => {
            let given = request.result.expect("a result").text;
            let path: Value = serde_json::from_str(&given).expect("JSON");
            mutations.result = Some(CallResult {
                text: format!("rewritten {}", path["echo"]["path"]),
                is_error: false,
            });
        }
        Point::PreTurn | Point::PostGenerate => {}
    }
    verdict(&Verdict::Continue {
        mutations,
        annotation: Some(format!("seen at {}", request.point.as_str())),
        judgement: None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_point_changes_what_it_may_and_leaves_its_note() {
    let shape = Binding {
        stage: Stage::Shape,
        ..binding(Point::PreTrigger, None)
    };
    let others = [
        Point::PreTurn,
        Point::PreGenerate,
        Point::PostGenerate,
        Point::PostTrigger,
    ];
    let mut bound: Vec<Binding> = others.map(|point| binding(point, None)).to_vec();
    bound.push(shape);
    for one in &mut bound {
        one.timeout_ms = Some(u64::try_from(Duration::from_secs(5).as_millis()).expect("small"));
    }
    let scene = scene(bound, changes).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let events = scene.events(&id).await;
    for point in Point::ALL {
        let note = format!("seen at {}", point.as_str());
        let is_noted = events.iter().any(|event| {
            matches!(event, Event::HookRan { annotation: Some(found), .. } if *found == note)
        });
        assert!(is_noted, "{note}");
    }
    let requests = scene.requests.lock().expect("lock");
    assert!(requests.iter().all(|request| {
        request
            .system_prompt
            .as_deref()
            .is_some_and(|prompt| prompt.contains("be brief"))
    }));
    let last = requests.last().expect("two requests");
    assert_eq!(results(last), [r#"rewritten "b""#]);
}

/// A judge changes nothing: an answer that tries is a failure, and so a denial.
#[tokio::test(flavor = "multi_thread")]
async fn a_judge_that_changes_arguments_is_a_denial() {
    let scene = scene(vec![binding(Point::PreTrigger, None)], changes).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::read"), 0);
}
