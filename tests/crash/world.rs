//! One mesh of real processes for one test: nats-server, the model, the functions outside, and any number of workers, each
//! process behind a gate of its own.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;
use teamster::client::Client;
use teamster_mesh::{
    Connect, Mesh,
    topology::{self, Topology},
};
use teamster_protocol::{
    Commit, Event, SessionId,
    event::EndReason,
    function::{
        approval::{Pending, ResolveRequest},
        harness::{SendReply, SendRequest},
    },
    id::WorkerName,
    input::{Decision, SessionOptions, TurnOptions},
    policy::FunctionPolicy,
};
use teamster_testkit::{Nats, Process, Proxy, wait};
use tempfile::TempDir;

use crate::{model::Model, outside::Outside};

/// How long anything may take on a busy machine; what takes a lease of last resort is within it.
pub const LIMIT: Duration = Duration::from_secs(90);
/// How long one request of the operator is given before it is made again.
const TRY: Duration = Duration::from_secs(8);
/// All workers but the harness.
pub const SIBLINGS: [&str; 3] = ["router", "approval-gate", "sandbox"];

pub struct World {
    pub nats: Nats,
    pub model: Model,
    pub outside: Outside,
    pub client: Client,
    root: TempDir,
}

/// Workers in a process of their own.
pub struct Worker {
    pub process: Process,
    pub proxy: Proxy,
}

pub fn session(text: &str) -> SessionId {
    SessionId::parse(text).expect("valid")
}

impl World {
    /// Everything but the product's own processes.
    pub async fn start() -> Self {
        Self::start_with(&json!({})).await
    }

    /// The same, with values of the section `harness`.
    pub async fn start_with(harness: &serde_json::Value) -> Self {
        let nats = Nats::start().await;
        let root = tempfile::tempdir().expect("a directory");
        let model = Model::start().await;
        let connect = Connect { url: nats.url(), credentials: None };
        let name = |text: &str| WorkerName::parse(text).expect("valid");
        let client = Client::connect(&connect).await.expect("connects");
        topology::ensure(client.mesh(), &Topology { replicas: 1 }).await.expect("ensures");
        let mesh = Mesh::connect(&connect, name("t")).await.expect("connects");
        let outside = Outside::serve(mesh, root.path()).await;
        let world = Self { nats, model, outside, client, root };
        std::fs::create_dir(world.data()).expect("a data directory");
        std::fs::create_dir(world.workspace()).expect("a workspace");
        std::fs::write(world.workspace().join("notes.md"), "notes\n").expect("a file");
        std::fs::write(world.data().join("config.yaml"), configuration(&world.model, harness)).expect("a configuration");
        world
    }

    pub fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// Starts workers in a process of their own and waits until they serve.
    pub async fn worker(&self, names: &[&str]) -> Worker {
        let proxy = Proxy::start(self.nats.address()).await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_teamster"));
        command
            .arg("worker")
            .args(names)
            .args(["--nats", &proxy.url(), "--no-ensure", "--data"])
            .arg(self.data())
            .current_dir(self.workspace())
            .env_remove("TEAMSTER_CREDS")
            .env_remove("TEAMSTER_MODEL")
            .stdin(Stdio::null());
        let output = tempfile::Builder::new().prefix("worker-").tempfile_in(self.root.path()).expect("a file");
        let (_, output) = output.keep().expect("kept");
        let mut process = Process::spawn(command, &output);
        wait::until(LIMIT, "the workers serve", || {
            let text = process.output();
            assert!(process.is_running(), "a worker ended: {text}");
            async move { text.contains("stop with Ctrl-C") }
        })
        .await;
        Worker { process, proxy }
    }

    /// Sends a message, with a key, until it is accepted.
    pub async fn send(&self, session: &SessionId, text: &str) -> SendReply {
        let request = SendRequest {
            session_id: Some(session.clone()),
            message: text.to_owned(),
            idempotency_key: Some(text.to_owned()),
            session: SessionOptions {
                workspace: Some(self.workspace().display().to_string()),
                ..SessionOptions::default()
            },
            options: TurnOptions {
                functions: Some(FunctionPolicy {
                    allow: vec!["t::*".to_owned(), "fs::*".to_owned()],
                    ..FunctionPolicy::default()
                }),
                ..TurnOptions::default()
            },
        };
        wait::some(LIMIT, "a message is accepted", || async {
            tokio::time::timeout(TRY, self.client.send(request.clone())).await.ok()?.ok()
        })
        .await
    }

