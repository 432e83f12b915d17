//! Logs in the form of turns with one call, three commits each.

use std::{collections::BTreeMap, sync::Arc};

use teamster_mesh::Mesh;
use teamster_protocol::{
    CallId, Class, Digest, Event, FunctionId, Message, MessageId, Phase, Principal, RequestId,
    SessionId, TurnId,
    event::EndReason,
    input::TurnOptions,
    message::{Content, ResultKind, StopReason, WireCall},
    usage::{NanoUsd, Usage},
};
use teamster_telemetry::task;
use teamster_testkit::written;
use tokio::sync::Semaphore;

/// Turns of each session; with the commit that creates it, a session has a hundred.
const TURNS: u64 = 33;
/// Sessions that are written at the same time.
const AT_ONCE: usize = 64;
/// 2026-01-01.
const BEGAN_MS: u64 = 1_767_225_600_000;

/// What was written.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Log {
    pub(crate) commits: u64,
    pub(crate) bytes: u64,
}

/// Writes one session of so many messages, four a turn.
pub(crate) async fn write_long(mesh: &Mesh, name: &str, messages: u64) -> Log {
    let mut writer = Writer::new(mesh.clone(), 0);
    writer.session = SessionId::parse(name).expect("valid");
    writer.run(0, messages / 4).await
}

/// Writes the logs of so many sessions.
pub(crate) async fn write(mesh: &Mesh, sessions: u64) -> Log {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = Vec::new();
    for index in 0..sessions {
        let permit = Arc::clone(&room).acquire_owned().await.expect("open");
        let mesh = mesh.clone();
        tasks.push(task::spawn("session", async move {
            let log = Writer::new(mesh, index).run(index, TURNS).await;
            drop(permit);
            log
        }));
    }
    let mut all = Log::default();
    for task in tasks {
        let log = task.await.expect("written");
        all.commits += log.commits;
        all.bytes += log.bytes;
    }
    all
}

struct Writer {
    mesh: Mesh,
    session: SessionId,
    seq: u64,
    prev: Digest,
    at_ms: u64,
    log: Log,
}

impl Writer {
    fn new(mesh: Mesh, index: u64) -> Self {
        Self {
            mesh,
            session: SessionId::parse(format!("bench-{index}")).expect("valid"),
            seq: 0,
            prev: Digest::ZERO,
            at_ms: BEGAN_MS + index * 3_600_000,
            log: Log::default(),
        }
    }

    async fn run(mut self, index: u64, turns: u64) -> Log {
        let created = Event::SessionCreated {
            by: owner(),
            title: Some(format!("Session {index}")),
            workspace: Some("/srv/workspace".to_owned()),
            metadata: BTreeMap::from([("team".to_owned(), (index % 7).to_string())]),
        };
        self.commit(Phase::Idle, vec![created]).await;
        for number in 1..=turns {
            self.turn(index, number).await;
        }
        self.log
    }

    async fn turn(&mut self, index: u64, number: u64) {
        let n = self.log.commits + 1;
        let id = |kind: &str| MessageId::parse(format!("msg_{kind}{n}")).expect("valid");
        let call = CallId::parse(format!("call_{n}")).expect("valid");
        let function = FunctionId::parse("fs::read").expect("valid");
        let turn = TurnId::parse(format!("trn_{number}")).expect("valid");
        let needle = if index.is_multiple_of(100) && number == 7 {
            "needle "
        } else {
            ""
        };
        let asked = format!("{needle}What does part {number} of the module say about {index}?");
        self.commit(
            Phase::Active,
            vec![
                Event::MessageAdded {
                    message: Message::User {
                        id: id("u"),
                        from: owner(),
                        text: asked,
                    },
                    options: TurnOptions::default(),
                    appended: false,
                },
                Event::TurnStarted {
                    turn: turn.clone(),
                    number,
                    options: None,
                    config: Digest::ZERO,
                    trace: None,
                },
            ],
        )
        .await;
        let wanted = Content::Call(WireCall {
            call: call.clone(),
            name: "fs__read".to_owned(),
            arguments: format!(r#"{{"path":"src/part{number}.rs"}}"#),
        });
        let asks = answered(n, id("a"), vec![say("I look into the file."), wanted]);
        self.commit(
            Phase::Active,
            vec![
                asks,
                Event::CallProposed {
                    call: call.clone(),
                    function: Some(function),
                    digest: None,
                },
                Event::CallAllowed {
                    call: call.clone(),
                    class: Class::Read,
                    repeatable: true,
                    timeout_ms: 30_000,
                    arguments: None,
                    judgement: None,
                },
                Event::CallStarted { call: call.clone() },
            ],
        )
        .await;
        let result = "fn part() -> Answer { Answer::new(42) } // what the module says\n".repeat(8);
        let text = format!(
            "The answer to {number} is in `part`. {}",
            "It holds. ".repeat(12)
        );
        self.commit(
            Phase::Idle,
            vec![
                Event::CallFinished {
                    call,
                    outcome: ResultKind::Ok,
                    text: result,
                    whole: None,
                    duration_ms: 3,
                },
                answered(n + 1, id("b"), vec![say(&text)]),
                Event::TurnEnded {
                    turn,
                    reason: EndReason::Completed,
                },
            ],
        )
        .await;
    }

    async fn commit(&mut self, phase: Phase, events: Vec<Event>) {
        let n = self.log.commits + 1;
        let mut commit = written::commit(&self.session, n, self.prev, phase, events);
        commit.at_ms = self.at_ms;
        let body = commit.encode().expect("encodes");
        self.prev = Digest::of(&body);
        self.at_ms += 20_000;
        self.log.commits += 1;
        self.log.bytes += body.len() as u64;
        let log = self.mesh.log();
        let stored = log.commit(&self.session, body.into(), self.seq).await;
        self.seq = stored.expect("stored");
    }
}

fn owner() -> Principal {
    Principal::parse("owner").expect("valid")
}

fn say(text: &str) -> Content {
    Content::Text {
        text: text.to_owned(),
    }
}

fn answered(n: u64, id: MessageId, content: Vec<Content>) -> Event {
    let has_call = content.len() > 1;
    Event::GenerationFinished {
        request: RequestId::parse(format!("s.{n}.1")).expect("valid"),
        message: Some(Message::Assistant {
            id,
            content,
            partial: false,
        }),
        stop: if has_call {
            StopReason::Call
        } else {
            StopReason::End
        },
        usage: Usage {
            input: 1200,
            output: 80,
            ..Usage::default()
        },
        cost: Some(NanoUsd(4_200_000)),
        model: "bench/model".to_owned(),
        attempts: 1,
        estimated: 0,
    }
}
