//! Keeps the workers' sections of the configuration up to date: the file of this process and what is set live in the mesh.
//!
//! Invariants: a layer is read and checked whole before anything of it counts; what cannot be used is told once in the log, is
//! shown by the worker's function `<worker>::config`, and changes nothing; live values that were good stay in force over a new
//! file, and a file that was good stays in force under new live values.
//!
//! Never: what a value means. The worker's own crate checks and reads it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use teamster_mesh::{
    Error, Function, Mesh, Worker,
    config::{Entry, Take},
};
use teamster_protocol::{
    Class, Contract, Data, Digest, Fault, FunctionId, Trust, Visibility, id::WorkerName, limits,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::config::{
    Reading, Source,
    explain::{self, Layer, LiveLayer, Refusal, Revision, Status, StatusRequest, Told},
    merge,
    section::{self, Kind},
};

/// How long a file must stay the same before it is read: who writes it may not be done.
const SETTLED: Duration = Duration::from_millis(100);
/// How often it is looked whether it is settled.
const SETTLES_MAX: u32 = 20;

/// What the process's own layers say, as last found good.
#[derive(Clone)]
struct OwnLayers {
    reading: Arc<Reading>,
    refusals: VecDeque<Refusal>,
}

/// The layers of one process.
pub(super) struct Layers {
    own: watch::Receiver<OwnLayers>,
    // Ends with the host.
    _watching: Option<AbortOnDropHandle<()>>,
    _keep: Option<watch::Sender<OwnLayers>>,
}

impl Layers {
    /// Layers that do not change.
    pub(super) fn fixed(reading: Reading) -> Self {
        let (sender, own) = channel(reading);
        Self {
            own,
            _watching: None,
            _keep: Some(sender),
        }
    }

    /// Layers that change with the file.
    pub(super) fn follow(source: Source, reading: Reading) -> Self {
        // Stamped after it was read: a change in between is seen as one.
        let seen = reading
            .file
            .as_ref()
            .map_or(Digest::ZERO, |file| Digest::of(&file.text));
        let (sender, own) = channel(reading);
        let watching =
            teamster_telemetry::task::spawn("configuration file", watch_file(source, seen, sender));
        Self {
            own,
            _watching: Some(AbortOnDropHandle::new(watching)),
            _keep: None,
        }
    }

    /// What they say now.
    pub(super) fn reading(&self) -> Arc<Reading> {
        Arc::clone(&self.own.borrow().reading)
    }

    /// Puts in force what is set live for a worker, and keeps doing so while it runs; adds the function that tells about it. A
    /// worker without a section that can change stays as it is.
    pub(super) async fn attach(&self, mesh: &Mesh, worker: Worker) -> Result<Worker, Error> {
        let (Some(taker), Some(kind)) =
            (worker.config.clone(), section::named(worker.name.as_str()))
        else {
            return Ok(worker);
        };
        let mut follow = mesh.configs().follow(worker.name.clone()).await?;
        let desk = Arc::new(Desk::new(kind, taker, self.own.clone()));
        let first = follow.now().cloned();
        Arc::clone(&desk)
            .change(move |desk| desk.live(first.as_ref()))
            .await;
        let worker = match status_function(&worker.name, &desk) {
            Some(function) => {
                let (id, told) = (function.contract.id.clone(), Arc::clone(&desk));
                let tell = move || serde_json::to_value(told.told()).unwrap_or_default();
                worker.function(function).telling(id, tell)
            }
            None => worker,
        };
        let mut own = self.own.clone();
        Ok(worker.task(
            "configuration",
            move |_, cancel: CancellationToken| async move {
                loop {
                    let desk = Arc::clone(&desk);
                    tokio::select! {
                        () = cancel.cancelled() => return,
                        entry = follow.changed() => {
                            let entry = entry.cloned();
                            desk.change(move |desk| desk.live(entry.as_ref())).await;
                        }
                        changed = own.changed() => match changed {
                            Ok(()) => desk.change(Desk::file).await,
                            // The host ends.
                            Err(_) => return cancel.cancelled().await,
                        },
                        () = tokio::time::sleep(limits::CONFIG_RETRY_EVERY), if desk.is_waiting() => {
                            desk.change(Desk::again).await;
                        }
                    }
                }
            },
        ))
    }
}

fn channel(reading: Reading) -> (watch::Sender<OwnLayers>, watch::Receiver<OwnLayers>) {
    watch::channel(OwnLayers {
        reading: Arc::new(reading),
        refusals: VecDeque::new(),
    })
}

/// Reads the file again whenever its content changes, however it came to that: written, replaced, or behind a link.
async fn watch_file(source: Source, mut seen: Digest, sender: watch::Sender<OwnLayers>) {
    loop {
        tokio::time::sleep(limits::CONFIG_FILE_POLL_EVERY).await;
        let Some((stamp, read)) = settled(&source, seen).await else {
            continue;
        };
        seen = stamp;
        let path = source.file().display().to_string();
        match read {
            Ok(reading) => {
                tracing::info!(file = path, "the configuration file has changed");
                sender.send_replace(OwnLayers {
                    reading: Arc::new(reading),
                    refusals: VecDeque::new(),
                });
            }
            Err(error) => {
                let problem = teamster_telemetry::chain(&error);
                tracing::error!(
                    code = error.code(),
                    what = problem,
                    "the changed configuration file cannot be used; the last good one stays in force"
                );
                let refusal = Refusal {
                    at_ms: now_ms(),
                    layer: Layer::File {
                        path,
                        line: error.line(),
                    },
                    problem,
                };
                sender.send_modify(|own| remember(&mut own.refusals, refusal));
            }
        }
    }
}

/// Reads the file once it has another content than `seen` and keeps it for a moment.
async fn settled(
    source: &Source,
    seen: Digest,
) -> Option<(Digest, Result<Reading, crate::config::Error>)> {
    let mut stamp = off_thread(source, Source::stamp).await?;
    if stamp == seen {
        return None;
    }
    for _ in 0..SETTLES_MAX {
        tokio::time::sleep(SETTLED).await;
        let again = off_thread(source, Source::stamp).await?;
        if again == stamp {
            break;
        }
        stamp = again;
    }
    let read = off_thread(source, Source::read).await?;
    Some((stamp, read))
}

/// Files are read where nothing else waits for the thread.
async fn off_thread<T: Send + 'static>(source: &Source, look: fn(&Source) -> T) -> Option<T> {
    let source = source.clone();
    tokio::task::spawn_blocking(move || look(&source))
        .await
        .ok()
}

