//! One mesh of real processes for one test: nats-server, the model, the functions outside, and any number of workers, each
//! process behind a gate of its own.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;
use teamster::client::Client;
use teamster_mesh::{
    Connect, Mesh,
    topology::{self, Topology},
};
use teamster_protocol::{SessionId, function::harness::SendReply, id::WorkerName};
use teamster_testkit::{Nats, Process, Proxy, wait};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::{
    evidence::{Evidence, check},
    model::Model,
    operator::{LIMIT, Operator},
    outside::Outside,
};

/// Lines of each worker that a failed test shows.
const LOGGED_MAX: usize = 12;
/// All workers but the harness.
pub const SIBLINGS: [&str; 3] = ["router", "approval-gate", "sandbox"];

pub struct World {
    pub nats: Mutex<Nats>,
    address: String,
    pub model: Model,
    pub outside: Outside,
    pub owner: Operator,
    /// Variables of the workers that are started from now on.
    pub env: Vec<(String, String)>,
    root: TempDir,
}

/// Workers in a process of their own.
pub struct Worker {
    pub process: Process,
    pub proxy: Proxy,
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
        let connect = Connect {
            url: nats.url(),
            credentials: None,
        };
        let name = |text: &str| WorkerName::parse(text).expect("valid");
        let client = Client::connect(&connect).await.expect("connects");
        topology::ensure(client.mesh(), &Topology { replicas: 1 })
            .await
            .expect("ensures");
        let mesh = Mesh::connect(&connect, name("t")).await.expect("connects");
        let outside = Outside::serve(mesh, root.path()).await;
        let owner = Operator::new(client, root.path().join("workspace"));
        let address = nats.address();
        let world = Self {
            nats: Mutex::new(nats),
            address,
            model,
            outside,
            owner,
            env: Vec::new(),
            root,
        };
        std::fs::create_dir(world.data()).expect("a data directory");
        std::fs::create_dir(world.workspace()).expect("a workspace");
        std::fs::write(world.workspace().join("notes.md"), "notes\n").expect("a file");
        std::fs::write(
            world.data().join("config.yaml"),
            configuration(&world.model, harness),
        )
        .expect("a configuration");
        world
    }

    pub fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Gives the provider a key, for workers that are started from now on.
    pub fn configure_key(&self, key: &str) {
        let file = self.data().join("config.yaml");
        let text = std::fs::read_to_string(&file).expect("a configuration");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        config["router"]["providers"]["test"]["key"] = key.into();
        std::fs::write(file, config.to_string()).expect("a configuration");
    }

    pub fn workspace(&self) -> &Path {
        &self.owner.workspace
    }

    /// Checks everything that must hold of a session at rest.
    pub async fn verify(&self, session: &SessionId, accepted: &[SendReply]) -> Evidence {
        check(
            &self.owner.client,
            session,
            accepted,
            self.outside.effects_of(session),
        )
        .await
    }

    /// A connection of a worker of that name to the server itself.
    pub async fn connect(&self, name: &str) -> Mesh {
        let connect = Connect {
            url: format!("nats://{}", self.address),
            credentials: None,
        };
        let name = WorkerName::parse(name).expect("valid");
        Mesh::connect(&connect, name).await.expect("connects")
    }

    /// Starts workers in a process of their own and waits until they serve.
    pub async fn worker(&self, names: &[&str]) -> Worker {
        let proxy = Proxy::start(self.address.clone()).await;
        let mut command = command(names, &proxy.url(), &self.data(), self.workspace());
        command
            .arg("--no-ensure")
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        let process = serving(command, self.root.path()).await;
        Worker { process, proxy }
    }
}

/// What starts workers in a process of their own, which sees nothing of the machine's own settings.
pub fn command(names: &[&str], nats: &str, data: &Path, workspace: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_teamster"));
    command
        .arg("worker")
        .args(names)
        .args(["--nats", nats, "--data"])
        .arg(data)
        .current_dir(workspace)
        .env_remove("TEAMSTER_CREDS")
        .env_remove("TEAMSTER_MODEL")
        .env_remove("TEAMSTER_LOG_TO")
        .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
        .stdin(Stdio::null());
    command
}

/// Starts workers and waits until they serve. What they say goes to a file in `folder`.
pub async fn serving(command: Command, folder: &Path) -> Process {
    let output = tempfile::Builder::new()
        .prefix("worker-")
        .tempfile_in(folder)
        .expect("a file");
    let (_, output) = output.keep().expect("kept");
    let mut process = Process::spawn(command, &output);
    wait::until(LIMIT, "the workers serve", || {
        let text = process.output();
        assert!(process.is_running(), "a worker ended: {text}");
        async move { text.contains("stop with Ctrl-C") }
    })
    .await;
    process
}

/// The configuration file of a data directory whose turns use the model.
pub fn configuration(model: &Model, harness: &serde_json::Value) -> String {
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

/// A failed test says what the workers said.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        dump_lines(&self.data());
        self.owner.dump();
    }
}

/// Prints the last lines of each process of a data directory.
pub fn dump_lines(data: &Path) {
    for entry in std::fs::read_dir(data.join("log"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        eprintln!("{}", entry.path().display());
        let lines: Vec<&str> = text.lines().collect();
        lines
            .iter()
            .skip(lines.len().saturating_sub(LOGGED_MAX))
            .for_each(|line| eprintln!("  {line}"));
    }
}

impl Worker {
    /// Kills the process and waits for its end.
    pub async fn kill(&mut self) {
        assert!(
            self.process.is_running(),
            "it is killed while it runs: {}",
            self.process.output()
        );
        self.process.kill();
        self.process.ended(LIMIT).await;
    }

    /// Stops the process (SIGSTOP) and waits until all of it stands still: the signal alone is only a beginning.
    pub async fn pause(&self) {
        self.process.pause();
        let tasks = format!("/proc/{}/task", self.process.pid());
        wait::until(LIMIT, "the process stands still", || async {
            let tasks = std::fs::read_dir(&tasks).expect("a process has threads");
            tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                // `pid (name) state ...`; a name may hold anything.
                stat.rsplit(") ")
                    .next()
                    .is_some_and(|rest| rest.starts_with('T'))
            })
        })
        .await;
    }

    /// What the process has logged.
    pub fn log(&self, world: &World) -> String {
        let path = world
            .data()
            .join("log")
            .join(format!("worker-{}.jsonl", self.process.pid()));
        std::fs::read_to_string(path).unwrap_or_default()
    }
}