    /// The session's commits as far as they can be read now.
    pub async fn commits(&self, session: &SessionId) -> Option<Vec<Commit>> {
        let log = self.client.mesh().log();
        let upto = log.tail(session).await.ok()?.map_or(0, |stored| stored.seq);
        let stored = log.read(session, 0, upto).await.ok()?;
        Some(stored.iter().map(|stored| Commit::decode(&stored.body).expect("a commit")).collect())
    }

    /// How many commits the session has.
    pub async fn count(&self, session: &SessionId) -> usize {
        wait::some(LIMIT, "the log is read", || self.commits(session)).await.len()
    }

    /// Waits until the session's events satisfy `wanted`.
    pub async fn until(&self, session: &SessionId, description: &str, wanted: impl Fn(&[Event]) -> bool) {
        let description = format!("{session}: {description}");
        wait::until(LIMIT, &description, || async {
            let events: Vec<Event> = self.commits(session).await.unwrap_or_default().into_iter().flat_map(|c| c.events).collect();
            wanted(&events)
        })
        .await;
    }

    /// Waits for a request for a decision of the session.
    pub async fn pending(&self, session: &SessionId) -> Pending {
        wait::some(LIMIT, "a request for a decision", || self.look_for_pending(session)).await
    }

    async fn look_for_pending(&self, session: &SessionId) -> Option<Pending> {
        let pending = tokio::time::timeout(TRY, self.client.pending(Some(session))).await.ok()?.ok()?;
        pending.into_iter().next()
    }

    /// Approves until it is known that a decision counts.
    pub async fn approve(&self, pending: &Pending) {
        let request = ResolveRequest {
            approval_id: pending.approval_id.clone(),
            digest: pending.digest,
            decision: Decision::Approve,
            channel: "crash".to_owned(),
        };
        wait::some(LIMIT, "a decision is taken", || async {
            tokio::time::timeout(TRY, self.client.resolve(&request)).await.ok()?.ok()
        })
        .await;
    }

    /// Waits until so many turns have ended, and approves whatever they ask for.
    pub async fn finish(&self, session: &SessionId, turns: usize) -> Vec<EndReason> {
        let description = format!("{session}: {turns} turns end");
        wait::some(LIMIT, &description, || async {
            let commits = self.commits(session).await?;
            let reasons = reasons(&commits);
            if reasons.len() >= turns {
                return Some(reasons);
            }
            if is_asking(&commits)
                && let Some(pending) = self.look_for_pending(session).await
            {
                self.approve(&pending).await;
            }
            None
        })
        .await
    }
}

/// Why the turns ended.
pub fn reasons(commits: &[Commit]) -> Vec<EndReason> {
    let events = commits.iter().flat_map(|commit| &commit.events);
    events
        .filter_map(|event| match event {
            Event::TurnEnded { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .collect()
}

/// Whether a person is asked for something.
fn is_asking(commits: &[Commit]) -> bool {
    commits.iter().flat_map(|commit| &commit.events).fold(0_i64, |open, event| match event {
        Event::ApprovalRequested { .. } => open + 1,
        Event::ApprovalResolved { .. } | Event::ApprovalExpired { .. } => open - 1,
        _ => open,
    }) > 0
}

fn configuration(model: &Model, harness: &serde_json::Value) -> String {
    let mut section = json!({"default_model": "test/model"});
    for (key, value) in harness.as_object().expect("a section") {
        section[key] = value.clone();
    }
    json!({
        "harness": section,
        "router": {"providers": {"test": {"kind": "openai", "base_url": model.base_url()}}, "retry": {"base_ms": 20}},
    })
    .to_string()
}

impl Worker {
    /// Kills the process and waits for its end.
    pub async fn kill(&mut self) {
        assert!(self.process.is_running(), "it is killed while it runs: {}", self.process.output());
        self.process.kill();
        self.process.ended(LIMIT).await;
    }

    /// What the process has logged.
    pub fn log(&self, world: &World) -> String {
        let path = world.data().join("log").join(format!("worker-{}.jsonl", self.process.pid()));
        std::fs::read_to_string(path).unwrap_or_default()
    }
}
