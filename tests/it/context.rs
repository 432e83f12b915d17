//! What a model gets to see, over all workers: windows that are too small, results that are too long, a worker that is away.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::{Value, json};
use teamster_core::context;
use teamster_mesh::{Function, Worker};
use teamster_protocol::{
    BlobRef, CallId, Contract, Event, Fault, Message, SessionId, Visibility,
    event::EndReason,
    function::{
        context::{AssembleReply, AssembleRequest, Plan},
        router::{ChatRequest, Completion, CompletionError, ErrorKind},
    },
    hook::{Binding, Mutations, Point, Request, Stage, Verdict},
    input::{Decision, TurnOptions},
    limits,
    message::StopReason,
    usage::Usage,
};

use crate::{
    bounds::{big, offering},
    scene::{Gate, LIMIT, Parts, Scene, calls, completion, id, name, results, says, session},
};

/// The context worker for a model with a window of `tokens`.
fn context(tokens: u64) -> Worker {
    let config = teamster_context::Config {
        windows: BTreeMap::from([("test/model".to_owned(), tokens)]),
        ..teamster_context::Config::default()
    };
    teamster_context::worker(&config).expect("a worker")
}

async fn scene_of(
    workers: Vec<Worker>,
    model: impl Fn(&ChatRequest) -> Completion + Send + Sync + 'static,
) -> Scene {
    let mut parts = Parts::new(model);
    parts.workers = workers;
    Scene::start(parts).await
}

/// A scene with the context worker and functions that answer much.
async fn scene(
    tokens: u64,
    model: impl Fn(&ChatRequest) -> Completion + Send + Sync + 'static,
) -> Scene {
    let scene = scene_of(vec![context(tokens), big()], model).await;
    scene.wait_for(&["context::read", "big::read"]).await;
    scene
}

/// A call that no call before it in the turn is equal to.
fn reads(request: &ChatRequest, bytes: usize) -> Completion {
    let times = bytes + results(request).len();
    calls(&[("big::read", json!({"unit": "x", "times": times}))])
}

fn everything() -> TurnOptions {
    offering(&["t::*", "big::*", "context::read"])
}

/// Estimated tokens of a request.
fn tokens(request: &ChatRequest) -> u64 {
    let tools = serde_json::to_vec(&request.tools).expect("encodes").len() as u64;
    let messages = request
        .messages
        .iter()
        .map(|message| context::of_message(message));
    let prompt = request.system_prompt.as_deref().unwrap_or_default();
    context::of_text(prompt) + context::of_bytes(tools) + messages.sum::<u64>()
}

fn requests(scene: &Scene) -> Vec<ChatRequest> {
    scene.requests.lock().expect("lock").clone()
}

fn wholes(events: &[Event]) -> Vec<(CallId, BlobRef)> {
    let whole = |event: &Event| match event {
        Event::CallFinished {
            call,
            whole: Some(whole),
            ..
        } => Some((call.clone(), *whole)),
        _ => None,
    };
    events.iter().filter_map(whole).collect()
}

fn failed(reason: &EndReason) -> (&str, &str) {
    match reason {
        EndReason::Failed { code, message } => (code, message),
        other => panic!("{other:?}"),
    }
}

fn refusal() -> Completion {
    Completion {
        error: Some(CompletionError {
            kind: ErrorKind::ContextOverflow,
            message: "maximum context length is 2048 tokens".to_owned(),
            hint: None,
        }),
        ..completion(Vec::new(), StopReason::Error)
    }
}

/// CTX-2: one result of three times the window, and then a send: each request is below the window and is answered.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_2_a_result_of_three_windows_is_answered_and_so_is_what_follows() {
    let window = 8192;
    let scene = scene(window, |request| {
        if results(request).is_empty() {
            reads(request, 3 * 8192 * 4)
        } else {
            says("done")
        }
    })
    .await;
    let id = session("s");
    for turns in 1..=4 {
        scene.send_options(&id, "read it", everything()).await;
        let reasons = scene.ended(&id, turns).await;
        assert_eq!(reasons[turns - 1], EndReason::Completed);
    }
    for request in requests(&scene) {
        let output = request.max_output_tokens.expect("a bound");
        assert!(
            tokens(&request) + output <= window,
            "{} and {output}",
            tokens(&request)
        );
    }
    let wholes = wholes(&scene.events(&id).await);
    assert_eq!(wholes.len(), 4);
    assert!(wholes.iter().all(|(_, whole)| whole.bytes == 3 * 8192 * 4));
}

