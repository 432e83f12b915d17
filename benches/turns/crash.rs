//! H3: from the kill of a harness in mid-call to the final answer, with a second harness alive, and with none until it is
//! started again.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use teamster::host::Host;
use teamster_mesh::{
    Function, Mesh, Worker,
    serve::{Serving, serve},
};
use teamster_protocol::{Commit, id::WorkerName, wire_name};
use teamster_testkit::{Nats, Process, wait};
use tokio::sync::{mpsc, watch};

use crate::{
    model::{self, Model},
    rig::{LIMIT, config, connect, contract, id, reach, ready, send, server, session},
    watch::Watch,
};

/// The function in whose call the harness is killed.
const HOLD: &str = "bench::hold";

/// Times in milliseconds, one a kill.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crashes {
    /// Another harness lives.
    pub(crate) replica: Vec<f64>,
    /// No other harness lives: the same command is started again at once.
    pub(crate) restart: Vec<f64>,
    /// Calls that took effect more than once.
    pub(crate) repeated: usize,
}

struct Stage {
    nats: Nats,
    operator: Mesh,
    watch: Watch,
    model: Model,
    host: Host,
    function: Serving,
    /// Says that a call has begun.
    begun: mpsc::Receiver<()>,
    /// Lets calls up to this number end.
    release: watch::Sender<usize>,
    data: tempfile::TempDir,
    started: usize,
}

/// Kills `kills` harnesses in either way, with flushes.
pub(crate) async fn run(kills: usize) -> Crashes {
    let mut stage = Stage::start().await;
    let mut crashes = Crashes::default();
    let mut live = vec![stage.harness().await];
    for number in 0..kills {
        while live.len() < 2 {
            live.push(stage.harness().await);
        }
        let (time, model_calls) = stage.kill(&mut live, number, false).await;
        crashes.replica.push(time);
        crashes.repeated += model_calls.saturating_sub(2);
    }
    for number in kills..2 * kills {
        let (time, model_calls) = stage.kill(&mut live, number, true).await;
        crashes.restart.push(time);
        crashes.repeated += model_calls.saturating_sub(2);
    }
    drop(live);
    stage.host.drain().await;
    stage.function.drain().await;
    crashes
}

impl Stage {
    async fn start() -> Self {
        let (nats, operator) = server(true).await;
        let model = Model::start(&wire_name::encode(&id(HOLD))).await;
        let (say, begun) = mpsc::channel(16);
        let (release, released) = watch::channel(0_usize);
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let hold = Function::new(contract(HOLD), move |_, _: Value| {
            let (say, mut released) = (say.clone(), released.clone());
            let number = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async move {
                let _ = say.send(()).await;
                let _ = released.wait_for(|released| *released > number).await;
                Ok(json!({"value": "x".repeat(1000)}))
            }
        });
        let name = WorkerName::parse("bench").expect("a worker's name");
        let worker = Worker::new(name, "Holds calls.").function(hold);
        let function = serve(connect(&nats, "bench").await, worker)
            .await
            .expect("serves");
        let workers = ["router", "approval-gate"];
        let host = Host::start(&reach(&nats), &config(&model), &workers)
            .await
            .expect("hosts the workers");
        ready(&operator, &[HOLD, "router::chat"]).await;
        let watch = Watch::start(&operator).await;
        let data = tempfile::tempdir().expect("a folder");
        Self {
            nats,
            operator,
            watch,
            model,
            host,
            function,
            begun,
            release,
            data,
            started: 0,
        }
    }

    /// Starts a harness process and waits until it has registered.
    async fn harness(&mut self) -> (String, Process) {
        let before = self.incarnations().await;
        let process = self.spawn();
        let incarnation = wait::some(LIMIT, "a harness registers", || async {
            self.incarnations()
                .await
                .into_iter()
                .find(|incarnation| !before.contains(incarnation))
        })
        .await;
        (incarnation, process)
    }

    fn spawn(&mut self) -> Process {
        self.started += 1;
        let mut command = Command::new(env!("CARGO_BIN_EXE_teamster"));
        command.args([
            "worker",
            "harness",
            "--no-ensure",
            "--quiet",
            "--nats",
            &self.nats.url(),
        ]);
        command.arg("--data").arg(self.data.path());
        Process::spawn(
            command,
            &self
                .data
                .path()
                .join(format!("harness-{}.log", self.started)),
        )
    }

    async fn incarnations(&self) -> Vec<String> {
        let catalog = self
            .operator
            .registry()
            .await
            .expect("a registry")
            .catalog();
        let harnesses = catalog
            .workers
            .iter()
            .filter(|worker| worker.name.as_str() == "harness");
        harnesses
            .map(|worker| worker.incarnation.to_string())
            .collect()
    }

    /// Kills the owner of a turn in mid-call; the time until the turn's end, and how often the model was asked.
    async fn kill(
        &mut self,
        live: &mut Vec<(String, Process)>,
        number: usize,
        again: bool,
    ) -> (f64, usize) {
        let session = session(&format!("crash-{number}"));
        let asked = self.model.count();
        let end = self.watch.end_of(&session);
        send_patiently(&self.operator, &session).await;
        wait::within(LIMIT, "the call begins", self.begun.recv()).await;
        let tail = self
            .operator
            .log()
            .tail(&session)
            .await
            .expect("a tail")
            .expect("a commit");
        let owner = Commit::decode(&tail.body)
            .expect("a commit")
            .head
            .owner
            .to_string();
        // With one harness alone, a replica of the first part may be left: it goes first.
        if again {
            live.retain(|(incarnation, _)| *incarnation == owner);
        }
        let at = live
            .iter()
            .position(|(incarnation, _)| *incarnation == owner)
            .expect("the owner runs");
        let (_, process) = live.swap_remove(at);
        let killed = Instant::now();
        process.kill();
        self.release.send_replace(number + 1);
        if again {
            live.push(self.harness().await);
        }
        let ended: Instant = wait::within(LIMIT, "the turn ends", end)
            .await
            .expect("an end");
        drop(process);
        // A call that ran twice would hold for ever; one that was asked for again while it ran, or after it, was not.
        let time = ended.saturating_duration_since(killed);
        (
            Duration::as_secs_f64(&time) * 1e3,
            self.model.count() - asked,
        )
    }
}

/// A harness that has just gone is still in a queue group for an instant.
async fn send_patiently(operator: &Mesh, id: &teamster_protocol::SessionId) {
    wait::some(LIMIT, "a harness accepts a message", || async {
        send(operator, id, &model::message(1)).await.ok()
    })
    .await;
}
