//! A worker's connection, and plain messages over it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use teamster_protocol::{
    Fault, FunctionId, SessionId,
    id::{Incarnation, WorkerName},
    policy::FunctionPolicy,
};

use crate::{
    Error, generation::Generations, lane::Lanes, live::Live, log::Log, registry::Registry,
    snap::Snaps,
};

/// How to reach a mesh.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Server addresses, comma-separated.
    pub url: String,
    /// A directory that holds `<worker>.creds`, or one file for all workers; none for a server without authorization.
    pub credentials: Option<PathBuf>,
}

/// One worker's connection: a cheap handle.
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {}

/// A call of a function. The body is the argument bytes alone.
#[derive(Debug, Clone)]
pub struct Call {
    /// The function.
    pub function: FunctionId,
    /// `Some` calls the operator's subject as this principal.
    pub principal: Option<teamster_protocol::Principal>,
    /// The argument bytes.
    pub body: Bytes,
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
pub struct Subscription {}

impl Subscription {
    /// The next message; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<Plain> {
        todo!()
    }
}

impl Call {
    /// A call with nothing but a body and the default timeout.
    pub fn new(function: FunctionId, body: impl Into<Bytes>) -> Self {
        Self {
            function,
            principal: None,
            body: body.into(),
            call: None,
            session: None,
            workspace: None,
            functions: None,
            not_after_ms: None,
            timeout: teamster_protocol::limits::CALL_TIMEOUT,
        }
    }
}

impl Mesh {
    /// Connects as `worker` under a fresh incarnation. Reconnects without end afterwards.
    pub async fn connect(options: &Connect, worker: WorkerName) -> Result<Self, Error> {
        let _ = (options, worker);
        todo!()
    }

    /// The worker that this connection belongs to.
    pub fn worker(&self) -> &WorkerName {
        todo!()
    }

    /// This life of the worker.
    pub fn incarnation(&self) -> &Incarnation {
        todo!()
    }

    /// Calls a function and waits for its answer, for as long as the callee shows signs of life and the timeout allows.
    /// Nobody there: the fault `mesh.no_responders`; silence: `mesh.timeout`; the callee went away: `mesh.callee_lost`.
    pub async fn call(&self, call: Call) -> Result<Bytes, Fault> {
        let _ = call;
        todo!()
    }

    /// Asks the workers of a call's namespace what became of it: its outcome if it finished (waiting for it while it runs,
    /// until `timeout`), `None` if nobody knows of it.
    pub async fn call_outcome(
        &self,
        function: &FunctionId,
        call: &str,
        timeout: Duration,
    ) -> Result<Option<Result<Bytes, Fault>>, Error> {
        let _ = (function, call, timeout);
        todo!()
    }

    /// Tells whoever runs a call to stop; does not wait.
    pub async fn cancel_call(&self, function: &FunctionId, call: &str) {
        let _ = (function, call);
        todo!()
    }

    /// Publishes a plain message; at most once.
    pub async fn publish(&self, subject: String, body: Bytes) -> Result<(), Error> {
        let _ = (subject, body);
        todo!()
    }

    /// Subscribes to plain messages.
    pub async fn subscribe(&self, subject: String) -> Result<Subscription, Error> {
        let _ = subject;
        todo!()
    }

    /// Asks and waits for one answer. Nobody there is [`Error::NoResponders`] at once; silence is [`Error::Timeout`].
    pub async fn request(
        &self,
        subject: String,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Error> {
        let _ = (subject, body, timeout);
        todo!()
    }

    /// Sends what is buffered; returns when the server has taken it.
    pub async fn flush(&self) -> Result<(), Error> {
        todo!()
    }

    /// The sessions' logs.
    pub fn log(&self) -> Log {
        todo!()
    }

    /// The sessions' queues.
    pub fn lanes(&self) -> Lanes {
        todo!()
    }

    /// The sessions' snapshots.
    pub fn snaps(&self) -> Snaps {
        todo!()
    }

    /// Finished completions that are not committed yet.
    pub fn generations(&self) -> Generations {
        todo!()
    }

    /// Deltas of what is being generated.
    pub fn live(&self) -> Live {
        todo!()
    }

    /// Workers, functions and hooks. The first use starts the watch.
    pub async fn registry(&self) -> Result<Registry, Error> {
        todo!()
    }
}
