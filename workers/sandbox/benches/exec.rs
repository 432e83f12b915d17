//! What isolation costs: `cargo bench -p teamster-sandbox --bench exec`.
//!
//! Owns: `sandbox::exec` of `true` over the mesh, beside a plain start of `true`, the same by bubblewrap where it is
//! installed, and a call of a file function, which costs the way and nothing else; in alternating rounds of one run. What
//! counts are ratios.
//!
//! Never: an expectation. A slow machine fails nothing.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a benchmark is a program for a terminal, and a failed step ends it"
)]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use teamster_mesh::{
    Connect, Mesh,
    connection::Call,
    serve::serve,
    topology::{Topology, ensure},
};
use teamster_protocol::{FunctionId, id::WorkerName};
use teamster_sandbox::{Config, worker};
use teamster_testkit::Nats;

/// Rounds; each measures every row once, so that a burst of other work meets all of them.
const ROUNDS: usize = 200;
/// Rounds before counting.
const WARM: usize = 10;

/// What bubblewrap is asked for: the same namespaces and about the same root.
const BWRAP: &[&str] = &[
    "--unshare-all",
    "--unshare-user",
    "--disable-userns",
    "--new-session",
    "--die-with-parent",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "true",
];

struct Rig {
    caller: Mesh,
    work: tempfile::TempDir,
    bwrap: Option<PathBuf>,
}

impl Rig {
    async fn call(&self, id: &str, body: Value) -> Value {
        let mut call = Call::new(FunctionId::parse(id).expect("an id"), body.to_string());
        call.workspace = Some(self.work.path().to_str().expect("text").to_owned());
        call.timeout = Duration::from_secs(30);
        let reply = self.caller.call(call).await.expect("an answer");
        serde_json::from_slice(&reply).expect("JSON")
    }

    /// One round: each row's time.
    async fn round(&self) -> Vec<(&'static str, Duration)> {
        let mut row = Vec::new();
        let began = Instant::now();
        run(Path::new("/bin/true"), &[]);
        row.push(("fork + exec", began.elapsed()));
        if let Some(bwrap) = &self.bwrap {
            let began = Instant::now();
            run(bwrap, BWRAP);
            row.push(("bubblewrap", began.elapsed()));
        }
        let began = Instant::now();
        let reply = self.call("sandbox::exec", json!({"argv": ["true"]})).await;
        row.push(("sandbox::exec", began.elapsed()));
        assert_eq!(reply["status"]["code"], 0, "{reply}");
        let began = Instant::now();
        self.call("fs::list", json!({})).await;
        row.push(("fs::list (the way)", began.elapsed()));
        row
    }
}

fn run(program: &Path, arguments: &[&str]) {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(
        status.expect("a process").success(),
        "{}",
        program.display()
    );
}

async fn join(nats: &Nats, worker: &str) -> Mesh {
    let options = Connect {
        url: nats.url(),
        credentials: None,
    };
    let name = WorkerName::parse(worker).expect("a name");
    Mesh::connect(&options, name).await.expect("connected")
}

async fn measure() {
    let nats = Nats::start().await;
    let caller = join(&nats, "harness").await;
    ensure(&caller, &Topology { replicas: 1 })
        .await
        .expect("the streams");
    let config = Config {
        helper: Some(PathBuf::from(env!("CARGO_BIN_EXE_teamster-sandbox-stage"))),
        ..Config::default()
    };
    let _serving = serve(join(&nats, "sandbox").await, worker(config))
        .await
        .expect("served");
    let search = std::env::var_os("PATH").unwrap_or_default();
    let bwrap = std::env::split_paths(&search)
        .map(|dir| dir.join("bwrap"))
        .find(|path| path.exists());
    if bwrap.is_none() {
        println!("bubblewrap is not installed; its row is left out");
    }
    let rig = Rig {
        caller,
        work: tempfile::tempdir().expect("a workspace"),
        bwrap,
    };
    let mut rows: Vec<(&str, Vec<Duration>)> = Vec::new();
    for round in 0..WARM + ROUNDS {
        for (at, (name, took)) in rig.round().await.into_iter().enumerate() {
            if rows.len() <= at {
                rows.push((name, Vec::new()));
            }
            if let Some((_, all)) = rows.get_mut(at).filter(|_| round >= WARM) {
                all.push(took);
            }
        }
    }
    print(&mut rows);
}

fn print(rows: &mut [(&str, Vec<Duration>)]) {
    let mut floor = None;
    println!(
        "{:<20} {:>10} {:>10} {:>14}",
        "", "p50 ms", "p99 ms", "of fork+exec"
    );
    for (name, all) in rows {
        all.sort_unstable();
        let at = |percent: usize| {
            let index = (all.len() * percent / 100).min(all.len().saturating_sub(1));
            all.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3
        };
        let half = at(50);
        let floor = *floor.get_or_insert(half);
        println!(
            "{name:<20} {half:>10.2} {:>10.2} {:>12.1} x",
            at(99),
            half / floor
        );
    }
}

fn main() {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(measure());
}