/// CTX-2: what is masked is written down with the answer that it was masked for, many at once, and stays masked.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_2_masks_are_stored_with_the_answer_in_strides() {
    let scene = scene(12_000, |request| {
        if results(request).len() < 14 {
            reads(request, 3000)
        } else {
            says("done")
        }
    })
    .await;
    let id = session("s");
    scene.send_options(&id, "read on", everything()).await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let commits = scene.commits(&id).await;
    let masking: Vec<&Vec<CallId>> = commits
        .iter()
        .flat_map(|commit| commit.events.windows(2))
        .filter_map(|pair| match pair {
            [
                Event::ContextMasked {
                    calls,
                    tokens_before,
                    tokens_after,
                },
                Event::GenerationFinished { .. },
            ] => {
                assert!(tokens_after < tokens_before);
                Some(calls)
            }
            _ => None,
        })
        .collect();
    let count = commits
        .iter()
        .flat_map(|commit| &commit.events)
        .filter(|event| matches!(event, Event::ContextMasked { .. }))
        .count();
    assert_eq!(masking.len(), count);
    assert!((1..=4).contains(&count), "{count}");
    assert!(masking.iter().all(|calls| calls.len() > 1), "{masking:?}");
    let last = requests(&scene).pop().expect("a request");
    let marked = results(&last)
        .iter()
        .filter(|text| {
            text.starts_with("[the result of big::read, 30")
                && text.contains(" bytes, is left out here")
        })
        .count();
    assert_eq!(
        marked,
        masking.iter().map(|calls| calls.len()).sum::<usize>()
    );
}

/// CTX-1: a system prompt that fills the window is one failure that says so; no model is asked.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_1_an_overflow_is_one_bounded_failure_with_a_list() {
    let scene = scene(2000, |_| says("never")).await;
    let id = session("s");
    let options = TurnOptions {
        system_prompt: Some("p".repeat(7600)),
        ..everything()
    };
    scene.send_options(&id, "hello", options).await;
    let reasons = scene.ended(&id, 1).await;
    let (code, message) = failed(&reasons[0]);
    assert_eq!(code, "context.overflow");
    for part in [
        "window 2000",
        "system prompt 1900",
        "function schemas",
        "user messages",
    ] {
        assert!(message.contains(part), "{message}");
    }
    scene.idle(&id).await;
    assert_eq!(
        (requests(&scene).len(), scene.ended(&id, 1).await.len()),
        (0, 1)
    );
}

/// CTX-1, CTX-2: a provider whose window is smaller than was believed refuses; each further request is half as large, and
/// after a few the turn ends by name. With the worker and without it.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_1_a_provider_that_refuses_is_asked_a_few_times_and_ever_less() {
    for workers in [vec![context(200_000), big()], vec![big()]] {
        let scene = scene_of(workers, |request| {
            let has_answer = request
                .messages
                .iter()
                .filter(|message| matches!(message.as_ref(), Message::User { .. }))
                .count();
            match results(request).len() {
                0 if has_answer == 1 => {
                    calls(&vec![
                        ("big::read", json!({"unit": "y", "times": 20_000}));
                        3
                    ])
                }
                _ if has_answer == 1 && tokens(request) > 5000 => refusal(),
                _ if has_answer == 1 => says("it fits"),
                _ => refusal(),
            }
        })
        .await;
        scene.wait_for(&["big::read"]).await;
        let id = session("s");
        scene.send_options(&id, "go", offering(&["big::*"])).await;
        assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
        let sizes: Vec<u64> = requests(&scene).iter().skip(1).map(tokens).collect();
        assert!(sizes.len() > 1 && sizes.len() <= 4, "{sizes:?}");
        assert!(sizes.is_sorted_by(|one, two| one > two), "{sizes:?}");

        scene.requests.lock().expect("lock").clear();
        scene.send(&id, "and now").await;
        let reasons = scene.ended(&id, 2).await;
        assert_eq!(failed(&reasons[1]).0, "context.overflow");
        let asked = requests(&scene).len();
        assert!((2..=4).contains(&asked), "{asked}");
        let status = scene.status(&id).await;
        assert_eq!((status.status.as_str(), status.queued), ("idle", 0));
    }
}

/// CTX-3: a rule of the first message and the exact words of a pending approval survive everything that is masked.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_3_rules_and_pending_approvals_survive_masking() {
    let scene = scene(9000, |request| match results(request).len() {
        count if count < 10 => reads(request, 3500),
        10 => calls(&[("t::destroy", json!({"what": "the old logs"}))]),
        11 => reads(request, 3500),
        _ => says("done"),
    })
    .await;
    let id = session("s");
    let rule = "Rule: never call x. Now go on.";
    scene.send_options(&id, rule, everything()).await;
    let pending = scene.pending().await;
    assert_eq!(pending.arguments.as_str(), r#"{"what":"the old logs"}"#);
    let is_masking = |event: &Event| matches!(event, Event::ContextMasked { .. });
    assert!(scene.events(&id).await.iter().any(is_masking));
    let resolved = scene.resolve(&pending, Decision::Approve).await;
    resolved.expect("is still pending");
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::destroy"), 1);
    for request in requests(&scene) {
        let is_rule =
            |message: &Message| matches!(message, Message::User { text, .. } if text == rule);
        assert!(request.messages.iter().any(|message| is_rule(message)));
    }
    let last = requests(&scene).pop().expect("a request");
    let asked = serde_json::to_string(&last.messages).expect("encodes");
    assert!(
        asked.contains("the old logs"),
        "calls are sent word for word"
    );
}

