//! A session worker that is killed while it builds its projection.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};
use teamster_mesh::{
    Connect, Mesh,
    connection::Call,
    topology::{Topology, ensure},
};
use teamster_protocol::{
    Event, FunctionId, Message, MessageId, Phase, Principal, id::WorkerName, input::TurnOptions,
};
use teamster_testkit::{Nats, Process, wait, written::Writer};

use super::place::{LIMIT, Place};

const SESSIONS: u64 = 20;
const COMMITS: u64 = 60;

async fn connect(nats: &Nats, name: &str) -> Mesh {
    let options = Connect {
        url: nats.url(),
        credentials: None,
    };
    let name = WorkerName::parse(name).expect("a name");
    Mesh::connect(&options, name).await.expect("a connection")
}

/// Logs of some megabytes.
async fn write(mesh: &Mesh) {
    let owner = Principal::parse("owner").expect("valid");
    for index in 0..SESSIONS {
        let mut writer = Writer::new(mesh, &format!("s{index}"));
        for n in 1..=COMMITS {
            let event = if n == 1 {
                Event::SessionCreated {
                    by: owner.clone(),
                    title: None,
                    workspace: None,
                    metadata: BTreeMap::new(),
                }
            } else {
                Event::MessageAdded {
                    message: Message::User {
                        id: MessageId::parse("msg_1").expect("valid"),
                        from: owner.clone(),
                        text: format!("{n} of {index}: {}", "word ".repeat(800)),
                    },
                    options: TurnOptions::default(),
                    appended: false,
                }
            };
            writer.commit(Phase::Idle, vec![event]).await;
        }
    }
}

async fn ask(operator: &Mesh, function: &str, request: &Value) -> Option<Value> {
    let id = FunctionId::parse(function).expect("an id");
    let mut call = Call::new(id, request.to_string());
    call.principal = Some(Principal::parse("owner").expect("valid"));
    let reply = operator.call(call).await.ok()?;
    serde_json::from_slice(&reply).ok()
}

/// What is asked once everything is there.
async fn answers(operator: &Mesh) -> Vec<Value> {
    let mut all = Vec::new();
    for (function, request) in [
        ("session::list", json!({"limit": 500})),
        (
            "session::messages",
            json!({"session_id": "s7", "limit": 1000}),
        ),
        (
            "session::search",
            json!({"query": "\"60 of\"", "limit": 200}),
        ),
    ] {
        let answer = wait::some(LIMIT, function, || ask(operator, function, &request)).await;
        all.push(answer);
    }
    all
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Killed in the middle of its transactions again and again, the worker goes on where its file is, and what it answers in the end is
/// what a worker answers that was never killed.
#[tokio::test]
async fn a_session_worker_killed_in_mid_batch_loses_and_doubles_nothing() {
    let place = Place::new();
    let nats = Nats::start().await;
    let topology = connect(&nats, "topology").await;
    ensure(&topology, &Topology { replicas: 1 })
        .await
        .expect("a topology");
    write(&connect(&nats, "harness").await).await;
    let url = nats.url();
    let start = |name: &str| {
        let command = place.command(&["worker", "session", "--nats", &url]);
        Process::spawn(command, &place.file(name))
    };
    let file = place.data().join("session.sqlite");
    let beside = place.data().join("session.sqlite-wal");
    for (kill, kilobytes) in [1, 200, 1000, 3000].into_iter().enumerate() {
        let mut worker = start(&format!("killed-{kill}.out"));
        wait::until(LIMIT, "the file grows", || async {
            length(&file) + length(&beside) > kilobytes * 1024
        })
        .await;
        worker.kill();
        worker.ended(LIMIT).await;
    }
    let operator = connect(&nats, "operator").await;
    let mut worker = start("whole.out");
    let killed = answers(&operator).await;
    worker.kill();
    worker.ended(LIMIT).await;
    for path in [&file, &beside] {
        let _ = std::fs::remove_file(path);
    }
    let _worker = start("new.out");
    let fresh = answers(&operator).await;
    assert_eq!(killed, fresh);
    let sessions = fresh[0]["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len() as u64, SESSIONS);
    assert!(sessions.iter().all(|one| one["commits"] == json!(COMMITS)));
}
