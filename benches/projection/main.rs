//! The benchmark of the projection: `cargo bench --bench projection`, `-- --quick` for a tenth of it, `-- --json` for figures to keep.
//!
//! Owns: how long the session worker takes to build its file anew from a log of 100,000 commits in 1,000 sessions, how large the
//! file gets, and how long questions take then. The log is written by hand, in the form of turns with one call; the server does
//! not flush each write, because only reading is measured.
//!
//! Never: an expectation. A slow machine fails nothing.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark is a program for a terminal, and a failed step ends it"
)]

mod written;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use teamster_core::turn::{State, fold::Fold};
use teamster_mesh::{
    Connect, Mesh,
    connection::Call,
    serve::serve,
    topology::{Topology, ensure},
};
use teamster_protocol::{
    FunctionId, Principal, SessionId, function::session::StatusReply, id::WorkerName,
};
use teamster_session::{Config, worker};
use teamster_testkit::{Nats, wait};

/// How long a build may take.
const LIMIT: Duration = Duration::from_mins(20);
/// The session whose loading is measured.
const LONG: &str = "long";
/// Its messages.
const LONG_MESSAGES: u64 = 10_000;
/// How often each question is asked.
const ASKED: usize = 21;

async fn connect(nats: &Nats, name: &str) -> Mesh {
    let options = Connect {
        url: nats.url(),
        credentials: None,
    };
    let name = WorkerName::parse(name).expect("a name");
    Mesh::connect(&options, name).await.expect("a connection")
}

async fn ask(operator: &Mesh, function: &str, request: &Value) -> Value {
    let id = FunctionId::parse(function).expect("an id");
    let mut call = Call::new(id, request.to_string());
    call.principal = Some(Principal::parse("owner").expect("a principal"));
    let reply = operator.call(call).await.expect("an answer");
    serde_json::from_slice(&reply).expect("JSON")
}

/// The middle of how long a question takes, in milliseconds.
async fn latency(operator: &Mesh, function: &str, request: &Value) -> f64 {
    let mut times = Vec::new();
    for _ in 0..ASKED {
        let began = Instant::now();
        ask(operator, function, request).await;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times.get(ASKED / 2).copied().unwrap_or_default()
}

async fn status(operator: &Mesh) -> StatusReply {
    let reply = ask(operator, "session::status", &json!({})).await;
    serde_json::from_value(reply).expect("a status")
}

/// The middle of how long an owner takes to read and fold the long session from its log, in milliseconds.
async fn load(mesh: &Mesh) -> f64 {
    let session = SessionId::parse(LONG).expect("an id");
    let mut times = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let tail = mesh.log().tail(&session).await.expect("a tail");
        let tail = tail.expect("a commit").seq;
        let mut fold = Fold::new(State::new(session.clone()));
        for stored in mesh.log().read(&session, 0, tail).await.expect("a log") {
            fold.take(&stored.body, stored.seq);
        }
        let state = fold.finish().expect("it folds");
        times.push(began.elapsed().as_secs_f64() * 1e3);
        assert_eq!(state.transcript.len() as u64, LONG_MESSAGES);
    }
    times.sort_by(f64::total_cmp);
    times.get(2).copied().unwrap_or_default()
}

#[tokio::main]
async fn main() {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let sessions = if has("--quick") { 100 } else { 1000 };
    let nats = Nats::start().await;
    let topology = connect(&nats, "topology").await;
    ensure(&topology, &Topology { replicas: 1 })
        .await
        .expect("a topology");
    let harness = connect(&nats, "harness").await;
    let began = Instant::now();
    let log = written::write(&harness, sessions).await;
    let wrote = began.elapsed();
    let one_long = written::write_long(&harness, LONG, LONG_MESSAGES).await;
    let loaded = load(&harness).await;
    let dir = tempfile::tempdir().expect("a folder");
    let operator = connect(&nats, "operator").await;

    let mesh = connect(&nats, "session").await;
    let began = Instant::now();
    let config = Config {
        file: Some(dir.path().join("session.sqlite")),
    };
    let served = serve(mesh, worker(&config).expect("a worker"))
        .await
        .expect("served");
    let built = wait::some(LIMIT, "the projection is built", || async {
        let now = status(&operator).await;
        let written = log.commits + one_long.commits;
        (now.behind == 0 && now.commits >= written).then_some(now)
    })
    .await;
    let took = began.elapsed();
    let one = json!({"session_id": "bench-7"});
    let mut questions = Vec::new();
    for (name, function, request) in [
        ("list of 50", "session::list", json!({})),
        ("one session", "session::get", one.clone()),
        ("a transcript", "session::messages", one.clone()),
        ("a session's events", "session::events", one),
        ("a rare word", "session::search", json!({"query": "needle"})),
        (
            "a word of every answer",
            "session::search",
            json!({"query": "answer"}),
        ),
        (
            "costs by model and day",
            "session::cost",
            json!({"by": ["model", "day"]}),
        ),
    ] {
        questions.push((name, latency(&operator, function, &request).await));
    }
    served.drain().await;
    let rate = built.commits as f64 / took.as_secs_f64();
    if has("--json") {
        let questions: serde_json::Map<String, Value> = questions
            .into_iter()
            .map(|(name, ms)| (name.to_owned(), json!(ms)))
            .collect();
        println!(
            "{}",
            json!({
                "commits": built.commits, "sessions": built.sessions, "log_bytes": log.bytes,
                "seconds": took.as_secs_f64(), "commits_per_second": rate, "file_bytes": built.file_bytes,
                "written_in_seconds": wrote.as_secs_f64(), "questions_ms": questions,
                "load_of_10000_messages_ms": loaded,
            })
        );
        return;
    }
    println!(
        "{} commits in {} sessions ({:.1} MB of log)",
        built.commits,
        built.sessions,
        log.bytes as f64 / 1e6
    );
    println!("built in {:.2} s: {rate:.0} commits/s", took.as_secs_f64());
    println!("file     {:.1} MB", built.file_bytes as f64 / 1e6);
    println!(
        "a session of {LONG_MESSAGES} messages, {} commits, {:.1} MB: loaded from its log in {loaded:.0} ms",
        one_long.commits,
        one_long.bytes as f64 / 1e6
    );
    for (name, ms) in questions {
        println!("{name:<24} {ms:>8.2} ms");
    }
}
