//! A whole mesh for one scenario: a real nats-server, the harness and the approval-gate as they are, and in place of models
//! and systems what the scenario says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use teamster::harness;
use teamster_mesh::{
    Connect, Function, Mesh, Worker,
    connection::Call,
    function::{BoxFuture, Ctx, Handler},
    serve::{Serving, serve},
    topology::{self, Topology},
};
use teamster_protocol::{
    Class, Commit, Contract, Data, Event, Fault, FunctionId, Message, Principal, RequestId,
    SessionId, Trust, Visibility,
    event::EndReason,
    function::{
        approval::{ListReply, Pending, ResolveReply, ResolveRequest},
        harness::{SendReply, SendRequest, StatusReply},
        router::{
            AbortReply, AbortRequest, ChatRequest, Completion, Model as ModelInfo,
            ModelsGetRequest, Part, Price,
        },
    },
    id::{Incarnation, WorkerName},
    input::{Decision, TurnOptions},
    message::{ResultKind, StopReason},
    policy::FunctionPolicy,
    usage::Usage,
};
use teamster_testkit::{nats::Nats, wait};
use tokio::sync::{Notify, Semaphore};

pub const LIMIT: Duration = Duration::from_secs(20);

/// What the model of a scenario answers.
pub type Model = Arc<dyn Fn(&ChatRequest) -> Completion + Send + Sync>;

/// A gate that a scenario holds shut.
pub struct Gate {
    open: Semaphore,
    reached: Mutex<u32>,
    news: Notify,
}

impl Gate {
    pub fn shut() -> Arc<Self> {
        Arc::new(Self {
            open: Semaphore::new(0),
            reached: Mutex::new(0),
            news: Notify::new(),
        })
    }

    pub fn open(&self) {
        self.open.add_permits(Semaphore::MAX_PERMITS / 4);
    }

    pub async fn pass(&self) {
        *self.reached.lock().expect("lock") += 1;
        self.news.notify_waiters();
        self.open.acquire().await.expect("never closed").forget();
    }

    /// Waits until somebody stands before the gate.
    pub async fn reached(&self, times: u32) {
        wait::until(LIMIT, "somebody at the gate", || async {
            *self.reached.lock().expect("lock") >= times
        })
        .await;
    }
}

/// How often functions took effect, by name.
pub type Counts = Arc<Mutex<BTreeMap<String, u32>>>;

pub struct Scene {
    pub nats: Nats,
    pub operator: Mesh,
    pub counts: Counts,
    pub requests: Arc<Mutex<Vec<ChatRequest>>>,
    /// The bodies that functions were called with, byte for byte, in order.
    pub bodies: Arc<Mutex<Vec<String>>>,
    serving: Vec<(String, Serving)>,
}

/// What a scene is made of.
pub struct Parts {
    pub model: Model,
    /// Generations wait here, if there is a gate.
    pub model_gate: Option<Arc<Gate>>,
    /// Calls of `t::slow` wait here.
    pub call_gate: Option<Arc<Gate>>,
    pub harness: harness::Config,
    pub with_gate_worker: bool,
    /// How the approval-gate is configured.
    pub gate: teamster_approval_gate::Config,
    /// The price that `router::models::get` tells; without one the model has none.
    pub price: Option<Price>,
    /// A router of its own in place of the model by script.
    pub router: Option<Worker>,
    /// Further workers.
    pub workers: Vec<Worker>,
}

impl Parts {
    pub fn new(model: impl Fn(&ChatRequest) -> Completion + Send + Sync + 'static) -> Self {
        Self {
            model: Arc::new(model),
            model_gate: None,
            call_gate: None,
            harness: harness::Config {
                default_model: "test/model".to_owned(),
                ..harness::Config::default()
            },
            with_gate_worker: true,
            gate: teamster_approval_gate::Config::default(),
            price: None,
            router: None,
            workers: Vec::new(),
        }
    }
}

pub fn name(text: &str) -> WorkerName {
    WorkerName::parse(text).expect("valid")
}

pub fn id(text: &str) -> FunctionId {
    FunctionId::parse(text).expect("valid")
}

pub fn session(text: &str) -> SessionId {
    SessionId::parse(text).expect("valid")
}

pub fn says(text: &str) -> Completion {
    completion(
        vec![Part::Text {
            text: text.to_owned(),
        }],
        StopReason::End,
    )
}