/// One worker's section: what is in force, and what was not taken.
struct Desk {
    kind: &'static Kind,
    taker: Arc<dyn Take>,
    own: watch::Receiver<OwnLayers>,
    state: Mutex<State>,
}

struct State {
    /// The layers of the process that are in force.
    reading: Arc<Reading>,
    /// The live layer that is in force.
    live: Option<LiveLayer>,
    /// The newest live layer, where it could not be taken.
    waiting: Option<LiveLayer>,
    /// The newest live revision.
    seen: Option<u64>,
    refusals: VecDeque<Refusal>,
    /// What was in force when the worker started.
    started: Option<Value>,
}

impl Desk {
    fn new(kind: &'static Kind, taker: Arc<dyn Take>, own: watch::Receiver<OwnLayers>) -> Self {
        let reading = Arc::clone(&own.borrow().reading);
        Self {
            kind,
            taker,
            own,
            state: Mutex::new(State {
                reading,
                live: None,
                waiting: None,
                seen: None,
                refusals: VecDeque::new(),
                started: None,
            }),
        }
    }

    /// Changes what is in force where nothing else waits for the thread: what a worker looks at before it takes a section may be
    /// files.
    async fn change(self: Arc<Self>, change: impl FnOnce(&Self) + Send + 'static) {
        if let Err(error) = tokio::task::spawn_blocking(move || change(&self)).await {
            tracing::error!(%error, "a change of the configuration was not looked at");
        }
    }

    /// Whether the newest live layer could not be taken.
    fn is_waiting(&self) -> bool {
        self.state().waiting.is_some()
    }

