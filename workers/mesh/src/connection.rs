//! A worker's connection, and plain messages over it.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt as _;
use teamster_protocol::{
    Fault, FunctionId, SessionId,
    id::{Incarnation, WorkerName},
    policy::FunctionPolicy,
};
use teamster_telemetry::Redacted;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Error,
    blob::Blobs,
    call,
    config::Configs,
    denial::{Denials, Denied},
    dial,
    generation::Generations,
    head::Heads,
    lane::Lanes,
    live::Live,
    log::Log,
    mux::Mux,
    near::{Near, Value},
    notice::Notices,
    registry::Registry,
    snap::Snaps,
    wire::{Failure, Vicinity, Wire},
};

/// How long [`Mesh::connect`] tries to reach a server.
pub const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Acknowledgements of publishes that may be outstanding through the client's own context.
const ACKS_INFLIGHT_MAX: usize = 20_000;

/// How to reach a mesh.
#[derive(Clone)]
pub struct Connect {
    /// Server addresses, comma-separated.
    pub url: String,
    /// A directory that holds `<worker>.creds`, or one file for all workers; none for a server without authorization.
    pub credentials: Option<PathBuf>,
}

impl Connect {
    /// The addresses as they may be printed: without the user and the password that may stand in them.
    pub fn shown(&self) -> String {
        Redacted(&self.url).to_string()
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("url", &Redacted(&self.url))
            .field("credentials", &self.credentials)
            .finish()
    }
}

/// One worker's connection: a cheap handle.
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {
    wire: Wire,
    registry: OnceCell<Registry>,
    /// Whether the topology is kept through this connection.
    is_keeping: AtomicBool,
    /// Ends what runs in the background for this connection.
    alive: CancellationToken,
    _end: DropGuard,
}

/// A call of a function. The body is the argument bytes alone.
#[derive(Debug, Clone)]
pub struct Call {
    /// The function.
    pub function: FunctionId,
    /// `Some` calls the operator's subject as this principal.
    pub principal: Option<teamster_protocol::Principal>,
    /// The argument bytes.
    pub body: Bytes,
    /// The arguments as a value, in place of `body`: a worker of the same process that takes its type gets it as it is, any other as
    /// JSON.
    pub value: Option<Value>,
    /// The call's id and idempotency key.
    pub call: Option<String>,
    /// The session in whose name.
    pub session: Option<SessionId>,
    /// The session's workspace.
    pub workspace: Option<String>,
    /// The turn's function policy, for functions that list functions.
    pub functions: Option<FunctionPolicy>,
    /// Milliseconds since 1970 after which the callee must not begin.
    pub not_after_ms: Option<u64>,
    /// How long to wait for the answer.
    pub timeout: Duration,
    /// The `traceparent` that the callee goes on from; none takes that of the current span.
    pub trace: Option<String>,
}

/// A plain message.
#[derive(Debug, Clone)]
pub struct Plain {
    /// Its subject.
    pub subject: String,
    /// Where an answer goes.
    pub reply: Option<String>,
    /// Its body.
    pub body: Bytes,
}

/// A subscription to plain messages. Dropping it ends it.
pub struct Subscription {
    messages: async_nats::Subscriber,
}

impl Subscription {
    /// The next message; `None` once the connection is closed for good. Cancel-safe.
    pub async fn next(&mut self) -> Option<Plain> {
        let message = self.messages.next().await?;
        Some(Plain {
            subject: message.subject.to_string(),
            reply: message.reply.map(|reply| reply.to_string()),
            body: message.payload,
        })
    }
}

impl Call {
    /// A call with nothing but a body and the default timeout.
    pub fn new(function: FunctionId, body: impl Into<Bytes>) -> Self {
        Self {
            function,
            principal: None,
            body: body.into(),
            value: None,
            call: None,
            session: None,
            workspace: None,
            functions: None,
            not_after_ms: None,
            timeout: teamster_protocol::limits::CALL_TIMEOUT,
            trace: None,
        }
    }
}

