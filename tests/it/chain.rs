//! Chains of hooks: their order, what each of them sees, what stops them, and what of a chain outlives a restart.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use serde_json::json;
use teamster::harness;
use teamster_mesh::{Function, Worker};
use teamster_protocol::{
    Arguments, Contract, Digest, Event, Fault, Message, Visibility,
    event::EndReason,
    function::router::{ChatRequest, Completion},
    hook::{Binding, CallResult, Mutations, OnError, Point, Request, Stage, Verdict},
    input::Decision,
    message::ResultKind,
    policy::{Effect, Judgement, Labels},
};
use teamster_testkit::wait;

use crate::scene::{
    LIMIT, Parts, Scene, calls, id, name, outcomes, raw_call, results, says, session,
};

/// What a hook of a scenario answers: the bytes of its reply.
type Answer = Arc<dyn Fn(&Request) -> Result<Bytes, Fault> + Send + Sync>;

/// One hook: its function's id, its binding, its answer.
struct Hook {
    binding: Binding,
    answer: Answer,
}

/// What the hooks of a scenario were told, in the order in which they were asked.
type Heard = Arc<Mutex<Vec<(String, Request)>>>;

fn hook(
    function: &str,
    point: Point,
    answer: impl Fn(&Request) -> Verdict + Send + Sync + 'static,
) -> Hook {
    raw_hook(function, point, move |request| {
        Ok(serde_json::to_vec(&answer(request))
            .expect("encodes")
            .into())
    })
}

fn raw_hook(
    function: &str,
    point: Point,
    answer: impl Fn(&Request) -> Result<Bytes, Fault> + Send + Sync + 'static,
) -> Hook {
    let binding = Binding {
        point,
        function: id(function),
        priority: 0,
        stage: Stage::Judge,
        functions: Vec::new(),
        timeout_ms: None,
        on_error: None,
    };
    Hook {
        binding,
        answer: Arc::new(answer),
    }
}

impl Hook {
    fn shape(mut self) -> Self {
        self.binding.stage = Stage::Shape;
        self
    }

    fn priority(mut self, priority: i32) -> Self {
        self.binding.priority = priority;
        self
    }

    fn open(mut self) -> Self {
        self.binding.on_error = Some(OnError::FailOpen);
        self
    }
}

/// A worker with these hooks, bound in the order given.
fn guard(hooks: Vec<Hook>, heard: &Heard) -> Worker {
    hooks.into_iter().fold(
        Worker::new(name("guard"), "Looks at turns."),
        |worker, hook| {
            let function = hook.binding.function.clone();
            let mut contract = Contract::new::<Request, Verdict>(function.clone(), "Looks.");
            contract.visibility = Visibility::Worker;
            let (heard, answer) = (Arc::clone(heard), hook.answer);
            let handler = move |_, body: Bytes| -> teamster_mesh::function::BoxFuture<_> {
                let request: Request = serde_json::from_slice(&body).expect("a hook's request");
                let answer = answer(&request);
                heard
                    .lock()
                    .expect("lock")
                    .push((function.to_string(), request));
                Box::pin(async move { answer })
            };
            let worker = worker.hook(hook.binding);
            worker.function(Function::raw(contract, Arc::new(handler)))
        },
    )
}

async fn scene(
    model: impl Fn(&ChatRequest) -> Completion + Send + Sync + 'static,
    hooks: Vec<Hook>,
) -> (Scene, Heard) {
    let (heard, bound) = (Heard::default(), hooks.len());
    let mut parts = Parts::new(model);
    parts.workers.push(guard(hooks, &heard));
    let scene = Scene::start(parts).await;
    wait_bound(&scene, bound).await;
    (scene, heard)
}

/// Waits until this many hooks of the worker `guard` are bound.
async fn wait_bound(scene: &Scene, count: usize) {
    let registry = scene.operator.registry().await.expect("registry");
    let bound = |hooks: &[(Binding, String)]| hooks.iter().filter(|(_, by)| by == "guard").count();
    let catalog = registry
        .wait(LIMIT, |catalog| bound(&catalog.hooks) == count)
        .await;
    assert_eq!(bound(&catalog.hooks), count);
}

fn writes_once(request: &ChatRequest) -> Completion {
    if results(request).is_empty() {
        calls(&[("t::write", json!({"by": []}))])
    } else {
        says("done")
    }
}

fn change(mutations: Mutations) -> Verdict {
    Verdict::Continue {
        mutations,
        annotation: None,
        judgement: None,
    }
}

fn deny(reason: &str) -> Verdict {
    Verdict::Deny {
        reason: reason.to_owned(),
        judgement: None,
    }
}

fn hold() -> Verdict {
    Verdict::Hold {
        judgement: Judgement {
            effect: Effect::Ask,
            layer: "guard".to_owned(),
            rule: "0: ask".to_owned(),
            labels: Labels::default(),
            target: None,
            policy: Digest::ZERO,
            ask_ttl_ms: None,
        },
    }
}