/// CTX-5: an id from an earlier turn, masked meanwhile, is read again by the call that the mark names; another session cannot.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_5_a_masked_id_is_read_again() {
    let scene = scene(9000, |request| {
        let users = request
            .messages
            .iter()
            .filter(|message| matches!(message.as_ref(), Message::User { .. }))
            .count();
        let done = results(request);
        if users == 1 {
            return match done.len() {
                0 => calls(&[("t::read", json!({"id": 8842, "pad": "p".repeat(2000)}))]),
                count if count < 10 => reads(request, 3500),
                _ => says("the id is known"),
            };
        }
        let masked = request
            .messages
            .iter()
            .find_map(|message| match message.as_ref() {
                Message::FunctionResult { call, text, .. }
                    if text.starts_with("[the result of t::read") =>
                {
                    assert!(text.contains(call.as_str()), "{text}");
                    Some(call.clone())
                }
                _ => None,
            });
        match (done.first(), masked) {
            (None, Some(call)) => calls(&[("context::read", json!({"call": call}))]),
            (Some(text), _) if text.contains("8842") => says("8842"),
            (first, _) => says(&format!("not found: {first:?}")),
        }
    })
    .await;
    let id = session("s");
    scene.send_options(&id, "find the id", everything()).await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    scene.send_options(&id, "which id?", everything()).await;
    scene.ended(&id, 2).await;
    let events = scene.events(&id).await;
    let answer = events.iter().rev().find_map(|event| match event {
        Event::GenerationFinished { message, .. } => message.clone(),
        _ => None,
    });
    let answer = serde_json::to_string(&answer).expect("encodes");
    assert!(answer.contains(r#""text":"8842""#), "{answer}");
}

/// CTX-4: a server that cut the prompt without a word is found out by its own count, and its answer is not used.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_4_a_prompt_that_the_server_cut_ends_the_turn() {
    let scene = scene_of(vec![context(200_000)], |_| Completion {
        usage: Usage {
            input: 2051,
            output: 5,
            ..Usage::default()
        },
        ..calls(&[("t::write", json!({"from": "half a prompt"}))])
    })
    .await;
    let id = session("s");
    let options = TurnOptions {
        system_prompt: Some("rules and rules ".repeat(3750)),
        ..offering(&["t::*"])
    };
    scene.send_options(&id, "go", options).await;
    let reasons = scene.ended(&id, 1).await;
    let (code, message) = failed(&reasons[0]);
    assert_eq!(code, "context.truncated");
    assert!(
        message.contains("2051") && message.contains("num_ctx"),
        "{message}"
    );
    assert_eq!((requests(&scene).len(), scene.count("t::write")), (1, 0));
}

/// A context worker that goes away in mid-turn is not missed for long: the turn goes on with what the log says.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_when_the_context_worker_goes_away() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|request| {
        if results(request).len() < 3 {
            reads(request, 30_000)
        } else {
            says("done")
        }
    });
    parts.model_gate = Some(Arc::clone(&gate));
    parts.workers = vec![context(40_000), big()];
    let mut scene = Scene::start(parts).await;
    scene.wait_for(&["context::assemble", "big::read"]).await;
    let id = session("s");
    scene.send_options(&id, "go", everything()).await;
    gate.reached(1).await;
    scene.drain("context").await;
    gate.open();
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let last = requests(&scene).pop().expect("a request");
    assert!(
        results(&last)
            .iter()
            .all(|text| (30_000..30_003).contains(&text.len())),
        "raw history"
    );
}

/// A context worker that is asked and never answers costs a bounded wait, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_context_worker_that_is_silent_holds_no_turn_up() {
    let asked = Arc::new(AtomicU32::new(0));
    let silent = planner(&asked, || Box::pin(std::future::pending()));
    let scene = scene_of(vec![silent], |request| {
        if results(request).len() < 2 {
            calls(&[("t::read", json!({"n": results(request).len()}))])
        } else {
            says("done")
        }
    })
    .await;
    scene.wait_for(&["context::assemble"]).await;
    let id = session("s");
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "it is not asked at each step"
    );
}

