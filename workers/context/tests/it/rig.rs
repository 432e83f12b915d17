//! A broker with the product's own rights, a context worker, a router that knows one model, and logs that are written by hand.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use teamster_context::{Config, worker};
use teamster_core::context;
use teamster_mesh::{
    Function, Mesh, Worker,
    connection::Call,
    serve::{Serving, serve},
};
use teamster_protocol::{
    BlobRef, CallId, Class, Contract, Digest, Event, Fault, FunctionId, Message, MessageId, Phase,
    Principal, RequestId, SessionId, TurnId, Visibility,
    function::{
        context::{AssembleReply, AssembleRequest, History, ReadReply, ReadRequest},
        router::{Model, ModelsGetRequest},
    },
    id::WorkerName,
    input::TurnOptions,
    message::{Content, ResultKind, StopReason, WireCall},
    usage::Usage,
};
use teamster_testkit::{Secured, connect, prepare, written};

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// A model that the router knows, with a window of 32,768 tokens.
pub(crate) const KNOWN: &str = "test/known";

/// The world of one test.
pub(crate) struct Rig {
    broker: Secured,
    /// The connection of the harness, which alone writes logs.
    pub(crate) mesh: Mesh,
    /// How often the router was asked.
    pub(crate) asked: Arc<AtomicU32>,
    context: Option<Serving>,
    _router: Serving,
}

impl Rig {
    pub(crate) async fn start(config: &Config) -> Self {
        let broker = Secured::start().await;
        prepare(&broker).await;
        let asked = Arc::new(AtomicU32::new(0));
        let served = connect(&broker, "router").await;
        let router = serve(served, router(&asked)).await.expect("served");
        let mut rig = Self {
            mesh: connect(&broker, "harness").await,
            broker,
            asked,
            context: None,
            _router: router,
        };
        rig.start_context(config).await;
        rig
    }

    /// Ends the context worker that runs, if any, and starts another.
    pub(crate) async fn start_context(&mut self, config: &Config) {
        if let Some(context) = self.context.take() {
            context.drain().await;
        }
        let mesh = connect(&self.broker, "context").await;
        let context = worker(config).expect("a worker");
        self.context = Some(serve(mesh, context).await.expect("served"));
    }

    pub(crate) async fn call<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        session: Option<&SessionId>,
        request: &Request,
        timeout: Duration,
    ) -> Result<Reply, Fault> {
        let call = Call {
            session: session.cloned(),
            timeout,
            ..Call::new(
                FunctionId::parse(function).expect("an id"),
                serde_json::to_vec(request).expect("a body"),
            )
        };
        let reply = self.mesh.call(call).await?;
        Ok(serde_json::from_slice(&reply).expect("a reply of the promised form"))
    }

    pub(crate) async fn assemble(&self, request: &AssembleRequest) -> Result<AssembleReply, Fault> {
        self.call("context::assemble", None, request, LIMIT).await
    }

    pub(crate) async fn read(
        &self,
        session: &SessionId,
        request: &ReadRequest,
    ) -> Result<ReadReply, Fault> {
        self.call("context::read", Some(session), request, LIMIT)
            .await
    }

    /// Reads a whole result, page by page; says how many pages there were.
    pub(crate) async fn read_whole(&self, session: &SessionId, n: u64) -> (String, u32) {
        let (mut text, mut offset, mut pages) = (String::new(), 0, 0);
        loop {
            let request = ReadRequest {
                call: call(n),
                offset,
                length: None,
            };
            let reply = self.read(session, &request).await.expect("a page");
            text.push_str(&reply.text);
            pages += 1;
            match reply.next {
                Some(next) => offset = next,
                None => return (text, pages),
            }
        }
    }

    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

/// A router that knows one model.
fn router(asked: &Arc<AtomicU32>) -> Worker {
    let id = FunctionId::parse("router::models::get").expect("an id");
    let mut contract = Contract::new::<ModelsGetRequest, Model>(id, "Knows one model.");
    contract.class = Class::Read;
    contract.visibility = Visibility::Worker;
    let asked = Arc::clone(asked);
    let get = Function::new(contract, move |_, request: ModelsGetRequest| {
        asked.fetch_add(1, Ordering::SeqCst);
        let known = (request.model == KNOWN).then_some(Model {
            id: request.model,
            context_window: Some(32_768),
            max_output_tokens: Some(4096),
            price: None,
            scripted: false,
        });
        async move { known.ok_or_else(|| Fault::caller("router.unknown_model", "no such model")) }
    });
    Worker::new(WorkerName::parse("router").expect("a name"), "Knows.").function(get)
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::parse(name).expect("a session")
}