    /// Tries again what could not be taken: what it lacked may have come.
    fn again(&self) {
        let mut state = self.state();
        if let Some(waiting) = state.waiting.take() {
            self.take_live(&mut state, Some(waiting));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is set live now.
    fn live(&self, entry: Option<&Entry>) {
        let mut state = self.state();
        state.seen = entry.map(|entry| entry.revision);
        let layer = match read(entry) {
            Ok(layer) => layer,
            Err((revision, problem)) => {
                state.waiting = None;
                self.refuse(&mut state, Layer::Live(revision), &problem);
                return;
            }
        };
        self.take_live(&mut state, layer);
        if state.started.is_none() {
            state.started = Some(self.taker.in_force());
        }
    }

    fn take_live(&self, state: &mut State, layer: Option<LiveLayer>) {
        let base = self.kind.of(&state.reading.config);
        let over = layer
            .as_ref()
            .map_or(Value::Null, |layer| layer.tree.clone());
        match self.put(&base, &over) {
            Ok(()) => {
                state
                    .refusals
                    .retain(|refusal| !matches!(refusal.layer, Layer::Live(_)));
                (state.live, state.waiting) = (layer, None);
            }
            Err(problem) => {
                if let Some(layer) = &layer {
                    self.refuse(state, Layer::Live(layer.revision.clone()), &problem);
                }
                state.waiting = layer;
            }
        }
    }

    /// Takes what the process's own layers say now. They are good by themselves.
    fn file(&self) {
        let reading = Arc::clone(&self.own.borrow().reading);
        let mut state = self.state();
        if Arc::ptr_eq(&reading, &state.reading) {
            return;
        }
        let base = self.kind.of(&reading.config);
        let over = state
            .live
            .as_ref()
            .map_or(Value::Null, |layer| layer.tree.clone());
        if let Err(problem) = self.put(&base, &over) {
            let file = reading.file.as_ref();
            let layer = Layer::File {
                path: file.map_or_else(String::new, |file| file.path.display().to_string()),
                line: None,
            };
            let problem = format!("together with what is set live: {problem}");
            self.refuse(&mut state, layer, &problem);
            return;
        }
        state.reading = reading;
        state
            .refusals
            .retain(|refusal| matches!(refusal.layer, Layer::Live(_)));
        if let Some(waiting) = state.waiting.take() {
            self.take_live(&mut state, Some(waiting));
        }
    }

    /// Puts a section in force, or says which key keeps it from that.
    fn put(&self, base: &Value, over: &Value) -> Result<(), String> {
        let merged = merge(base.clone(), over.clone());
        if merged == self.taker.in_force() {
            return Ok(());
        }
        self.kind
            .check(base, over)
            .and_then(|()| self.taker.take(&merged))
            .map_err(|problem| problem.to_string())?;
        tracing::info!(worker = self.kind.name, "the configuration has changed");
        Ok(())
    }

    /// Remembers a refusal and tells it once: what is tried again and refused for the same reason is no news.
    fn refuse(&self, state: &mut State, layer: Layer, problem: &str) {
        let is_of = |refusal: &&Refusal| matches!(layer, Layer::Live(_)) && refusal.layer == layer;
        if state
            .refusals
            .iter()
            .filter(is_of)
            .any(|refusal| refusal.problem == problem)
        {
            return;
        }
        state.refusals.retain(|refusal| !is_of(&refusal));
        tracing::error!(
            worker = self.kind.name,
            what = problem,
            ?layer,
            "a change of the configuration cannot be used; the last good one stays in force"
        );
        remember(
            &mut state.refusals,
            Refusal {
                at_ms: now_ms(),
                layer,
                problem: problem.to_owned(),
            },
        );
    }

    /// What this process says of itself, beside the others that run the same worker.
    fn told(&self) -> Told {
        let state = self.state();
        Told {
            seen: state.seen,
            refusals: self.refusals(&state),
        }
    }

    fn refusals(&self, state: &State) -> Vec<Refusal> {
        let mut refusals: Vec<Refusal> = self.own.borrow().refusals.iter().cloned().collect();
        refusals.extend(state.refusals.iter().cloned());
        refusals.sort_by_key(|refusal| refusal.at_ms);
        refusals
    }

    fn status(&self) -> Status {
        let state = self.state();
        let effective = self.taker.in_force();
        let values = explain::section(self.kind, &effective, &state.reading, state.live.as_ref());
        let refusals = self.refusals(&state);
        let differs = |key: &&&str| {
            let path = crate::config::path::parse(key).unwrap_or_default();
            let at = |tree: &Value| crate::config::path::get(tree, &path).cloned();
            state
                .started
                .as_ref()
                .is_some_and(|started| at(started) != at(&effective))
        };
        Status {
            worker: self.kind.name.to_owned(),
            values,
            seen: state.seen,
            refusals,
            after_restart: self
                .taker
                .cold()
                .iter()
                .filter(differs)
                .map(|key| format!("{}.{key}", self.kind.name))
                .collect(),
        }
    }
}

/// What an entry of the bucket says; why it says nothing that can be read.
fn read(entry: Option<&Entry>) -> Result<Option<LiveLayer>, (Revision, String)> {
    let Some(entry) = entry else {
        return Ok(None);
    };
    let revision = Revision {
        revision: entry.revision,
        at: entry.at.clone(),
        by: entry.by.clone(),
        or_before: false,
    };
    let Some(body) = &entry.body else {
        return Ok(None);
    };
    if body.len() > limits::CONFIG_BYTES_MAX {
        let said = format!(
            "it has {} bytes; at most {} are read",
            body.len(),
            limits::CONFIG_BYTES_MAX
        );
        return Err((revision, said));
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(tree @ Value::Object(_)) => Ok(Some(LiveLayer { revision, tree })),
        Ok(_) => Err((revision, "it is no JSON object".to_owned())),
        Err(error) => Err((revision, format!("it is no JSON: {error}"))),
    }
}

fn remember(refusals: &mut VecDeque<Refusal>, refusal: Refusal) {
    if refusals.len() >= limits::CONFIG_REFUSALS_MAX {
        refusals.pop_front();
    }
    refusals.push_back(refusal);
}

/// `<worker>::config`: which values are in force and why. For operators.
fn status_function(worker: &WorkerName, desk: &Arc<Desk>) -> Option<Function> {
    let id = FunctionId::parse(format!("{worker}::config")).ok()?;
    let mut contract = Contract::new::<StatusRequest, Status>(
        id,
        "Says which configuration is in force, which layer each value comes from, and which changes were not taken.",
    );
    contract.class = Class::Read;
    contract.data = Data::Business;
    contract.trust = Trust::Trusted;
    contract.visibility = Visibility::Operator;
    contract.idempotent = true;
    contract.timeout_ms = Some(10_000);
    let desk = Arc::clone(desk);
    Some(Function::new(contract, move |_, _: StatusRequest| {
        let status = desk.status();
        async move { Ok::<_, Fault>(status) }
    }))
}

fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

#[cfg(test)]
mod tests;
