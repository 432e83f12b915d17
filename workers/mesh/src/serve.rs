//! Serving a worker: endpoints, registration, drain.

mod memory;
mod micro;
mod request;
mod run;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::Subscriber;
use futures::StreamExt as _;
use teamster_protocol::{FunctionId, Visibility, limits, registry as entry, subject};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::{AbortOnDropHandle, TaskTracker},
};

use crate::{
    Error,
    call::{About, Query},
    connection::Mesh,
    function::{Function, Tell, Worker},
    near::{Door, Near, Take},
    registry::{self, hooks_key, worker_key},
    reply::Reply,
    rfc3339,
};

use self::{
    memory::{Known, Memory},
    micro::{QUEUE, Service, Stats},
};

/// What a worker's version is called in the registry and in its service's answers.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A function that is served.
struct Endpoint {
    function: Function,
    /// What it is served on; `*` stands for an operator's principal.
    subject: String,
    stats: Stats,
    /// What it adds to its figures.
    tell: Option<Tell>,
}

/// What all parts of a served worker share.
struct Shared {
    mesh: Mesh,
    slots: Arc<Semaphore>,
    memory: Mutex<Memory>,
    running: TaskTracker,
    /// Cancels all running calls.
    kill: CancellationToken,
}

/// The short ways to one worker's functions; they close when it is dropped.
struct Doors {
    near: Arc<Near>,
    subjects: Vec<String>,
}

impl Drop for Doors {
    fn drop(&mut self) {
        for subject in &self.subjects {
            self.near.close(subject);
        }
    }
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A served worker. Dropping it without [`Serving::drain`] aborts its tasks.
pub struct Serving {
    shared: Arc<Shared>,
    /// Ends the taking of new calls.
    close: CancellationToken,
    /// Ends the background tasks.
    stop: CancellationToken,
    accepting: JoinSet<()>,
    registering: JoinSet<()>,
    tasks: JoinSet<()>,
    key: String,
    doors: Option<Doors>,
    _kill: DropGuard,
}

impl Serving {
    /// Ends it: takes no new calls, lets what runs come to an end within `limits::DRAIN`, stops the tasks, removes the
    /// registration.
    pub async fn drain(mut self) {
        self.registering.shutdown().await;
        let wire = self.shared.mesh.wire();
        if let Err(failure) = registry::remove(wire, &self.key).await {
            tracing::warn!(error = %failure, "the registration could not be removed; it ends by itself");
        }
        self.doors = None;
        self.close.cancel();
        let deadline = Instant::now() + limits::DRAIN;
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.shared.running.close();
        let _ = timeout(left(deadline), join_all(&mut self.accepting)).await;
        if timeout(left(deadline), self.shared.running.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                calls = self.shared.running.len(),
                "calls are cancelled: the worker ends"
            );
            self.shared.kill.cancel();
            let grace = limits::CALL_CANCEL_GRACE + Duration::from_millis(500);
            let _ = timeout(grace, self.shared.running.wait()).await;
        }
        self.stop.cancel();
        if timeout(limits::DRAIN, join_all(&mut self.tasks))
            .await
            .is_err()
        {
            tracing::warn!("background tasks are aborted: they did not end in time");
        }
        self.tasks.shutdown().await;
        if let Err(failure) = self.shared.mesh.wire().flush().await {
            tracing::debug!(error = %failure, "last words may be lost");
        }
    }
}

async fn join_all(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "a background task panicked");
        }
    }
}

