//! A broker, a session worker, and logs that are written by hand.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use teamster_mesh::{
    Connect, Mesh,
    connection::Call,
    serve::{Serving, serve},
    topology::{Topology, ensure},
};
use teamster_protocol::{
    Commit, Cursor, Digest, Event, Fault, FunctionId, Head, Lane, Message, MessageId, Phase,
    Principal, RequestId, SessionId, TurnId,
    commit::{Bell, VERSION},
    event::EndReason,
    id::{Incarnation, WorkerName},
    input::TurnOptions,
    message::{Content, StopReason},
    usage::{NanoUsd, Usage},
};
use teamster_session::{Config, worker};
use teamster_testkit::Nats;

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The world of one test.
pub(crate) struct Rig {
    pub(crate) nats: Nats,
    /// The connection of the harness, which alone writes logs.
    pub(crate) mesh: Mesh,
    operator: Mesh,
    dir: tempfile::TempDir,
    served: Option<Serving>,
}

pub(crate) async fn connect(nats: &Nats, name: &str) -> Mesh {
    let options = Connect {
        url: nats.url(),
        credentials: None,
    };
    let name = WorkerName::parse(name).expect("a name");
    Mesh::connect(&options, name).await.expect("a connection")
}

impl Rig {
    /// A broker and a worker with its file.
    pub(crate) async fn start() -> Self {
        let mut rig = Self::without_worker().await;
        rig.start_worker().await;
        rig
    }

    /// A broker alone.
    pub(crate) async fn without_worker() -> Self {
        let nats = Nats::start().await;
        let topology = connect(&nats, "topology").await;
        ensure(&topology, &Topology { replicas: 1 })
            .await
            .expect("a topology");
        Self {
            mesh: connect(&nats, "harness").await,
            operator: connect(&nats, "operator").await,
            nats,
            dir: tempfile::tempdir().expect("a folder"),
            served: None,
        }
    }

    /// The projection's file.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("session.sqlite")
    }

    /// Starts the worker with its file.
    pub(crate) async fn start_worker(&mut self) {
        self.serve(Some(self.file())).await;
    }

    /// Ends the worker that runs, if any, and starts another with this file.
    pub(crate) async fn serve(&mut self, file: Option<PathBuf>) {
        self.stop_worker().await;
        let mesh = connect(&self.nats, "session").await;
        let worker = worker(&Config { file }).expect("a worker");
        self.served = Some(serve(mesh, worker).await.expect("served"));
    }

    /// Ends the worker that runs, if any.
    pub(crate) async fn stop_worker(&mut self) {
        if let Some(served) = self.served.take() {
            served.drain().await;
        }
    }

    /// Asks the worker as its operator.
    pub(crate) async fn ask<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        request: &Request,
    ) -> Result<Reply, Fault> {
        let body = serde_json::to_vec(request).expect("a body");
        let mut call = Call::new(FunctionId::parse(function).expect("an id"), body);
        call.principal = Some(owner());
        call.timeout = LIMIT;
        let reply = self.operator.call(call).await?;
        Ok(serde_json::from_slice(&reply).expect("a reply of the promised form"))
    }
}

pub(crate) fn owner() -> Principal {
    Principal::parse("owner").expect("a principal")
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::parse(name).expect("a session")
}

pub(crate) fn created(title: &str) -> Event {
    Event::SessionCreated {
        by: owner(),
        title: Some(title.to_owned()),
        workspace: None,
        metadata: BTreeMap::new(),
    }
}

pub(crate) fn said(text: &str) -> Event {
    Event::MessageAdded {
        message: Message::User {
            id: MessageId::parse("msg_1").expect("an id"),
            from: owner(),
            text: text.to_owned(),
        },
        options: TurnOptions::default(),
    }
}

pub(crate) fn began(number: u64) -> Event {
    Event::TurnStarted {
        turn: TurnId::parse(format!("trn_{number}")).expect("a turn"),
        number,
        options: (number == 1).then(|| TurnOptions {
            model: Some("test/asked".to_owned()),
            ..TurnOptions::default()
        }),
        config: Digest::ZERO,
    }
}

pub(crate) fn ended(number: u64) -> Event {
    Event::TurnEnded {
        turn: TurnId::parse(format!("trn_{number}")).expect("a turn"),
        reason: EndReason::Completed,
    }
}

pub(crate) fn answered(n: u64, text: &str, model: &str, output: u64, cost: Option<u64>) -> Event {
    Event::GenerationFinished {
        request: RequestId::parse(format!("s.{n}.1")).expect("a request"),
        message: Some(Message::Assistant {
            id: MessageId::parse("msg_2").expect("an id"),
            content: vec![Content::Text {
                text: text.to_owned(),
            }],
            partial: false,
        }),
        stop: StopReason::End,
        usage: Usage {
            output,
            ..Usage::default()
        },
        cost: cost.map(NanoUsd),
        model: model.to_owned(),
        attempts: 1,
    }
}

/// The log of one session, written by hand.
pub(crate) struct Writer {
    mesh: Mesh,
    pub(crate) session: SessionId,
    pub(crate) n: u64,
    pub(crate) seq: u64,
    pub(crate) prev: Digest,
}

impl Writer {
    /// A session that was never written.
    pub(crate) fn new(rig: &Rig, name: &str) -> Self {
        Self {
            mesh: rig.mesh.clone(),
            session: session(name),
            n: 0,
            seq: 0,
            prev: Digest::ZERO,
        }
    }

    /// Adds a commit. Its time is its number in seconds.
    pub(crate) async fn commit(&mut self, phase: Phase, events: Vec<Event>) {
        let body = self.body(phase, events);
        self.store(body).await;
    }

    /// Adds bytes, whatever they are.
    pub(crate) async fn store(&mut self, body: Vec<u8>) {
        self.prev = Digest::of(&body);
        self.seq = self
            .mesh
            .log()
            .commit(&self.session, body.into(), self.seq)
            .await
            .expect("stored");
    }

    /// The bytes of the next commit.
    pub(crate) fn body(&mut self, phase: Phase, events: Vec<Event>) -> Vec<u8> {
        self.n += 1;
        let commit = Commit {
            v: VERSION,
            session: self.session.clone(),
            n: self.n,
            prev: self.prev,
            at_ms: self.n * 1000,
            head: Head {
                phase,
                owner: Incarnation::parse("one").expect("an incarnation"),
                bell: Bell {
                    lane: Lane::In,
                    seq: 1,
                },
                epoch: 1,
                attempt: 0,
                cursor: Cursor::default(),
                deadline: None,
            },
            consumed: Vec::new(),
            events,
            outbox: Vec::new(),
        };
        commit.encode().expect("a body")
    }
}
