//! What most tests of the mesh need: a server with the topology, connections, sessions, and a worker of a few functions.

use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_mesh::{
    Connect, Ctx, Error, Function, Mesh, Worker,
    connection::Call,
    serve::{Serving, serve},
    topology::{Topology, ensure},
};
use teamster_protocol::{
    Contract, Fault, FunctionId, SessionId, Visibility,
    id::{MessageId, WorkerName},
};
use teamster_testkit::{Nats, proxy::Proxy};

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A server whose streams are there, and one connection.
pub(crate) async fn mesh() -> (Nats, Mesh) {
    let nats = Nats::start().await;
    let mesh = join(&nats, "harness").await;
    ensure(&mesh, &Topology { replicas: 1 })
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    (nats, mesh)
}

/// One more connection.
pub(crate) async fn join(nats: &Nats, worker: &str) -> Mesh {
    Mesh::connect(&options(nats), name(worker))
        .await
        .expect("connected")
}

/// One more connection, through a gate.
pub(crate) async fn behind(nats: &Nats, worker: &str) -> (Proxy, Mesh) {
    let proxy = Proxy::start(nats.address()).await;
    let options = Connect {
        url: proxy.url(),
        credentials: None,
    };
    let mesh = Mesh::connect(&options, name(worker)).await;
    (proxy, mesh.expect("connected"))
}

pub(crate) fn options(nats: &Nats) -> Connect {
    Connect {
        url: nats.url(),
        credentials: None,
    }
}

pub(crate) fn name(text: &str) -> WorkerName {
    WorkerName::parse(text).expect("a worker's name")
}

pub(crate) fn session(text: &str) -> SessionId {
    SessionId::parse(text).expect("a session id")
}

pub(crate) fn function(text: &str) -> FunctionId {
    FunctionId::parse(text).expect("a function id")
}

pub(crate) fn message(text: &str) -> MessageId {
    MessageId::parse(format!("msg_{text}")).expect("a message id")
}

/// An error with its sources.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What the functions here take.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Request {
    pub(crate) text: String,
}

/// What they answer.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Reply {
    pub(crate) text: String,
}

/// A function for everybody.
pub(crate) fn open<Handle, Answer>(id: &str, handle: Handle) -> Function
where
    Handle: Fn(Ctx, Request) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Reply, Fault>> + Send + 'static,
{
    Function::new(contract(id), handle)
}

/// The contract of a function for everybody.
pub(crate) fn contract(id: &str) -> Contract {
    let mut contract = Contract::new::<Request, Reply>(function(id), "A function of a test.");
    contract.visibility = Visibility::Agent;
    contract
}

/// A served worker `name` with these functions.
pub(crate) async fn served(mesh: &Mesh, name: &str, functions: Vec<Function>) -> Serving {
    let mut worker = Worker::new(self::name(name), "A worker of a test.");
    worker.functions = functions;
    serve(mesh.clone(), worker)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// A call of `id` with a text.
pub(crate) fn call(id: &str, text: &str) -> Call {
    let body = serde_json::json!({"text": text}).to_string();
    let mut call = Call::new(function(id), body);
    call.timeout = LIMIT;
    call
}

/// The text in a reply.
pub(crate) fn text(reply: &Bytes) -> String {
    serde_json::from_slice::<Reply>(reply)
        .expect("a reply of a function of a test")
        .text
}
