//! A broker, a gate, a function that can be judged, and logs that are written by hand.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};
use teamster_approval_gate::{Config, worker};
use teamster_mesh::{
    Connect, Function, Mesh, Worker,
    connection::Call,
    lane::Queued,
    serve::{Serving, serve},
};
use teamster_protocol::{
    ApprovalId, Arguments, CallId, Class, Contract, Data, Digest, Event, Fault, FunctionId, Lane,
    Phase, Principal, SessionId, Trust, TurnId, Visibility,
    function::approval::{ListReply, ListRequest},
    id::WorkerName,
    input::{ControlKind, Decide, Decision},
    policy::Effect,
};
use teamster_testkit::{
    Nats, Secured, connect,
    meshes::Server,
    prepare, wait,
    written::{Writer, judgement},
};

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// A time that is never over.
pub(crate) const NEVER_MS: u64 = u64::MAX / 2;

/// The broker of one test.
enum Broker {
    /// Everybody may do everything, so that a test can act as several operators.
    Open(Nats),
    /// The product's own: each worker may do what its part needs.
    Secured(Secured),
}

impl Server for Broker {
    fn options(&self) -> Connect {
        match self {
            Self::Open(nats) => nats.options(),
            Self::Secured(secured) => secured.options(),
        }
    }
}

/// The world of one test.
pub(crate) struct Rig {
    broker: Broker,
    /// The connection of the harness, which alone writes logs.
    pub(crate) mesh: Mesh,
    operator: Mesh,
    gate: Option<Serving>,
    _sandbox: Serving,
}

impl Rig {
    pub(crate) async fn start(config: &Config) -> Self {
        Self::with(Broker::Open(Nats::start().await), config).await
    }

    /// A world in which the broker checks who does what.
    pub(crate) async fn secured(config: &Config) -> Self {
        Self::with(Broker::Secured(Secured::start().await), config).await
    }

    async fn with(broker: Broker, config: &Config) -> Self {
        prepare(&broker).await;
        let served = connect(&broker, "sandbox").await;
        let sandbox = serve(served, sandbox()).await.expect("served");
        let mut rig = Self {
            mesh: connect(&broker, "harness").await,
            operator: connect(&broker, "operator").await,
            broker,
            gate: None,
            _sandbox: sandbox,
        };
        rig.start_gate(config).await;
        rig
    }

    /// Ends the gate that runs, if any, and starts another.
    pub(crate) async fn start_gate(&mut self, config: &Config) {
        self.stop_gate().await;
        let mesh = connect(&self.broker, "approval-gate").await;
        let gate = worker(config).expect("a gate");
        self.gate = Some(serve(mesh, gate).await.expect("served"));
    }

    /// Ends the gate that runs, if any.
    pub(crate) async fn stop_gate(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.drain().await;
        }
    }

    /// Calls a function of the gate, as `principal` or as a worker.
    pub(crate) async fn call<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        principal: Option<&str>,
        request: &Request,
    ) -> Result<Reply, Fault> {
        self.call_within(function, principal, request, LIMIT).await
    }

    pub(crate) async fn call_within<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        principal: Option<&str>,
        request: &Request,
        timeout: Duration,
    ) -> Result<Reply, Fault> {
        let body = serde_json::to_vec(request).expect("a body");
        let mut call = Call::new(FunctionId::parse(function).expect("an id"), body);
        call.principal = principal.map(|name| Principal::parse(name).expect("a principal"));
        call.timeout = timeout;
        // As in the product: the harness asks workers, a person asks through the operator's credentials.
        let caller = if principal.is_some() {
            &self.operator
        } else {
            &self.mesh
        };
        let reply = caller.call(call).await?;
        Ok(serde_json::from_slice(&reply).expect("a reply of the promised form"))
    }

    /// What the inbox lists.
    pub(crate) async fn listed(&self) -> Vec<ApprovalId> {
        let reply: ListReply = self
            .call("approval::list", Some("owner"), &ListRequest::default())
            .await
            .expect("a list");
        reply
            .pending
            .into_iter()
            .map(|pending| pending.approval_id)
            .collect()
    }

    /// Waits until the inbox lists exactly these.
    pub(crate) async fn lists(&self, wanted: &[ApprovalId]) {
        wait::until(LIMIT, "the inbox lists what waits", || async {
            self.listed().await == wanted
        })
        .await;
    }

    /// The first control input of a session after `after`, once there is one.
    pub(crate) async fn input(&self, session: &SessionId, after: u64) -> (Queued, Decide) {
        let queued = wait::some(LIMIT, "a decision is in the lane", || async {
            let lanes = self.mesh.lanes();
            lanes.next(session, Lane::Ctl, after).await.expect("a lane")
        })
        .await;
        assert_eq!(queued.kind, Some(ControlKind::Decide));
        let decide = serde_json::from_slice(&queued.body).expect("a decision");
        (queued, decide)
    }
}

