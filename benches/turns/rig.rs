//! A whole mesh for a measurement: a real nats-server of one flush class, all workers of a turn as `teamster up` hosts them,
//! a function that answers with one kilobyte, and a model that answers at once.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use teamster::{config::Config, host::Host};
use teamster_mesh::{
    Connect, Function, Mesh, Worker,
    connection::Call,
    serve::{Serving, serve},
    topology::{self, Topology},
};
use teamster_protocol::{
    Class, Contract, Data, Fault, FunctionId, Principal, SessionId, Trust, Visibility,
    function::harness::{SendReply, SendRequest},
    id::WorkerName,
    input::TurnOptions,
    limits,
    policy::FunctionPolicy,
    wire_name,
};
use teamster_testkit::{Nats, nats::Options, wait};

use crate::{model::Model, stream::Paced};

/// Longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// The function that a turn calls.
pub(crate) const LOOKUP: &str = "bench::lookup";
/// The model that answers at once.
const INSTANT: &str = "bench/instant";
/// The model that hands out a word at a time.
pub(crate) const PACED: &str = "paced/words";
/// Bytes of its result.
const RESULT_BYTES: usize = 1024;
/// The workers of a turn, besides the one that serves the function.
const WORKERS: [&str; 5] = ["router", "context", "approval-gate", "session", "harness"];

/// A running mesh.
pub(crate) struct Rig {
    pub(crate) nats: Nats,
    pub(crate) operator: Mesh,
    pub(crate) model: Model,
    pub(crate) paced: Paced,
    host: Host,
    function: Serving,
}

pub(crate) fn id(text: &str) -> FunctionId {
    FunctionId::parse(text).expect("a function id")
}

/// A contract that the built-in policy allows without a question.
pub(crate) fn contract(function: &str) -> Contract {
    let mut contract =
        Contract::new::<Value, Value>(id(function), "Looks something up in the ledger.");
    contract.class = Class::Read;
    contract.data = Data::Public;
    contract.trust = Trust::Trusted;
    contract.visibility = Visibility::Agent;
    contract
}

/// The configuration of all workers, with this model as the default one.
pub(crate) fn config(model: &Model) -> Config {
    parsed(&text(model))
}

fn parsed(text: &str) -> Config {
    Config::over_default(Path::new("bench.yaml"), text).expect("a configuration")
}

/// The same as a configuration file. The window is so large that nothing is left out of a request.
pub(crate) fn text(model: &Model) -> String {
    with(&format!("bench: {{base_url: '{}'}}", model.base_url()))
}

fn with_paced(model: &Model, paced: &Paced) -> String {
    with(&format!(
        "bench: {{base_url: '{}'}}, paced: {{base_url: '{}'}}",
        model.base_url(),
        paced.base_url()
    ))
}

fn with(providers: &str) -> String {
    format!(
        "harness: {{default_model: {INSTANT}}}\nrouter: {{providers: {{{providers}}}}}\n\
         context: {{windows: {{{INSTANT}: 1000000}}}}\n"
    )
}

/// The name under which the model knows the function.
pub(crate) fn wire() -> String {
    wire_name::encode(&id(LOOKUP))
}

pub(crate) async fn connect(nats: &Nats, name: &str) -> Mesh {
    let name = WorkerName::parse(name).expect("a worker's name");
    Mesh::connect(&reach(nats), name).await.expect("connects")
}

pub(crate) fn reach(nats: &Nats) -> Connect {
    Connect {
        url: nats.url(),
        credentials: None,
    }
}

/// A server with the streams of the product, and an operator's connection.
pub(crate) async fn server(always: bool) -> (Nats, Mesh) {
    let nats = Nats::start_with(Options { always }).await;
    let operator = connect(&nats, "operator").await;
    topology::ensure(&operator, &Topology { replicas: 1 })
        .await
        .expect("ensures");
    (nats, operator)
}