pub fn calls(calls: &[(&str, Value)]) -> Completion {
    let parts = calls
        .iter()
        .map(|(name, arguments)| Part::Call {
            name: name.replace("::", "__"),
            arguments: arguments.to_string(),
        })
        .collect();
    completion(parts, StopReason::Call)
}

/// One call whose argument text is taken as it is.
pub fn raw_call(name: &str, arguments: &str) -> Completion {
    let part = Part::Call {
        name: name.replace("::", "__"),
        arguments: arguments.to_owned(),
    };
    completion(vec![part], StopReason::Call)
}

/// What each call came to, in the order of the log.
pub fn outcomes(events: &[Event]) -> Vec<ResultKind> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::CallFinished { outcome, .. } | Event::CallRefused { outcome, .. } => {
                Some(*outcome)
            }
            _ => None,
        })
        .collect()
}

pub fn completion(parts: Vec<Part>, stop: StopReason) -> Completion {
    Completion {
        parts,
        stop,
        error: None,
        usage: Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        },
        cost: None,
        model: "test/model".to_owned(),
        attempts: 1,
    }
}

/// The kinds of the last messages, newest last: what scripted models look at.
pub fn results(request: &ChatRequest) -> Vec<String> {
    let turn = request
        .messages
        .iter()
        .rposition(|message| matches!(message.as_ref(), Message::User { .. }))
        .unwrap_or(0);
    request.messages[turn..]
        .iter()
        .filter_map(|message| match message.as_ref() {
            Message::FunctionResult { text, .. } => Some(text.clone()),
            _ => None,
        })
        .collect()
}

impl Scene {
    pub async fn start(mut parts: Parts) -> Self {
        let nats = Nats::start().await;
        let connect = Connect {
            url: nats.url(),
            credentials: None,
        };
        let operator = Mesh::connect(&connect, name("operator"))
            .await
            .expect("connects");
        topology::ensure(&operator, &Topology { replicas: 1 })
            .await
            .expect("ensures");
        let mut scene = Self {
            nats,
            operator,
            counts: Counts::default(),
            requests: Arc::default(),
            bodies: Arc::default(),
            serving: Vec::new(),
        };
        let router = parts.router.take().unwrap_or_else(|| scene.router(&parts));
        let functions = scene.functions(parts.call_gate.as_ref());
        scene.serve(router).await;
        scene.serve(functions).await;
        if parts.with_gate_worker {
            scene
                .serve(teamster_approval_gate::worker(&parts.gate).expect("gate"))
                .await;
        }
        for worker in parts.workers {
            scene.serve(worker).await;
        }
        scene
            .serve(harness::worker(&parts.harness).expect("harness"))
            .await;
        scene
            .wait_for(&["t::read", "router::chat", "harness::send"])
            .await;
        if parts.with_gate_worker {
            let registry = scene.operator.registry().await.expect("registry");
            registry
                .wait(LIMIT, |catalog| !catalog.hooks.is_empty())
                .await;
        }
        scene
    }

    pub async fn serve(&mut self, worker: Worker) -> Incarnation {
        let key = worker.name.to_string();
        let mesh = self.connect(worker.name.as_str()).await;
        let incarnation = mesh.incarnation().clone();
        self.serving
            .push((key, serve(mesh, worker).await.expect("serves")));
        incarnation
    }

    /// Ends a worker in good order.
    pub async fn drain(&mut self, worker: &str) {
        let index = self
            .serving
            .iter()
            .position(|(name, _)| name == worker)
            .expect("is served");
        self.serving.remove(index).1.drain().await;
    }

    pub async fn connect(&self, worker: &str) -> Mesh {
        let connect = Connect {
            url: self.nats.url(),
            credentials: None,
        };
        Mesh::connect(&connect, name(worker))
            .await
            .expect("connects")
    }

    pub async fn wait_for(&self, functions: &[&str]) {
        let registry = self.operator.registry().await.expect("registry");
        let wanted: Vec<FunctionId> = functions.iter().map(|text| id(text)).collect();
        let catalog = registry
            .wait(LIMIT, |catalog| {
                wanted.iter().all(|id| catalog.functions.contains_key(id))
            })
            .await;
        for id in &wanted {
            assert!(catalog.functions.contains_key(id), "{id} is not registered");
        }
    }