/// Serves a worker: a NATS micro service (ADR-32) whose endpoints are its functions, registered with a lease, its hooks
/// bound. Calls run concurrently, bounded; a call says every `CALL_PROGRESS_EVERY` that it is still running, is refused
/// after its `not_after`, is answered again from memory when its id was served before, and is joined when it still runs.
pub async fn serve(mesh: Mesh, worker: Worker) -> Result<Serving, Error> {
    let kill = CancellationToken::new();
    let shared = Arc::new(Shared {
        mesh: mesh.clone(),
        slots: Arc::new(Semaphore::new(limits::REQUESTS_AT_ONCE_MAX)),
        memory: Mutex::new(Memory::default()),
        running: TaskTracker::new(),
        kill: kill.clone(),
    });
    let Worker {
        name,
        description,
        functions,
        mut tells,
        hooks,
        tasks: background,
        config: _,
    } = worker;
    let registration = entry::Worker {
        name: name.clone(),
        incarnation: mesh.incarnation().clone(),
        version: VERSION.to_owned(),
        description: description.clone(),
        functions: functions.iter().map(|f| Arc::clone(&f.contract)).collect(),
    };
    let endpoints: Vec<Arc<Endpoint>> = functions
        .into_iter()
        .map(|function| endpoint(function, &mut tells))
        .collect();
    let close = CancellationToken::new();
    let mut accepting = JoinSet::new();
    for endpoint in &endpoints {
        let requests = listen(&mesh, &endpoint.subject, Some(QUEUE)).await?;
        accepting.spawn(accept(
            Arc::clone(&shared),
            Arc::clone(endpoint),
            requests,
            close.clone(),
        ));
    }
    for namespace in namespaces(&endpoints) {
        let questions = listen(&mesh, &subject::call_all(&namespace), None).await?;
        accepting.spawn(answer_questions(
            Arc::clone(&shared),
            questions,
            close.clone(),
        ));
    }
    let service = Service {
        name: name.to_string(),
        id: mesh.incarnation().to_string(),
        version: VERSION.to_owned(),
        description,
        started: rfc3339::format(rfc3339::now_ms()),
        endpoints: endpoints.clone(),
    };
    let mut registering = JoinSet::new();
    let mut questions = Vec::new();
    for subject in service.subjects() {
        questions.push(listen(&mesh, &subject, None).await?);
    }
    registering.spawn(service.run(mesh.wire().client.clone(), questions));
    let key = worker_key(name.as_str(), mesh.incarnation().as_str());
    register(&mesh, &key, &registration, &hooks).await?;
    let doors = open_doors(&shared, &endpoints);
    registering.spawn(renew(mesh.clone(), key.clone(), registration));
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    for (task_name, task) in background {
        let work = task(mesh.clone(), stop.child_token());
        let worker = name.clone();
        // A panic is logged under the task's name when it happens; the worker goes on serving.
        let work = AbortOnDropHandle::new(teamster_telemetry::task::spawn(task_name, work));
        tasks.spawn(async move {
            if work.await.is_ok() {
                tracing::debug!(%worker, task = task_name, "a background task ended");
            }
        });
    }
    Ok(Serving {
        shared,
        close,
        stop,
        accepting,
        registering,
        tasks,
        key,
        doors,
        _kill: kill.drop_guard(),
    })
}

/// Opens the short way for workers of the same process.
fn open_doors(shared: &Arc<Shared>, endpoints: &[Arc<Endpoint>]) -> Option<Doors> {
    let near = &shared.mesh.wire().vicinity.as_ref()?.near;
    for endpoint in endpoints {
        // Weak: the doors are kept beside the connections that are kept in `shared`.
        let (shared, served) = (Arc::downgrade(shared), Arc::clone(endpoint));
        let takes = endpoint.function.near.as_ref().map(|near| near.takes);
        let take: Take = Arc::new(move |request| {
            let (shared, served) = (shared.upgrade(), Arc::clone(&served));
            Box::pin(async move {
                if let Some(shared) = shared {
                    run::accept(&shared, &served, request).await;
                }
            })
        });
        let door = Door { take, takes };
        near.open(&endpoint.subject, door);
    }
    Some(Doors {
        near: Arc::clone(near),
        subjects: endpoints.iter().map(|e| e.subject.clone()).collect(),
    })
}

fn endpoint(function: Function, tells: &mut Vec<(FunctionId, Tell)>) -> Arc<Endpoint> {
    let id = &function.contract.id;
    let tell = tells.iter().position(|(of, _)| of == id);
    let tell = tell.map(|at| tells.swap_remove(at).1);
    let subject = match function.contract.visibility {
        Visibility::Operator => subject::operator("*", id),
        Visibility::Agent | Visibility::Worker => subject::function(id),
    };
    Arc::new(Endpoint {
        function,
        subject,
        stats: Stats::default(),
        tell,
    })
}

fn namespaces(endpoints: &[Arc<Endpoint>]) -> BTreeSet<String> {
    endpoints
        .iter()
        .map(|endpoint| endpoint.function.contract.id.namespace().to_owned())
        .collect()
}

async fn listen(mesh: &Mesh, subject: &str, queue: Option<&str>) -> Result<Subscriber, Error> {
    let client = &mesh.wire().client;
    let subscribed = match queue {
        Some(queue) => {
            client
                .queue_subscribe(subject.to_owned(), queue.to_owned())
                .await
        }
        None => client.subscribe(subject.to_owned()).await,
    };
    subscribed.map_err(|error| Error::Request {
        action: format!("subscribing to {subject}"),
        source: Box::new(error),
    })
}