/// Waits until functions are registered and the gate's hook is bound.
pub(crate) async fn ready(operator: &Mesh, functions: &[&str]) {
    let wanted: Vec<FunctionId> = functions.iter().map(|text| id(text)).collect();
    let registry = operator.registry().await.expect("a registry");
    let catalog = registry
        .wait(LIMIT, |catalog| {
            !catalog.hooks.is_empty() && wanted.iter().all(|id| catalog.functions.contains_key(id))
        })
        .await;
    assert!(!catalog.hooks.is_empty(), "the gate's hook is bound");
}

/// Sends a message as the owner, for the instant model; its turn may call what `bench::*` names.
pub(crate) async fn send(
    operator: &Mesh,
    session: &SessionId,
    text: &str,
) -> Result<SendReply, Fault> {
    send_to(operator, session, text, INSTANT).await
}

/// The same for another model.
pub(crate) async fn send_to(
    operator: &Mesh,
    session: &SessionId,
    text: &str,
    model: &str,
) -> Result<SendReply, Fault> {
    let request = SendRequest {
        session_id: Some(session.clone()),
        message: text.to_owned(),
        options: TurnOptions {
            model: Some(model.to_owned()),
            functions: Some(FunctionPolicy {
                allow: vec!["bench::*".to_owned()],
                ..FunctionPolicy::default()
            }),
            ..TurnOptions::default()
        },
        ..SendRequest::default()
    };
    let call = Call {
        principal: Some(Principal::parse("owner").expect("a principal")),
        ..Call::new(
            id("harness::send"),
            serde_json::to_vec(&request).expect("encodes"),
        )
    };
    let reply = operator.call(call).await?;
    Ok(serde_json::from_slice(&reply).expect("a reply of the stated form"))
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::parse(name).expect("a session id")
}

impl Rig {
    /// Starts everything.
    pub(crate) async fn start(always: bool) -> Self {
        let (nats, operator) = server(always).await;
        let model = Model::start(&wire()).await;
        let paced = Paced::start().await;
        let result = json!({"value": "x".repeat(RESULT_BYTES - "{\"value\":\"\"}".len())});
        let lookup = Function::new(contract(LOOKUP), move |_, _: Value| {
            let result = result.clone();
            async move { Ok(result) }
        });
        let name = WorkerName::parse("bench").expect("a worker's name");
        let worker = Worker::new(name, "Answers with one kilobyte.").function(lookup);
        let function = serve(connect(&nats, "bench").await, worker)
            .await
            .expect("serves");
        let config = parsed(&with_paced(&model, &paced));
        let host = Host::start(&reach(&nats), &config, &WORKERS)
            .await
            .expect("hosts the workers");
        ready(&operator, &[LOOKUP, "router::chat", "harness::send"]).await;
        Self {
            nats,
            operator,
            model,
            paced,
            host,
            function,
        }
    }

    /// One call of the function, as the harness makes it.
    pub(crate) async fn call(&self) -> Duration {
        let begun = Instant::now();
        let call = Call::new(id(LOOKUP), r#"{"key":"order-0"}"#);
        self.operator.call(call).await.expect("answers");
        begun.elapsed()
    }

    /// Waits until the notices of all commits are stored. They follow the commits at their own pace, and what is measured next
    /// would pay for what went before.
    pub(crate) async fn rests(&self) {
        wait::until(LIMIT, "the notices of all commits are stored", || async {
            for log in 0..limits::LOG_STREAMS {
                let answer = self
                    .operator
                    .request(
                        format!("$JS.API.CONSUMER.INFO.LOG_{log}.events"),
                        json!({}).to_string().into(),
                        limits::BROKER_REQUEST,
                    )
                    .await
                    .expect("the broker answers");
                let info: Value = serde_json::from_slice(&answer).expect("JSON");
                let is_zero = |key: &str| info.get(key).and_then(Value::as_u64) == Some(0);
                if !is_zero("num_pending") || !is_zero("num_ack_pending") {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// Ends the workers in order; the server ends with its handle.
    pub(crate) async fn stop(self) {
        self.host.drain().await;
        self.function.drain().await;
    }
}