    fn router(&self, parts: &Parts) -> Worker {
        let (model, gate, requests) = (
            parts.model.clone(),
            parts.model_gate.clone(),
            Arc::clone(&self.requests),
        );
        let aborted: Arc<Mutex<BTreeMap<RequestId, Arc<Notify>>>> = Arc::default();
        let mut chat =
            Contract::new::<ChatRequest, Completion>(id("router::chat"), "A model by script.");
        chat.visibility = Visibility::Worker;
        chat.timeout_ms = Some(320_000);
        let aborts = Arc::clone(&aborted);
        let chat = Function::new(chat, move |_, request: ChatRequest| {
            let (model, gate, requests, aborts) = (
                model.clone(),
                gate.clone(),
                Arc::clone(&requests),
                Arc::clone(&aborts),
            );
            async move {
                requests.lock().expect("lock").push(request.clone());
                let stop = Arc::new(Notify::new());
                aborts
                    .lock()
                    .expect("lock")
                    .insert(request.request_id.clone(), Arc::clone(&stop));
                if let Some(gate) = gate {
                    tokio::select! {
                        () = gate.pass() => {}
                        () = stop.notified() => {
                            return Ok(completion(vec![Part::Text { text: "half of".to_owned() }], StopReason::Aborted));
                        }
                    }
                }
                Ok(model(&request))
            }
        });
        let mut abort =
            Contract::new::<AbortRequest, AbortReply>(id("router::abort"), "Ends a generation.");
        abort.visibility = Visibility::Worker;
        let abort = Function::new(abort, move |_, request: AbortRequest| {
            let found = aborted
                .lock()
                .expect("lock")
                .get(&request.request_id)
                .cloned();
            async move {
                if let Some(stop) = &found {
                    stop.notify_one();
                }
                Ok(AbortReply {
                    aborted: found.is_some(),
                })
            }
        });
        let worker = Worker::new(name("router"), "A model by script.")
            .function(chat)
            .function(abort);
        let Some(price) = parts.price.clone() else {
            return worker;
        };
        let mut get = Contract::new::<ModelsGetRequest, ModelInfo>(
            id("router::models::get"),
            "Tells a price.",
        );
        get.visibility = Visibility::Worker;
        worker.function(Function::new(get, move |_, request: ModelsGetRequest| {
            let price = Some(price.clone());
            async move {
                Ok(ModelInfo {
                    id: request.model,
                    context_window: None,
                    max_output_tokens: None,
                    price,
                    scripted: true,
                })
            }
        }))
    }

    fn functions(&self, call_gate: Option<&Arc<Gate>>) -> Worker {
        let mut worker = Worker::new(name("t"), "Functions that count.");
        for (function, class) in [
            ("t::read", Class::Read),
            ("t::write", Class::Write),
            ("t::slow", Class::Write),
            ("t::destroy", Class::Destructive),
            ("t::fail", Class::Write),
        ] {
            let mut contract = Contract::new::<Value, Value>(id(function), "Counts.");
            contract.class = class;
            contract.data = Data::Public;
            contract.trust = Trust::Trusted;
            contract.visibility = Visibility::Agent;
            contract.timeout_ms = Some(60_000);
            let (counts, gate, bodies) = (
                Arc::clone(&self.counts),
                call_gate.cloned(),
                Arc::clone(&self.bodies),
            );
            let handle = move |ctx: Ctx, body: bytes::Bytes| -> BoxFuture<Result<Value, Fault>> {
                let (counts, gate) = (Arc::clone(&counts), gate.clone());
                bodies
                    .lock()
                    .expect("lock")
                    .push(String::from_utf8(body.to_vec()).expect("text"));
                let request: Value = serde_json::from_slice(&body).expect("JSON");
                Box::pin(async move {
                    let count = {
                        let mut counts = counts.lock().expect("lock");
                        let count = counts.entry(function.to_owned()).or_default();
                        *count += 1;
                        *count
                    };
                    if function == "t::slow"
                        && let Some(gate) = gate
                    {
                        tokio::select! {
                            () = gate.pass() => {}
                            () = ctx.cancel.cancelled() => return Err(Fault::gone("t.cancelled", "cancelled")),
                        }
                    }
                    if function == "t::fail" {
                        return Err(Fault::caller("t.failed", "it failed"));
                    }
                    Ok(json!({"count": count, "echo": request}))
                })
            };
            let handler: Handler = Arc::new(move |ctx, body| {
                let answer = handle(ctx, body);
                Box::pin(async move { Ok(answer.await?.to_string().into()) })
            });
            worker = worker.function(Function::raw(contract, handler));
        }
        worker
    }