/// Takes requests until it is told to close; what has arrived by then is still served.
async fn accept(
    shared: Arc<Shared>,
    endpoint: Arc<Endpoint>,
    mut requests: Subscriber,
    close: CancellationToken,
) {
    let mut is_open = true;
    loop {
        tokio::select! {
            request = requests.next() => match request {
                Some(request) => run::accept(&shared, &endpoint, request.into()).await,
                None => return,
            },
            () = close.cancelled(), if is_open => {
                is_open = false;
                if requests.drain().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Answers what became of calls, and cancels calls.
async fn answer_questions(
    shared: Arc<Shared>,
    mut questions: Subscriber,
    close: CancellationToken,
) {
    // Those who wait for running calls; further ones get no answer and ask again.
    let waiting = Arc::new(Semaphore::new(limits::REQUESTS_AT_ONCE_MAX));
    loop {
        let question = tokio::select! {
            question = questions.next() => question,
            // While calls come to an end their outcomes are still asked for.
            () = async { close.cancelled().await; shared.running.wait().await; } => return,
        };
        let Some(question) = question else { return };
        let call = question.subject.rsplit_once('.');
        let call = call.and_then(|(_, token)| subject::untoken(token));
        let about = serde_json::from_slice::<About>(&question.payload);
        let (Some(call), Ok(about)) = (call, about) else {
            tracing::debug!(subject = %question.subject, "a question about a call cannot be read");
            continue;
        };
        match about.query {
            Query::Cancel => shared.memory().cancel(&call),
            Query::Join => {
                let known = shared.memory().ask(&call, Instant::now());
                let reply = match known {
                    Known::Nothing => Reply::Unknown,
                    Known::Ended(outcome) => Reply::Final(outcome),
                    Known::Running(pending) => {
                        let Ok(place) = Arc::clone(&waiting).try_acquire_owned() else {
                            continue;
                        };
                        run::answer(&shared, question.reply.clone(), Reply::Running).await;
                        let (shared, to) = (Arc::clone(&shared), question.reply);
                        teamster_telemetry::task::spawn("joined call", async move {
                            let outcome = run::join(&shared, to.as_ref(), pending).await;
                            run::answer(&shared, to, Reply::Final(outcome)).await;
                            drop(place);
                        });
                        continue;
                    }
                };
                run::answer(&shared, question.reply, reply).await;
            }
        }
    }
}

/// Registers the worker and binds its hooks. A broker that has no leader yet is given time.
async fn register(
    mesh: &Mesh,
    key: &str,
    registration: &entry::Worker,
    hooks: &[teamster_protocol::hook::Binding],
) -> Result<(), Error> {
    let action = || format!("registering the worker {}", registration.name);
    let malformed = |error: serde_json::Error| Error::Malformed {
        what: "a registration".to_owned(),
        source: Box::new(error),
    };
    let mut entries = vec![(
        key.to_owned(),
        serde_json::to_vec(registration).map_err(malformed)?,
        Some(limits::REGISTRATION_TTL),
    )];
    if !hooks.is_empty() {
        let hooks = entry::Hooks {
            name: registration.name.clone(),
            bindings: hooks.to_vec(),
        };
        entries.push((
            hooks_key(registration.name.as_str()),
            serde_json::to_vec(&hooks).map_err(malformed)?,
            None,
        ));
    }
    let deadline = Instant::now() + limits::BROKER_REQUEST;
    for (key, body, lease) in entries {
        let body = bytes::Bytes::from(body);
        while let Err(failure) = registry::put(mesh.wire(), &key, body.clone(), lease).await {
            if !failure.is_passing() || Instant::now() >= deadline {
                return Err(failure.during(action()));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// Renews the lease in time, and at once when the connection stands again.
async fn renew(mesh: Mesh, key: String, registration: entry::Worker) {
    let Ok(body) = serde_json::to_vec(&registration) else {
        return;
    };
    let body = bytes::Bytes::from(body);
    let wire = mesh.wire();
    let mut link = wire.link.clone();
    let mut losses = link.borrow_and_update().losses;
    loop {
        let is_back = tokio::select! {
            () = sleep(limits::REGISTRATION_EVERY) => false,
            waited = link.wait_for(|link| link.is_up && link.losses != losses) => waited.is_ok(),
        };
        if is_back {
            losses = link.borrow().losses;
        }
        let mut tries = 0_u32;
        while let Err(failure) =
            registry::put(wire, &key, body.clone(), Some(limits::REGISTRATION_TTL)).await
        {
            tracing::warn!(error = %failure, "the registration could not be renewed");
            tries += 1;
            if tries > 4 {
                break;
            }
            sleep(Duration::from_millis(200) * tries).await;
        }
    }
}
