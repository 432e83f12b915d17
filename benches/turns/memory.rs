//! H6: the memory of everything that is needed, before and after a thousand sessions of one turn each.

use std::process::Command;

use futures::{StreamExt as _, stream};
use teamster_mesh::{Function, Worker, serve::serve};
use teamster_protocol::id::WorkerName;
use teamster_testkit::{Process, wait};

use crate::{
    model::{self, Model},
    rig::{LIMIT, LOOKUP, connect, contract, ready, send, server, session, wire},
    watch::Watch,
};

/// Sessions.
const SESSIONS: usize = 1000;
/// Turns at once.
const AT_ONCE: usize = 32;

/// Memory that no other process shares, in MiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// All workers in one process, before.
    pub(crate) workers_before: f64,
    /// All workers in one process, after.
    pub(crate) workers_after: f64,
    /// nats-server, before.
    pub(crate) server_before: f64,
    /// nats-server, after.
    pub(crate) server_after: f64,
}

/// Runs the sessions against one process of all workers and one server.
pub(crate) async fn run() -> Memory {
    let (nats, operator) = server(true).await;
    let model = Model::start(&wire()).await;
    let lookup = Function::new(contract(LOOKUP), |_, _: serde_json::Value| async {
        Ok(serde_json::json!({"value": "x".repeat(1000)}))
    });
    let name = WorkerName::parse("bench").expect("a worker's name");
    let worker = Worker::new(name, "Answers with one kilobyte.").function(lookup);
    let function = serve(connect(&nats, "bench").await, worker)
        .await
        .expect("serves");
    let data = tempfile::tempdir().expect("a folder");
    let config = crate::rig::text(&model);
    std::fs::write(data.path().join("config.yaml"), config).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_teamster"));
    command
        .args(["worker"])
        .args(teamster::host::WORKERS)
        .args(["--no-ensure", "--quiet", "--nats", &nats.url()]);
    command.arg("--data").arg(data.path());
    let process = Process::spawn(command, &data.path().join("workers.log"));
    ready(&operator, &[LOOKUP, "router::chat", "harness::send"]).await;
    let watch = Watch::start(&operator).await;
    // The first turns make connections and caches that stay.
    turns(&operator, &watch, "warm", AT_ONCE).await;
    let (workers_before, server_before) = (private(process.pid()), private(nats.pid()));
    turns(&operator, &watch, "memory", SESSIONS).await;
    let memory = Memory {
        workers_before,
        workers_after: private(process.pid()),
        server_before,
        server_after: private(nats.pid()),
    };
    drop(process);
    function.drain().await;
    memory
}

async fn turns(operator: &teamster_mesh::Mesh, watch: &Watch, name: &str, count: usize) {
    let message = model::message(1);
    stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, |number| {
            let (message, id) = (message.as_str(), session(&format!("{name}-{number}")));
            async move {
                let end = watch.end_of(&id);
                send(operator, &id, message).await.expect("accepted");
                wait::within(LIMIT, "the turn ends", end)
                    .await
                    .expect("an end");
            }
        })
        .await;
}

/// Private memory of a process, in MiB; 0 where the system does not tell.
fn private(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib: u64 = text
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter_map(|number| number.parse::<u64>().ok())
        .sum();
    kib as f64 / 1024.0
}
