//! What reaches a collector, and that a collector that is in trouble changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use teamster_protocol::{Event, SessionId, event::EndReason};
use teamster_testkit::{
    Collector,
    collector::{Span, Status},
    wait,
};

use crate::{
    operator::{LIMIT, session},
    world::{SIBLINGS, World},
};

/// A text that stands for a key and must be found nowhere.
const CANARY: &str = "canary-5f0c1d2e-must-not-be-seen";
/// All names that spans have, but for the model or function behind them.
const NAMES: [&str; 5] = ["invoke_agent", "chat", "execute_tool", "serve", "generate"];

async fn traced(collector: &Collector) -> World {
    let mut world = World::start().await;
    world.env = vec![
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
            collector.endpoint(),
        ),
        ("OTEL_METRICS_EXPORTER".to_owned(), "none".to_owned()),
    ];
    world
}

/// Waits until the collector has spans of which `is_enough` is true, and gives them all.
async fn spans(
    collector: &Collector,
    what: &str,
    is_enough: impl Fn(&[Span]) -> bool,
) -> Vec<Span> {
    wait::some(LIMIT, what, || {
        let spans = collector.spans();
        let enough = is_enough(&spans).then_some(spans);
        async move { enough }
    })
    .await
}

/// The spans of the trace in which the session's turn stands.
fn trace_of(spans: &[Span], id: &SessionId) -> Vec<Span> {
    let root = spans
        .iter()
        .find(|span| span.name == "invoke_agent" && says(span, "session") == id.as_str())
        .expect("the turn has a span");
    let is_same = |span: &&Span| span.trace_id == root.trace_id;
    spans.iter().filter(is_same).cloned().collect()
}

fn says<'a>(span: &'a Span, attribute: &str) -> &'a str {
    span.attributes.get(attribute).map_or("", String::as_str)
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    let is_it = |span: &&Span| span.name == name || span.name.starts_with(&format!("{name} "));
    spans.iter().filter(is_it).collect()
}

/// OBS-1: three calls at once under hooks, a kill in their middle, another process goes on: one trace, no span without its
/// parent, each with an end, a status, and usage where a model was asked.
#[tokio::test(flavor = "multi_thread")]
async fn obs_1_a_turn_is_one_trace_over_parallel_calls_hooks_a_kill_and_another_owner() {
    let collector = Collector::start();
    let world = traced(&collector).await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    world.outside.door.shut();
    let accepted = [world.owner.send(&id, "three reads").await];
    world.outside.door.reached(1, LIMIT).await;
    // Its owner has told the first generation, and both siblings of the call that waits have been served.
    spans(&collector, "the first half is told", |spans| {
        let served = named(spans, "serve").into_iter();
        named(spans, "chat").len() == 1
            && served
                .filter(|span| says(span, "function") == "fs::read")
                .count()
                == 2
    })
    .await;
    harness.kill().await;
    let _next = world.worker(&["harness"]).await;
    world.outside.door.open();
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    let all = spans(&collector, "the turn is told", |spans| {
        let served = named(spans, "serve").into_iter();
        !named(spans, "invoke_agent").is_empty()
            && named(spans, "generate").len() == 2
            && served
                .filter(|span| says(span, "function") == "router::chat")
                .count()
                == 2
    })
    .await;

    let trace = trace_of(&all, &id);
    assert_eq!(
        trace
            .iter()
            .filter(|span| says(span, "session") == id.as_str())
            .count(),
        all.iter()
            .filter(|span| says(span, "session") == id.as_str())
            .count(),
        "all that names the session stands in one trace"
    );
    assert_is_whole(&trace);
    let stored = evidence
        .commits
        .iter()
        .flat_map(|commit| &commit.events)
        .find_map(started);
    let root = named(&trace, "invoke_agent")[0];
    assert!(
        stored
            .expect("the log keeps the turn's place")
            .contains(&root.span_id),
        "the place in the log is the turn's"
    );
    assert_calls(&trace, root);
    assert_generations(&trace, root);
}

fn started(event: &Event) -> Option<String> {
    match event {
        Event::TurnStarted { trace, .. } => trace.as_ref().map(|trace| trace.context.clone()),
        _ => None,
    }
}

/// One top, each parent there, each id once, each with an end and a status, names of few kinds.
fn assert_is_whole(trace: &[Span]) {
    let mut by_id = BTreeMap::new();
    for span in trace {
        assert_eq!(
            by_id.insert(&span.span_id, span),
            None,
            "{span:#?} is told twice"
        );
        assert!(span.start > 0 && span.end >= span.start, "{span:#?}");
        assert_ne!(span.status, Status::Unset, "{span:#?}");
        let kind = span.name.split(' ').next().unwrap_or_default();
        assert!(NAMES.contains(&kind), "{}", span.name);
    }
    let tops: Vec<_> = trace.iter().filter(|span| span.parent.is_empty()).collect();
    assert_eq!(tops.len(), 1, "{tops:#?}");
    for span in trace.iter().filter(|span| !span.parent.is_empty()) {
        assert!(by_id.contains_key(&span.parent), "an orphan: {span:#?}");
    }
}