impl Mesh {
    /// Connects as `worker` under a fresh incarnation, trying for ten seconds. Reconnects without end afterwards.
    pub async fn connect(options: &Connect, worker: WorkerName) -> Result<Self, Error> {
        Self::connect_within(options, worker, CONNECT_PATIENCE).await
    }

    /// Connects like [`Mesh::connect`], but tries no longer than `patience`; zero means one attempt.
    pub async fn connect_within(
        options: &Connect,
        worker: WorkerName,
        patience: Duration,
    ) -> Result<Self, Error> {
        Self::dial(options, worker, patience, None).await
    }

    /// Connects like [`Mesh::connect`]; reaches and is reached by the workers of the same process without the bus.
    pub async fn connect_near(
        options: &Connect,
        worker: WorkerName,
        near: &Arc<Near>,
    ) -> Result<Self, Error> {
        Self::dial(options, worker, CONNECT_PATIENCE, Some(Arc::clone(near))).await
    }

    async fn dial(
        options: &Connect,
        worker: WorkerName,
        patience: Duration,
        near: Option<Arc<Near>>,
    ) -> Result<Self, Error> {
        let text = uuid::Uuid::now_v7().simple().to_string();
        let incarnation = Incarnation::parse(text).map_err(|error| Error::Malformed {
            what: "the incarnation".to_owned(),
            source: Box::new(error),
        })?;
        let inbox = dial::inbox(&worker);
        let denials = Arc::new(Denials::new(&inbox));
        let (client, link) = dial::dial(options, &worker, &incarnation, &denials, patience).await?;
        let prefix = format!("{inbox}.{incarnation}");
        let mux = Arc::new(Mux::new(prefix.clone()));
        let vicinity = near.and_then(|near| {
            near.receive(&prefix, &mux);
            Vicinity::new(near, worker.as_str())
        });
        let answers = client
            .subscribe(mux.subject())
            .await
            .map_err(|error| Error::Connect {
                url: options.url.clone(),
                source: Box::new(error),
            })?;
        let context = async_nats::jetstream::ContextBuilder::new()
            .timeout(teamster_protocol::limits::BROKER_REQUEST)
            .max_ack_inflight(ACKS_INFLIGHT_MAX)
            .build(client.clone());
        let alive = CancellationToken::new();
        let (dispatch, end) = (Arc::clone(&mux).run(answers), alive.clone());
        teamster_telemetry::task::spawn("answers", async move {
            tokio::select! {
                () = dispatch => {}
                () = end.cancelled() => {}
            }
        });
        Ok(Self {
            inner: Arc::new(Inner {
                wire: Wire {
                    client,
                    context,
                    link,
                    worker,
                    incarnation,
                    mux,
                    denials,
                    vicinity,
                    directs: Arc::default(),
                    reported: Arc::default(),
                    looked: Arc::default(),
                },
                registry: OnceCell::new(),
                is_keeping: AtomicBool::new(false),
                _end: alive.clone().drop_guard(),
                alive,
            }),
        })
    }

    /// The worker that this connection belongs to.
    pub fn worker(&self) -> &WorkerName {
        &self.inner.wire.worker
    }

    /// This life of the worker.
    pub fn incarnation(&self) -> &Incarnation {
        &self.inner.wire.incarnation
    }

    /// Why no answer reaches this connection, where the broker has denied it its inbox: its credentials are another user's. What
    /// comes without an answer, such as what a registry has seen, is then not known, and not empty.
    pub fn deaf(&self) -> Option<Error> {
        let is_deaf = self.inner.wire.denials.is_deaf();
        is_deaf.then(|| Failure::Denied(Denied::Answers).during("reading what the mesh says"))
    }

    /// Calls a function and waits for its answer, for as long as the callee shows signs of life and the timeout allows.
    /// Nobody there: the fault `mesh.no_responders`; silence: `mesh.timeout`; the callee went away: `mesh.callee_lost`.
    pub async fn call(&self, call: Call) -> Result<Bytes, Fault> {
        let registry = self.inner.registry.get();
        let is_registered = registry
            .is_some_and(|registry| registry.catalog().functions.contains_key(&call.function));
        call::call(&self.inner.wire, call, is_registered).await
    }

