//! A broker, a session worker, and logs that are written by hand.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use teamster_mesh::{
    Mesh,
    connection::Call,
    serve::{Serving, serve},
};
use teamster_protocol::{
    ApprovalId, Arguments, BlobRef, CallId, Digest, Event, Fault, FunctionId, Message, MessageId,
    Principal, RequestId, SessionId, TurnId,
    event::{ApprovalDigest, EndReason},
    function::router::{CompletionError, ErrorKind},
    input::{Decision, TurnOptions},
    message::{Content, ResultKind, StopReason, WireCall},
    policy::Effect,
    usage::{NanoUsd, Spent, Usage},
};
use teamster_session::{Config, worker};
pub(crate) use teamster_testkit::written::Writer;
use teamster_testkit::{Nats, connect, prepare, written::judgement};

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
        prepare(&nats).await;
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

    /// One more worker beside the one that runs, without a file.
    pub(crate) async fn second_worker(&self) -> Serving {
        let mesh = connect(&self.nats, "session").await;
        let worker = worker(&Config { file: None }).expect("a worker");
        serve(mesh, worker).await.expect("served")
    }

    /// Ends the worker that runs, if any.
    pub(crate) async fn stop_worker(&mut self) {
        if let Some(served) = self.served.take() {
            served.drain().await;
        }
    }

    /// Who asks, to take along.
    pub(crate) fn asker(&self) -> Asker {
        Asker(self.operator.clone())
    }

    /// Asks the worker as its operator.
    pub(crate) async fn ask<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        request: &Request,
    ) -> Result<Reply, Fault> {
        self.asker().ask(function, request).await
    }
}

/// An operator.
pub(crate) struct Asker(pub(crate) Mesh);

impl Asker {
    /// Asks the worker.
    pub(crate) async fn ask<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        request: &Request,
    ) -> Result<Reply, Fault> {
        let body = serde_json::to_vec(request).expect("a body");
        let mut call = Call::new(FunctionId::parse(function).expect("an id"), body);
        call.principal = Some(owner());
        call.timeout = LIMIT;
        let reply = self.0.call(call).await?;
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
        appended: false,
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
        trace: None,
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
        estimated: 0,
    }
}

pub(crate) fn interrupted(n: u64, output: u64, cost: Option<u64>) -> Event {
    Event::GenerationInterrupted {
        request: RequestId::parse(format!("s.{n}.1")).expect("a request"),
        partial: None,
        error: CompletionError {
            kind: ErrorKind::Transient,
            message: "cut".to_owned(),
            hint: None,
        },
        is_cut: false,
        usage: Usage {
            output,
            ..Usage::default()
        },
        cost: cost.map(NanoUsd),
        attempts: 2,
    }
}

pub(crate) fn approval(n: u64) -> ApprovalId {
    ApprovalId::parse(format!("apr_{n:04}")).expect("an approval")
}

pub(crate) fn call(n: u64) -> CallId {
    CallId::parse(format!("call_{n}")).expect("a call")
}

/// An answer that asks for a call of `fs::write`, and the call as it was proposed.
pub(crate) fn proposed(n: u64, number: u64) -> Vec<Event> {
    let mut answer = answered(n, "I write.", "test/m", 1, Some(1));
    let arguments = asked();
    if let Event::GenerationFinished {
        message: Some(Message::Assistant { content, .. }),
        stop,
        ..
    } = &mut answer
    {
        *stop = StopReason::Call;
        content.push(Content::Call(WireCall {
            call: call(number),
            name: "fs__write".to_owned(),
            arguments: arguments.as_str().to_owned(),
        }));
    }
    let proposed = Event::CallProposed {
        call: call(number),
        function: Some(FunctionId::parse("fs::write").expect("an id")),
        digest: Some(arguments.digest()),
    };
    vec![answer, proposed]
}

/// The bytes that every request of these tests is about.
pub(crate) fn asked() -> Arguments {
    Arguments::parse(r#"{"path": "a.txt", "content": "hello"}"#).expect("arguments")
}

pub(crate) fn requested(number: u64) -> Event {
    Event::ApprovalRequested {
        approval: approval(number),
        call: call(number),
        function: FunctionId::parse("fs::write").expect("an id"),
        arguments: asked(),
        judgement: judgement(Effect::Ask, "a.txt"),
        holder: FunctionId::parse("approval::gate").expect("an id"),
        rest: Vec::new(),
        expires_at_ms: 1_000_000,
    }
}

pub(crate) fn resolved(number: u64) -> Event {
    Event::ApprovalResolved {
        approval: approval(number),
        call: call(number),
        by: owner(),
        channel: "test".to_owned(),
        digest: asked().digest(),
        decision: Decision::Approve,
    }
}

/// The end of a session of `turns` turns, with what is left of its requests.
pub(crate) fn deleted(turns: u64, approvals: Vec<ApprovalDigest>) -> Event {
    Event::SessionDeleted {
        by: owner(),
        turns,
        queued: 0,
        approvals,
        keys: Vec::new(),
        spent: Vec::new(),
    }
}

/// The end of a session of `turns` turns, with what it spent.
pub(crate) fn deleted_with(turns: u64, rows: Vec<Spent>) -> Event {
    let mut event = deleted(turns, Vec::new());
    if let Event::SessionDeleted { spent, .. } = &mut event {
        *spent = rows;
    }
    event
}

pub(crate) fn finished(number: u64, text: &str) -> Event {
    Event::CallFinished {
        call: call(number),
        outcome: ResultKind::Ok,
        text: text.to_owned(),
        whole: None,
        duration_ms: 1,
    }
}

/// A call whose result is kept whole in a stored value.
pub(crate) fn kept_whole(number: u64, whole: BlobRef) -> Event {
    Event::CallFinished {
        call: call(number),
        outcome: ResultKind::Ok,
        text: "a part".to_owned(),
        whole: Some(whole),
        duration_ms: 1,
    }
}
