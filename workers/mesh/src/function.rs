//! What a worker is made of: functions with contracts, hooks, background tasks.

use std::{
    any::{Any, TypeId},
    future::Future,
    pin::Pin,
    sync::Arc,
};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use teamster_protocol::{
    Contract, Fault, FunctionId, Principal, SessionId, hook::Binding, id::WorkerName,
    policy::FunctionPolicy,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Live, Section, Take},
    connection::Mesh,
    near::Value,
};

/// A boxed future.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// The erased form of a handler: reads the body, writes the reply's body.
pub type Handler = Arc<dyn Fn(Ctx, Bytes) -> BoxFuture<Result<Bytes, Fault>> + Send + Sync>;
/// A background task of a worker: runs until the token is cancelled, then comes to an end by itself.
pub type Task = Box<dyn FnOnce(Mesh, CancellationToken) -> BoxFuture<()> + Send>;

/// What a handler knows about the call it serves.
#[derive(Clone)]
pub struct Ctx {
    /// The serving worker's connection.
    pub mesh: Mesh,
    /// The function's id.
    pub function: FunctionId,
    /// The call's id, which is its idempotency key; absent for calls without one.
    pub call: Option<String>,
    /// The session in whose name the call is made.
    pub session: Option<SessionId>,
    /// The session's workspace root.
    pub workspace: Option<String>,
    /// Who acts, read from a subject that the broker checked; absent on `fn.` subjects.
    pub principal: Option<Principal>,
    /// The calling turn's function policy, for functions that list functions.
    pub functions: Option<FunctionPolicy>,
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// Cancelled when the caller cancels the call or the worker drains beyond its limit.
    pub cancel: CancellationToken,
}

/// What a process adds to the figures of one of its endpoints, asked each time somebody asks for them. It must not block.
pub type Tell = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// One function: its contract and its handler.
#[derive(Clone)]
pub struct Function {
    /// What it declares.
    pub contract: Arc<Contract>,
    /// What it does.
    pub handler: Handler,
    /// The same for callers of the same process that have the request as a value.
    pub(crate) near: Option<NearHandler>,
}

type TakeValue = Arc<dyn Fn(Ctx, Value) -> BoxFuture<Result<Bytes, Fault>> + Send + Sync>;

/// What a function does with a request that was not written on its way.
#[derive(Clone)]
pub(crate) struct NearHandler {
    /// The request's type.
    pub(crate) takes: TypeId,
    pub(crate) handler: TakeValue,
}

impl Function {
    /// A function between bytes.
    pub fn raw(contract: Contract, handler: Handler) -> Self {
        Self {
            contract: Arc::new(contract),
            handler,
            near: None,
        }
    }

    /// A function like [`Function::new`] that takes its request from a caller of the same process as it is: for requests so large that
    /// writing and reading them is a cost.
    pub fn near<Request, Reply, Handle, Answer>(contract: Contract, handle: Handle) -> Self
    where
        Request: DeserializeOwned + JsonSchema + Any + Clone + Send + Sync,
        Reply: Serialize + JsonSchema + Send + 'static,
        Handle: Fn(Ctx, Request) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<Reply, Fault>> + Send + 'static,
    {
        let handle = Arc::new(handle);
        let taken = Arc::clone(&handle);
        let near = NearHandler {
            takes: TypeId::of::<Request>(),
            handler: Arc::new(move |ctx, value| {
                let handle = Arc::clone(&taken);
                Box::pin(async move {
                    let request = value.open::<Request>().ok_or_else(|| {
                        Fault::internal("mesh.reply", "a request of another type was handed over")
                    })?;
                    write(handle(ctx, request).await?)
                })
            }),
        };
        Self {
            near: Some(near),
            ..Self::new(contract, move |ctx, request| handle(ctx, request))
        }
    }

    /// A function between typed bodies. A body that is not a `Request` is answered with the fault `mesh.bad_request`,
    /// which names the place.
    pub fn new<Request, Reply, Handle, Answer>(contract: Contract, handle: Handle) -> Self
    where
        Request: DeserializeOwned + JsonSchema + Send + 'static,
        Reply: Serialize + JsonSchema + Send + 'static,
        Handle: Fn(Ctx, Request) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<Reply, Fault>> + Send + 'static,
    {
        let handle = Arc::new(handle);
        let handler: Handler = Arc::new(move |ctx, body| {
            let handle = Arc::clone(&handle);
            Box::pin(async move {
                let body = if body.is_empty() {
                    Bytes::from_static(b"{}")
                } else {
                    body
                };
                let request: Request = serde_json::from_slice(&body).map_err(|error| {
                    Fault::caller(
                        "mesh.bad_request",
                        format_args!("the request of {} is not valid: {error}", ctx.function),
                    )
                })?;
                write(handle(ctx, request).await?)
            })
        });
        Self::raw(contract, handler)
    }
}

fn write(reply: impl Serialize) -> Result<Bytes, Fault> {
    serde_json::to_vec(&reply)
        .map(Bytes::from)
        .map_err(|error| Fault::internal("mesh.reply", error))
}

/// A worker: what its crate's `worker(...)` function returns and [`crate::serve::serve`] runs.
pub struct Worker {
    /// Its name, which is also the first segment of the ids it owns (it may own more namespaces).
    pub name: WorkerName,
    /// What it is, in one sentence.
    pub description: String,
    /// What it serves.
    pub functions: Vec<Function>,
    /// The hooks it binds.
    pub hooks: Vec<Binding>,
    /// What each process says of itself under `data` of an endpoint in its answer to `STATS`. A request reaches one process of
    /// several; this can be asked of every one.
    pub tells: Vec<(FunctionId, Tell)>,
    /// What it does besides serving.
    pub tasks: Vec<(&'static str, Task)>,
    /// Its section of the configuration, where that may be replaced while it runs.
    pub config: Option<Arc<dyn Take>>,
}

impl Worker {
    /// A worker that serves nothing yet.
    pub fn new(name: WorkerName, description: &str) -> Self {
        Self {
            name,
            description: description.to_owned(),
            functions: Vec::new(),
            tells: Vec::new(),
            hooks: Vec::new(),
            tasks: Vec::new(),
            config: None,
        }
    }

    /// Lets whoever runs the worker replace its section of the configuration.
    pub fn config<C: Section>(mut self, live: &Live<C>) -> Self {
        self.config = Some(Arc::new(live.clone()));
        self
    }

    /// Like [`Worker::config`], for a worker that looks at more than the section itself before it takes one.
    pub fn config_of(mut self, taker: Arc<dyn Take>) -> Self {
        self.config = Some(taker);
        self
    }

    /// Adds a function.
    pub fn function(mut self, function: Function) -> Self {
        self.functions.push(function);
        self
    }

    /// Lets each process say something of itself under the endpoint of a function.
    pub fn telling<F>(mut self, function: FunctionId, tell: F) -> Self
    where
        F: Fn() -> serde_json::Value + Send + Sync + 'static,
    {
        self.tells.push((function, Arc::new(tell)));
        self
    }

    /// Binds a hook.
    pub fn hook(mut self, binding: Binding) -> Self {
        self.hooks.push(binding);
        self
    }

    /// Adds a background task. It is started once the worker is registered.
    pub fn task<F, Fut>(mut self, name: &'static str, task: F) -> Self
    where
        F: FnOnce(Mesh, CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.tasks.push((
            name,
            Box::new(move |mesh, cancel| Box::pin(task(mesh, cancel))),
        ));
        self
    }
}