pub(crate) fn call(n: u64) -> CallId {
    CallId::parse(format!("call_{n}")).expect("a call")
}

/// Asks for the messages of a session at its newest commit.
pub(crate) fn of_session(name: &str, upto: Option<u64>) -> AssembleRequest {
    AssembleRequest {
        history: History::Session {
            session_id: session(name),
            upto,
        },
        model: KNOWN.to_owned(),
        system_prompt: None,
        functions_bytes: 0,
        max_output_tokens: 4096,
        plan_only: false,
    }
}

pub(crate) fn user(text: &str) -> Message {
    Message::User {
        id: MessageId::parse("msg_1").expect("an id"),
        from: Principal::parse("me").expect("a principal"),
        text: text.to_owned(),
    }
}

/// The texts of all results among messages.
pub(crate) fn results(messages: &[Arc<Message>]) -> Vec<&str> {
    messages
        .iter()
        .filter_map(|message| match message.as_ref() {
            Message::FunctionResult { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// The log of one session.
pub(crate) struct Writer(written::Writer);

impl Writer {
    /// A session with one message, whose turn runs.
    pub(crate) async fn new(rig: &Rig, name: &str, text: &str) -> Self {
        let mut writer = Self(written::Writer::new(&rig.mesh, name));
        let begun = vec![
            Event::SessionCreated {
                by: Principal::parse("me").expect("a principal"),
                title: None,
                workspace: None,
                metadata: BTreeMap::new(),
            },
            Event::MessageAdded {
                message: user(text),
                options: TurnOptions::default(),
                appended: false,
            },
            Event::TurnStarted {
                turn: TurnId::parse("trn_1").expect("a turn"),
                number: 1,
                options: Some(TurnOptions {
                    model: Some(KNOWN.to_owned()),
                    ..TurnOptions::default()
                }),
                config: Digest::ZERO,
                trace: None,
            },
        ];
        writer.commit(begun).await;
        writer
    }

    /// Adds a step: a generation with one call, and its result. The whole is stored where the log cannot hold it.
    pub(crate) async fn step(&mut self, n: u64, result: &str) {
        let request = RequestId::of(&self.0.session, self.0.n + 1, 1);
        let whole = if context::fits(result) {
            None
        } else {
            let bytes = bytes::Bytes::from(result.to_owned());
            Some(self.0.mesh.blobs().put(bytes).await.expect("is stored"))
        };
        let wire = WireCall {
            call: call(n),
            name: "fs__read".to_owned(),
            arguments: "{}".to_owned(),
        };
        let message = Message::Assistant {
            id: MessageId::parse(format!("msg_a{n}")).expect("an id"),
            content: vec![Content::Call(wire)],
            partial: false,
        };
        let events = vec![
            Event::GenerationStarted {
                request: request.clone(),
                step: 0,
                reserved: 0,
            },
            Event::GenerationFinished {
                request,
                message: Some(message),
                stop: StopReason::Call,
                usage: Usage::default(),
                cost: None,
                model: KNOWN.to_owned(),
                attempts: 1,
                estimated: 0,
            },
            Event::CallProposed {
                call: call(n),
                function: FunctionId::parse("fs::read").ok(),
                digest: None,
            },
            Event::CallStarted { call: call(n) },
            finished(n, result, whole),
        ];
        self.commit(events).await;
    }

    pub(crate) async fn commit(&mut self, events: Vec<Event>) {
        self.0.commit(Phase::Active, events).await;
    }
}

fn finished(n: u64, result: &str, whole: Option<BlobRef>) -> Event {
    Event::CallFinished {
        call: call(n),
        outcome: ResultKind::Ok,
        text: context::fit(&call(n), result, whole.map(|blob| blob.bytes)),
        whole,
        duration_ms: 1,
    }
}