/// A worker with the one function that the calls of these tests mean.
fn sandbox() -> Worker {
    let function = Function::new(contract(), |_, (): ()| async { Ok(()) });
    Worker::new(WorkerName::parse("sandbox").expect("a name"), "Writes.").function(function)
}

/// The contract of `fs::write`.
pub(crate) fn contract() -> Contract {
    let id = FunctionId::parse("fs::write").expect("an id");
    let mut contract = Contract::new::<(), ()>(id, "Writes a file.");
    (contract.class, contract.data, contract.trust) =
        (Class::Write, Data::Business, Trust::Trusted);
    contract.target = Some("/path".to_owned());
    contract.visibility = Visibility::Agent;
    contract
}

pub(crate) fn arguments(text: &str) -> Arguments {
    Arguments::parse(text).expect("arguments")
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::parse(name).expect("a session")
}

pub(crate) fn turn() -> TurnId {
    TurnId::parse("trn_1").expect("a turn")
}

pub(crate) fn approval(n: u64) -> ApprovalId {
    ApprovalId::parse(format!("apr_{n:04}")).expect("an approval")
}

pub(crate) fn call(n: u64) -> CallId {
    CallId::parse(format!("call_{n}")).expect("a call")
}

/// The bytes that every request of these tests is about.
pub(crate) fn asked() -> Arguments {
    arguments(r#"{"path": "a.txt", "content": "hello"}"#)
}

pub(crate) fn requested(n: u64, expires_at_ms: u64) -> Event {
    Event::ApprovalRequested {
        approval: approval(n),
        call: call(n),
        function: FunctionId::parse("fs::write").expect("an id"),
        arguments: asked(),
        judgement: judgement(Effect::Ask, "a.txt"),
        holder: FunctionId::parse("approval::gate").expect("an id"),
        rest: Vec::new(),
        expires_at_ms,
    }
}

pub(crate) fn resolved(n: u64, by: &str, decision: Decision) -> Event {
    Event::ApprovalResolved {
        approval: approval(n),
        call: call(n),
        by: Principal::parse(by).expect("a principal"),
        channel: "test".to_owned(),
        digest: asked().digest(),
        decision,
    }
}

pub(crate) fn expired(n: u64) -> Event {
    Event::ApprovalExpired {
        approval: approval(n),
        call: call(n),
        withdrawn: false,
    }
}

/// A session that has begun a turn.
pub(crate) async fn begun(rig: &Rig, name: &str) -> Writer {
    let mut writer = Writer::new(&rig.mesh, name);
    let begun = vec![
        Event::SessionCreated {
            metadata: std::collections::BTreeMap::new(),
            by: Principal::parse("owner").expect("a principal"),
            title: None,
            workspace: Some("/w".to_owned()),
        },
        Event::TurnStarted {
            turn: turn(),
            number: 1,
            options: None,
            config: Digest::ZERO,
            trace: None,
        },
    ];
    writer.commit(Phase::Active, begun).await;
    writer
}