    pub async fn operate<Reply: serde::de::DeserializeOwned>(
        &self,
        function: &str,
        request: &Value,
    ) -> Result<Reply, Fault> {
        let call = Call {
            principal: Some(Principal::parse("owner").expect("valid")),
            timeout: LIMIT,
            ..Call::new(id(function), request.to_string())
        };
        let reply = self.operator.call(call).await?;
        Ok(serde_json::from_slice(&reply).expect("a reply of the stated form"))
    }

    pub async fn send(&self, session: &SessionId, text: &str) -> SendReply {
        self.send_with(session, text, None).await.expect("accepted")
    }

    pub async fn send_with(
        &self,
        session: &SessionId,
        text: &str,
        key: Option<&str>,
    ) -> Result<SendReply, Fault> {
        let request = SendRequest {
            session_id: Some(session.clone()),
            message: text.to_owned(),
            idempotency_key: key.map(str::to_owned),
            options: TurnOptions {
                functions: Some(FunctionPolicy {
                    allow: vec!["t::*".to_owned()],
                    ..FunctionPolicy::default()
                }),
                ..TurnOptions::default()
            },
            ..SendRequest::default()
        };
        self.operate(
            "harness::send",
            &serde_json::to_value(request).expect("encodes"),
        )
        .await
    }

    /// Sends with these options, in which functions that are left out mean `t::*`.
    pub async fn send_options(
        &self,
        session: &SessionId,
        text: &str,
        mut options: TurnOptions,
    ) -> SendReply {
        options.functions.get_or_insert_with(|| FunctionPolicy {
            allow: vec!["t::*".to_owned()],
            ..FunctionPolicy::default()
        });
        let request = SendRequest {
            session_id: Some(session.clone()),
            message: text.to_owned(),
            options,
            ..SendRequest::default()
        };
        self.operate(
            "harness::send",
            &serde_json::to_value(request).expect("encodes"),
        )
        .await
        .expect("accepted")
    }

    /// Waits until nothing runs in the session and nothing waits in its queue.
    pub async fn idle(&self, session: &SessionId) {
        wait::until(LIMIT, "an idle session with an empty queue", || async {
            let status = self.status(session).await;
            status.status == "idle" && status.queued == 0
        })
        .await;
    }

    pub async fn status(&self, session: &SessionId) -> StatusReply {
        self.operate("harness::status", &json!({"session_id": session}))
            .await
            .expect("a status")
    }

    /// The session's commits.
    pub async fn commits(&self, session: &SessionId) -> Vec<Commit> {
        let log = self.operator.log();
        let Some(tail) = log.tail(session).await.expect("a tail") else {
            return Vec::new();
        };
        let stored = log.read(session, 0, tail.seq).await.expect("a log");
        stored
            .iter()
            .map(|stored| Commit::decode(&stored.body).expect("readable"))
            .collect()
    }

    pub async fn events(&self, session: &SessionId) -> Vec<Event> {
        self.commits(session)
            .await
            .into_iter()
            .flat_map(|commit| commit.events)
            .collect()
    }

    /// Waits until this many turns have ended, and returns their reasons.
    pub async fn ended(&self, session: &SessionId, turns: usize) -> Vec<EndReason> {
        wait::some(LIMIT, "the turn's end", || async {
            let reasons: Vec<EndReason> = self
                .events(session)
                .await
                .into_iter()
                .filter_map(|event| match event {
                    Event::TurnEnded { reason, .. } => Some(reason),
                    _ => None,
                })
                .collect();
            (reasons.len() >= turns).then_some(reasons)
        })
        .await
    }

    pub async fn pending(&self) -> Pending {
        wait::some(LIMIT, "a request for a decision", || async {
            let reply: ListReply = self.operate("approval::list", &json!({})).await.ok()?;
            reply.pending.into_iter().next()
        })
        .await
    }

    pub async fn resolve(
        &self,
        pending: &Pending,
        decision: Decision,
    ) -> Result<ResolveReply, Fault> {
        let request = ResolveRequest {
            approval_id: pending.approval_id.clone(),
            digest: pending.digest,
            decision,
            channel: "test".to_owned(),
        };
        self.operate(
            "approval::resolve",
            &serde_json::to_value(request).expect("encodes"),
        )
        .await
    }

    pub fn count(&self, function: &str) -> u32 {
        self.counts
            .lock()
            .expect("lock")
            .get(function)
            .copied()
            .unwrap_or(0)
    }
}