    /// Asks the workers of a call's namespace what became of it: its outcome if it finished (waiting for it while it runs,
    /// until `timeout`), `None` if nobody knows of it.
    pub async fn call_outcome(
        &self,
        function: &FunctionId,
        call: &str,
        timeout: Duration,
    ) -> Result<Option<Result<Bytes, Fault>>, Error> {
        let instances = self
            .inner
            .registry
            .get()
            .map(|registry| registry.catalog().instances(function.namespace()))
            .filter(|instances| *instances > 0);
        call::outcome(&self.inner.wire, function, call, timeout, instances).await
    }

    /// Tells whoever runs a call to stop; does not wait.
    pub async fn cancel_call(&self, function: &FunctionId, call: &str) {
        call::cancel(&self.inner.wire, function, call).await;
    }

    /// Publishes a plain message; at most once.
    pub async fn publish(&self, subject: String, body: Bytes) -> Result<(), Error> {
        let action = format!("publishing to {subject}");
        self.inner
            .wire
            .tell(subject, None, body)
            .await
            .map_err(|failure| failure.during(action))
    }

    /// Subscribes to plain messages.
    pub async fn subscribe(&self, subject: String) -> Result<Subscription, Error> {
        let action = format!("subscribing to {subject}");
        let messages = self
            .inner
            .wire
            .client
            .subscribe(subject)
            .await
            .map_err(|error| Error::Request {
                action,
                source: Box::new(error),
            })?;
        Ok(Subscription { messages })
    }

    /// Asks and waits for one answer. Nobody there is [`Error::NoResponders`] at once; silence is [`Error::Timeout`].
    pub async fn request(
        &self,
        subject: String,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        let action = format!("asking {subject}");
        self.inner
            .wire
            .ask(subject, None, body, timeout)
            .await
            .map(|message| message.payload)
            .map_err(|failure| failure.during(action))
    }

    /// Sends what is buffered; returns when the server has taken it.
    pub async fn flush(&self) -> Result<(), Error> {
        self.inner
            .wire
            .flush()
            .await
            .map_err(|failure| failure.during("sending what is buffered"))
    }

    /// The sessions' logs.
    pub fn log(&self) -> Log {
        Log::new(self.clone())
    }

    /// The sessions' queues.
    pub fn lanes(&self) -> Lanes {
        Lanes::new(self.clone())
    }

    /// The sessions' snapshots.
    pub fn snaps(&self) -> Snaps {
        Snaps::new(self.clone())
    }

    /// Values that are too large for a commit.
    pub fn blobs(&self) -> Blobs {
        Blobs::new(self.clone())
    }

    /// Finished completions that are not committed yet.
    pub fn generations(&self) -> Generations {
        Generations::new(self.clone())
    }

    /// The live configuration.
    pub fn configs(&self) -> Configs {
        Configs::new(self.clone())
    }

    /// Deltas of what is being generated.
    pub fn live(&self) -> Live {
        Live::new(self.clone())
    }

    /// The second copies of heads.
    pub fn heads(&self) -> Heads {
        Heads::new(self.clone())
    }

    /// Notices for consumers that were away.
    pub fn notices(&self) -> Notices {
        Notices::new(self.clone())
    }

    /// Workers, functions and hooks. The first use starts the watch and waits until everything is read once.
    pub async fn registry(&self) -> Result<Registry, Error> {
        let (wire, alive) = (self.inner.wire.clone(), self.inner.alive.clone());
        self.inner
            .registry
            .get_or_try_init(|| Registry::open(wire, alive))
            .await
            .cloned()
    }

    /// Whether the caller is the first who is to keep the topology through this connection.
    pub(crate) fn begins_to_keep(&self) -> bool {
        !self.inner.is_keeping.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.inner.wire
    }
}