/// Small requests ask for no plan once the window is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_request_asks_for_no_plan() {
    let asked = Arc::new(AtomicU32::new(0));
    let planner = planner(&asked, || {
        let plan = Plan {
            result_bytes_max: 32_768,
            window: 100_000,
            usable: 90_000,
            tokens_before: 500,
            tokens_after: 500,
            ..Plan::default()
        };
        Box::pin(async move {
            Ok(AssembleReply {
                plan,
                messages: None,
            })
        })
    });
    let scene = scene_of(vec![planner, big()], |request| {
        match results(request).len() {
            0 => calls(&[("t::read", json!({}))]),
            1 if request.messages.len() > 5 => reads(request, 30_000),
            count if (2..8).contains(&count) => reads(request, 30_000),
            _ => says("done"),
        }
    })
    .await;
    scene.wait_for(&["context::assemble", "big::read"]).await;
    let id = session("s");
    for turns in 1..=2 {
        scene.send_options(&id, "go", everything()).await;
        assert_eq!(
            scene.ended(&id, turns).await[turns - 1],
            EndReason::Completed
        );
    }
    // The first request asks, the six small ones that follow do not, and those above half of the window do again.
    let asked = asked.load(Ordering::SeqCst);
    assert!(
        asked > 1 && (asked as usize) < requests(&scene).len() - 4,
        "{asked}"
    );
}

type Planned = std::pin::Pin<Box<dyn Future<Output = Result<AssembleReply, Fault>> + Send>>;

/// A worker in the place of the context worker.
fn planner(asked: &Arc<AtomicU32>, answer: fn() -> Planned) -> Worker {
    let mut contract =
        Contract::new::<AssembleRequest, AssembleReply>(id("context::assemble"), "Plans.");
    contract.visibility = Visibility::Worker;
    let asked = Arc::clone(asked);
    let function = Function::new(contract, move |_, _: AssembleRequest| {
        asked.fetch_add(1, Ordering::SeqCst);
        answer()
    });
    Worker::new(name("context"), "Plans.").function(function)
}

/// A value that was stored by an owner which died before its commit is the same value for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_stored_before_a_crash_is_named_by_who_comes_next() {
    let scene = scene(50_000, |request| match results(request).first() {
        None => reads(request, 100_000),
        Some(_) => says("done"),
    })
    .await;
    let blobs = scene.operator.blobs();
    let early = blobs
        .put(vec![b'x'; 100_000].into())
        .await
        .expect("is stored");
    let id: SessionId = session("s");
    scene.send_options(&id, "go", everything()).await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let wholes = wholes(&scene.events(&id).await);
    assert_eq!(
        wholes.iter().map(|(_, whole)| *whole).collect::<Vec<_>>(),
        [early]
    );
    assert!(blobs.get(&early).await.expect("readable").is_some());
}

/// What a hook has not seen is not kept: a guard that withholds secrets sees all that can be read later.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_a_hook_looks_at_is_kept_as_far_as_it_was_seen() {
    let mut contract = Contract::new::<Request, Verdict>(id("guard::look"), "Looks.");
    contract.visibility = Visibility::Worker;
    let look = Function::new(contract, |_, request: Request| async move {
        assert!(request.result.expect("a result").text.len() <= limits::RESULT_BYTES_MAX);
        Ok(Verdict::Continue {
            mutations: Mutations::default(),
            annotation: None,
            judgement: None,
        })
    });
    let guard = Worker::new(name("guard"), "Looks.")
        .function(look)
        .hook(Binding {
            point: Point::PostTrigger,
            function: id("guard::look"),
            priority: 0,
            stage: Stage::Judge,
            functions: Vec::new(),
            timeout_ms: None,
            on_error: None,
        });
    let scene = scene_of(
        vec![context(50_000), big(), guard],
        |request| match results(request).first() {
            None => reads(request, 100_000),
            Some(text) => says(text.get(16_000..16_500).unwrap_or_default()),
        },
    )
    .await;
    scene.wait_for(&["big::read", "guard::look"]).await;
    let registry = scene.operator.registry().await.expect("registry");
    let is_bound = |catalog: &teamster_mesh::registry::Catalog| {
        catalog.hooks_at(Point::PostTrigger).next().is_some()
    };
    registry.wait(LIMIT, is_bound).await;
    let id = session("s");
    scene.send_options(&id, "go", everything()).await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let events = scene.events(&id).await;
    assert_eq!(wholes(&events), []);
    let texts: Vec<Value> = events
        .iter()
        .filter(|event| matches!(event, Event::CallFinished { .. }))
        .map(|event| serde_json::to_value(event).expect("encodes"))
        .collect();
    let text = texts[0]["text"].as_str().expect("a text");
    assert!(
        text.contains("bytes left out, which were not kept"),
        "{}",
        text.len()
    );
}