/// Adds its letter to the list in the arguments.
fn sign(letter: &'static str) -> impl Fn(&Request) -> Verdict {
    move |request| {
        let arguments = &request.call.as_ref().expect("a call").arguments;
        let text = match arguments.as_str().replace("[]", "").as_str() {
            r#"{"by":}"# => format!(r#"{{"by":["{letter}"]}}"#),
            _ => arguments
                .as_str()
                .replace("\"]", &format!(r#"","{letter}"]"#)),
        };
        change(Mutations {
            arguments: Some(Arguments::parse(text).expect("valid")),
            ..Mutations::default()
        })
    }
}

fn names(heard: &Heard) -> Vec<String> {
    heard
        .lock()
        .expect("lock")
        .iter()
        .map(|(name, _)| name.clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn shaping_hooks_run_by_priority_and_id_and_judges_see_the_final_bytes() {
    let hooks = vec![
        hook("guard::b", Point::PreTrigger, sign("b")).shape(),
        hook("guard::a", Point::PreTrigger, sign("a")).shape(),
        hook("guard::z", Point::PreTrigger, sign("z"))
            .shape()
            .priority(-5),
        hook("guard::judge", Point::PreTrigger, |_| Verdict::proceed()).priority(-100),
    ];
    let (scene, heard) = scene(writes_once, hooks).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(
        names(&heard),
        ["guard::z", "guard::a", "guard::b", "guard::judge"]
    );
    let judged = heard.lock().expect("lock")[3].1.call.clone();
    assert_eq!(
        judged.expect("a call").arguments.as_str(),
        r#"{"by":["z","a","b"]}"#
    );
    let events = scene.events(&id).await;
    let ran: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::CallAllowed {
                arguments: Some(arguments),
                ..
            } => Some(arguments.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ran, [r#"{"by":["z","a","b"]}"#]);
    let text = result_text(&events);
    assert!(text.contains(r#"["z","a","b"]"#), "{text}");
}

fn result_text(events: &[Event]) -> String {
    events
        .iter()
        .find_map(|event| match event {
            Event::CallFinished { text, .. } | Event::CallRefused { text, .. } => {
                Some(text.clone())
            }
            _ => None,
        })
        .expect("a result")
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_before_a_generation_add_to_each_others_prompt_and_leave_notices() {
    let prompt = |mark: &'static str| {
        move |request: &Request| {
            let before = &request
                .generate
                .as_ref()
                .expect("a generation")
                .system_prompt;
            change(Mutations {
                system_prompt: Some(format!("{before}{mark}")),
                append: vec![format!("notice{mark}")],
                ..Mutations::default()
            })
        }
    };
    let hooks = vec![
        hook("guard::two", Point::PreGenerate, prompt("[two]")).priority(2),
        hook("guard::one", Point::PreGenerate, prompt("[one]")).priority(1),
    ];
    let (scene, _) = scene(writes_once, hooks).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let requests = scene.requests.lock().expect("lock").clone();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let prompt = request.system_prompt.as_deref().expect("a prompt");
        assert!(prompt.ends_with("[one][two]"), "{prompt}");
        assert_eq!(prompt.matches("[one]").count(), 1, "each step begins anew");
    }
    let notices = |request: &ChatRequest| -> Vec<String> {
        let texts = request
            .messages
            .iter()
            .filter_map(|message| match message.as_ref() {
                Message::Notice { text, .. } => Some(text.clone()),
                _ => None,
            });
        texts.collect()
    };
    assert_eq!(notices(&requests[0]), ["notice[one]", "notice[two]"]);
    assert_eq!(
        notices(&requests[1]).len(),
        4,
        "what a step was told stays in the transcript"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_after_a_call_rewrite_what_is_stored_and_hooks_after_an_answer_only_look() {
    let rewrite = |mark: &'static str| {
        move |request: &Request| {
            let before = &request.result.as_ref().expect("a result").text;
            change(Mutations {
                result: Some(CallResult {
                    text: format!("{before}{mark}"),
                    is_error: false,
                }),
                ..Mutations::default()
            })
        }
    };
    let hooks = vec![
        hook("guard::second", Point::PostTrigger, rewrite("[second]")).priority(1),
        hook("guard::first", Point::PostTrigger, rewrite("[first]")),
        hook("guard::look", Point::PostGenerate, |request| {
            assert!(matches!(request.generated, Some(Message::Assistant { .. })));
            deny("I do not like it")
        }),
    ];
    let (scene, heard) = scene(writes_once, hooks).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let events = scene.events(&id).await;
    let stored = result_text(&events);
    assert!(
        stored.starts_with('{') && stored.ends_with("[first][second]"),
        "{stored}"
    );
    let requests = scene.requests.lock().expect("lock").clone();
    assert_eq!(
        results(&requests[1]),
        [stored],
        "the model reads what is stored"
    );
    let looks = names(&heard)
        .iter()
        .filter(|name| *name == "guard::look")
        .count();
    assert_eq!(looks, 2, "once after each answer");
    let notes = events.iter().filter(|event| {
        matches!(event, Event::HookRan { annotation: Some(note), denied: None, .. }
            if note.contains("do not like"))
    });
    assert_eq!(notes.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_denial_stops_a_chain() {
    let hooks = vec![
        hook("guard::later", Point::PreTrigger, |_| Verdict::proceed()).priority(5),
        hook("guard::no", Point::PreTrigger, |_| deny("not this one")).priority(-5),
    ];
    let (scene, heard) = scene(writes_once, hooks).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(names(&heard), ["guard::no"]);
    assert_eq!(scene.count("t::write"), 0);
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::DeniedByPolicy]);
    assert!(result_text(&events).contains("not this one"));
}

/// A denial before a turn or a generation ends the turn with the hook's name, before anything is spent.
#[tokio::test(flavor = "multi_thread")]
async fn a_denial_before_the_turn_or_a_generation_ends_it_by_name() {
    for point in [Point::PreTurn, Point::PreGenerate] {
        let hooks = vec![
            hook("guard::later", point, |_| Verdict::proceed()).priority(1),
            hook("guard::no", point, |_| deny("closed today")),
        ];
        let (scene, heard) = scene(writes_once, hooks).await;
        let id = session("s");
        scene.send(&id, "go").await;
        let reasons = scene.ended(&id, 1).await;
        let [EndReason::Denied { rule, message }] = &reasons[..] else {
            panic!("{reasons:?}");
        };
        assert_eq!(
            (rule.as_str(), message.as_str()),
            ("guard::no", "closed today")
        );
        assert_eq!(names(&heard), ["guard::no"]);
        assert!(scene.requests.lock().expect("lock").is_empty());
        assert_eq!(scene.status(&id).await.usage.total(), 0);
    }
}

/// HOOK-1: guards before a turn and before a generation fail closed as well.
#[tokio::test(flavor = "multi_thread")]
async fn hook_1_a_broken_guard_of_a_turn_or_a_generation_denies_it() {
    for point in [Point::PreTurn, Point::PreGenerate] {
        let hooks = vec![raw_hook("guard::broken", point, |_| {
            Ok(Bytes::from_static(b"{"))
        })];
        let (scene, _) = scene(writes_once, hooks).await;
        let id = session("s");
        scene.send(&id, "go").await;
        let reasons = scene.ended(&id, 1).await;
        assert!(
            matches!(&reasons[..], [EndReason::Denied { rule, .. }] if rule == "guard::broken"),
            "{reasons:?}"
        );
        assert!(scene.requests.lock().expect("lock").is_empty());
    }
}

/// HOOK-1: observers fail open: nonsense, an unknown verdict and a fault change nothing and are noted.
#[tokio::test(flavor = "multi_thread")]
async fn hook_1_a_broken_observer_changes_nothing() {
    type Broken = fn(&Request) -> Result<Bytes, Fault>;
    let answers: [Broken; 3] = [
        |_| Ok(Bytes::from_static(b"{")),
        |_| Ok(Bytes::from_static(br#"{"decision": "maybe"}"#)),
        |_| Err(Fault::internal("guard.broken", "it broke")),
    ];
    let hooks = (0..3)
        .zip(answers)
        .flat_map(|(number, answer)| {
            [Point::PostGenerate, Point::PostTrigger].map(|point| {
                raw_hook(
                    &format!("guard::{}{number}", point.as_str().replace('-', "_")),
                    point,
                    answer,
                )
            })
        })
        .chain([raw_hook("guard::lax", Point::PreTrigger, answers[0]).open()])
        .collect();
    let (scene, _) = scene(writes_once, hooks).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::write"), 1);
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::Ok]);
    let notes = events.iter().filter(|event| {
        matches!(event, Event::HookRan { annotation: Some(note), .. } if note.contains("failed"))
    });
    // Three after each of two answers, three after the call, one before it.
    assert_eq!(notes.count(), 10);
}

/// HOOK-2: all hooks of a point have one time together; who is not asked within it has failed.
#[tokio::test(flavor = "multi_thread")]
async fn hook_2_a_chain_ends_at_its_cap_whatever_each_hook_may_take() {
    let heard = Heard::default();
    let mut slow = Contract::new::<Request, Verdict>(id("guard::slow"), "Never answers.");
    slow.visibility = Visibility::Worker;
    let slow = Function::raw(slow, Arc::new(|_, _| Box::pin(std::future::pending())));
    let mut first = hook("guard::slow", Point::PreTrigger, |_| Verdict::proceed()).open();
    first.binding.timeout_ms = Some(60_000);
    first.binding.priority = -5;
    let later = hook("guard::later", Point::PreTrigger, |_| Verdict::proceed()).priority(-4);
    let mut worker = guard(vec![later], &heard).hook(first.binding);
    worker.functions.push(slow);
    let mut parts = Parts::new(writes_once);
    parts.workers.push(worker);
    let scene = Scene::start(parts).await;
    wait_bound(&scene, 2).await;
    let id = session("s");
    scene.send(&id, "go").await;
    wait::until(Duration::from_mins(1), "the chain's end", || async {
        !outcomes(&scene.events(&id).await).is_empty()
    })
    .await;
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::GateUnavailable]);
    assert!(
        result_text(&events).contains("guard::later"),
        "{}",
        result_text(&events)
    );
    assert_eq!(scene.count("t::write"), 0);
    assert!(names(&heard).is_empty());
}

/// DUR-1: a held call keeps its shaped bytes and the rest of its chain; a harness that knows nothing of it goes on with both.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_held_call_keeps_its_bytes_and_its_chain_across_a_restart() {
    let shaped = "{ \"path\" : \"sh\\u0061ped\" }";
    let hooks = vec![
        hook("guard::shape", Point::PreTrigger, move |_| {
            change(Mutations {
                arguments: Some(Arguments::parse(shaped).expect("valid")),
                ..Mutations::default()
            })
        })
        .shape(),
        hook("guard::before", Point::PreTrigger, |_| Verdict::proceed()).priority(1),
        hook("guard::hold", Point::PreTrigger, |_| hold()).priority(2),
        hook("guard::later", Point::PreTrigger, |_| Verdict::proceed()).priority(3),
    ];
    let (mut scene, heard) = scene(writes_once, hooks).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    assert_eq!(pending.arguments.as_str(), shaped);
    assert_eq!(
        names(&heard),
        ["guard::shape", "guard::before", "guard::hold"]
    );
    scene.drain("harness").await;
    scene
        .serve(harness::worker(&Parts::new(writes_once).harness).expect("harness"))
        .await;
    scene.wait_for(&["harness::send"]).await;
    let reply = scene
        .resolve(&pending, Decision::Approve)
        .await
        .expect("decided");
    assert!(reply.won);
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    // Neither who shaped it nor who judged it before is asked again.
    assert_eq!(names(&heard)[3..], ["guard::later"]);
    let call = heard.lock().expect("lock")[3].1.call.clone();
    let call = call.expect("a call");
    assert_eq!(
        (call.arguments.as_str(), call.approved),
        (shaped, Some(Digest::of(shaped)))
    );
    assert_eq!(scene.count("t::write"), 1);
    assert!(result_text(&scene.events(&id).await).contains(r#"{"path":"shaped"}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_judge_after_the_holder_may_still_deny_what_was_approved() {
    let hooks = vec![
        hook("guard::hold", Point::PreTrigger, |_| hold()).priority(1),
        hook("guard::later", Point::PreTrigger, |_| deny("after all: no")).priority(2),
    ];
    let (scene, _) = scene(writes_once, hooks).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    scene
        .resolve(&pending, Decision::Approve)
        .await
        .expect("decided");
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::DeniedByPolicy]);
    assert_eq!(scene.count("t::write"), 0);
}

/// HOOK-1: a worker's binding outlives it and denies, until an operator removes it.
#[tokio::test(flavor = "multi_thread")]
async fn hook_1_a_binding_denies_until_an_operator_removes_it() {
    let writes = |request: &ChatRequest| {
        let count = results(request).len();
        if count == 0 {
            raw_call("t::write", "{}")
        } else {
            says("done")
        }
    };
    let hooks = vec![hook("guard::check", Point::PreTrigger, |_| {
        Verdict::proceed()
    })];
    let (mut scene, heard) = scene(writes, hooks).await;
    let id = session("s");
    scene.send(&id, "one").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::write"), 1);
    scene.drain("guard").await;
    scene.send(&id, "two").await;
    scene.ended(&id, 2).await;
    assert_eq!(
        outcomes(&scene.events(&id).await),
        [ResultKind::Ok, ResultKind::GateUnavailable]
    );
    let registry = scene.operator.registry().await.expect("registry");
    registry.unbind("guard").await.expect("removed");
    wait_bound(&scene, 0).await;
    wait::until(LIMIT, "the harness sees that the hook is gone", || async {
        scene.send(&id, "three").await;
        scene.idle(&id).await;
        outcomes(&scene.events(&id).await).last() == Some(&ResultKind::Ok)
    })
    .await;
    assert_eq!(scene.count("t::write"), 2);
    assert_eq!(heard.lock().expect("lock").len(), 1);
}