/// Each call was begun by both owners; what the first had open has failed, and the second's goes on from it.
fn assert_calls(trace: &[Span], root: &Span) {
    let calls = named(trace, "execute_tool");
    let ids: BTreeSet<_> = calls.iter().map(|span| says(span, "call")).collect();
    assert_eq!((calls.len(), ids.len()), (6, 3), "{calls:#?}");
    for id in ids {
        let of = |attempt: &str| {
            let mut both = calls.iter().filter(|span| says(span, "call") == id);
            *both
                .find(|span| says(span, "teamster.attempt") == attempt)
                .expect("each owner began it")
        };
        let (lost, done) = (of("0"), of("1"));
        assert_eq!((&lost.parent, &done.parent), (&root.span_id, &root.span_id));
        assert_eq!((lost.status, done.status), (Status::Error, Status::Ok));
        assert_eq!(says(lost, "error.type"), "harness.owner_lost");
        assert_eq!(done.links, std::slice::from_ref(&lost.span_id));
        for call in [lost, done] {
            let mut below = trace.iter().filter(|span| span.parent == call.span_id);
            // The second owner hears from memory what had ended; the functions outside tell no spans.
            let is_file = says(call, "gen_ai.tool.name").starts_with("fs::");
            let is_served_here = is_file && call == lost;
            assert_eq!(
                below.any(|span| span.name == "serve"),
                is_served_here,
                "{call:#?}"
            );
        }
    }
    let judged = named(trace, "serve").into_iter();
    let judged = judged.filter(|span| says(span, "function") == "approval::gate");
    assert_eq!(judged.count(), 3, "the hook was asked about each call");
}

fn assert_generations(trace: &[Span], root: &Span) {
    let chats = named(trace, "chat");
    assert_eq!(chats.len(), 2);
    for span in chats.iter().chain([&root]) {
        let tokens = says(span, "gen_ai.usage.input_tokens");
        assert!(
            tokens.parse::<u64>().is_ok_and(|tokens| tokens > 0),
            "{span:#?}"
        );
    }
    for (span, reason) in chats.iter().zip(["tool_calls", "stop"]) {
        assert_eq!(span.parent, root.span_id);
        assert_eq!(says(span, "gen_ai.request.model"), "test/model");
        assert_eq!(says(span, "gen_ai.response.finish_reasons"), reason);
        let mut below = trace.iter().filter(|below| below.parent == span.span_id);
        let served = below.find(|below| says(below, "function") == "router::chat");
        let served = served.expect("the router served it");
        assert!(
            named(trace, "generate")
                .iter()
                .any(|below| below.parent == served.span_id)
        );
    }
    assert_eq!(says(root, "teamster.status"), "completed");
}

/// A collector that takes connections and never answers costs its spans: the turn ends, and so does the process, when it is
/// told to.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_holds_up_neither_a_turn_nor_the_end() {
    let collector = Collector::silent();
    let mut world = traced(&collector).await;
    world
        .env
        .push(("OTEL_BSP_MAX_QUEUE_SIZE".to_owned(), "1".to_owned()));
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    let accepted = [world.owner.send(&id, "three reads").await];
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    world.verify(&id, &accepted).await;
    wait::until(LIMIT, "it is tried", || async {
        !collector.bytes().is_empty()
    })
    .await;
    harness.process.terminate();
    assert!(harness.process.ended(LIMIT).await.success());
    assert!(harness.log(&world).contains("telemetry.spans_lost"));
}

/// Variables that ask for what is not there are told, with their names, before anything starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_protocol_that_is_not_spoken_is_said_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_teamster"))
        .args(["worker", "router", "--nats", "nats://127.0.0.1:1", "--data"])
        .arg(folder.path())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in [
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "http/protobuf",
        "config.telemetry",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// A key of a provider and a key of the collector are in no span, no line of a log, no store and no output.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_in_no_span_no_line_and_no_store() {
    let collector = Collector::start();
    let mut world = traced(&collector).await;
    world.env.extend([
        ("TEST_KEY".to_owned(), CANARY.to_owned()),
        (
            "OTEL_EXPORTER_OTLP_HEADERS".to_owned(),
            format!("x-key={CANARY}"),
        ),
        ("TEAMSTER_LOG".to_owned(), "trace".to_owned()),
    ]);
    world.configure_key("env:TEST_KEY");
    let siblings = world.worker(&SIBLINGS).await;
    let harness = world.worker(&["harness"]).await;
    let id = session("s");
    let accepted = [world.owner.send(&id, "three reads").await];
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    world.verify(&id, &accepted).await;
    spans(&collector, "the turn is told", |spans| {
        !named(spans, "invoke_agent").is_empty()
    })
    .await;
    assert!(
        collector.heads().iter().all(|head| head.contains(CANARY)),
        "the collector was shown its key"
    );
    assert!(!holds(&collector.bytes()));
    for worker in [&siblings, &harness] {
        assert!(!worker.process.output().contains(CANARY));
        let log = worker.log(&world);
        assert!(log.contains("DEBUG"), "it was a talkative log");
        assert!(!log.contains(CANARY));
    }
    let store = world.nats.lock().await.store();
    let mut files = 0;
    for folder in [store.as_path(), world.data().as_path()] {
        visit(folder, &mut |path| {
            files += 1;
            let bytes = std::fs::read(path).unwrap_or_default();
            assert!(!holds(&bytes), "{}", path.display());
        });
    }
    assert!(files > 8, "the store was looked through");
}

fn holds(bytes: &[u8]) -> bool {
    bytes
        .windows(CANARY.len())
        .any(|window| window == CANARY.as_bytes())
}

fn visit(folder: &Path, look: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            visit(&path, look);
        } else {
            look(&path);
        }
    }
}
