//! The guided tour: one turn, followed through an approval, a kill and a restart.

use std::time::Duration;

use serde_json::{Value, json};
use teamster_core::display;
use teamster_protocol::{
    SessionId,
    event::EndReason,
    function::{
        approval::{Pending, ResolveRequest},
        harness::SendRequest,
    },
    input::{Decision, SessionOptions, TurnOptions},
    policy::FunctionPolicy,
    text,
};
use tokio::time::{Instant, Interval, interval};

use super::{stage::Stage, table::table};
use crate::{
    cli::{
        ask::{self, Answer, Lines},
        exit::Exit,
        failure::Failure,
        output::Output,
        run::document,
        sessions::event_line,
        show, status,
    },
    client::{
        Client, Item, Watch,
        session::{Happening, Session},
        stream::{Piece, Stream},
    },
};

/// The message that the script answers.
const MESSAGE: &str = "Please read my notes and write a summary of them.";
/// The model of the tour.
const MODEL: &str = "scripted/guided";
/// Words of the slow answer that are shown before the demo kills by itself.
const WORDS_BEFORE_KILL: usize = 12;
/// How often the process is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What is going on with the process that runs the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// It runs, and nothing was killed yet.
    Before,
    /// The slow answer runs; a kill is due.
    Kill,
    /// It was killed and started again.
    After,
}

pub(super) struct Tour<'a> {
    out: &'a Output,
    client: Client,
    stage: &'a mut Stage,
    watch: Watch,
    id: SessionId,
    session: Session,
    stream: Stream,
    lines: Option<Lines>,
    question: Option<Pending>,
    is_asked: bool,
    has_decided: bool,
    act: Act,
    words: usize,
    is_in_text: bool,
    killed: Option<(u32, u32)>,
    back_after: Option<Duration>,
}

enum Wake {
    Item(Result<Item, crate::client::Error>),
    Line(Option<String>),
    Look,
}

impl<'a> Tour<'a> {
    /// Sends the message.
    pub(super) async fn begin(
        out: &'a Output,
        client: Client,
        stage: &'a mut Stage,
        is_asked: bool,
    ) -> Result<Self, Failure> {
        let request = SendRequest {
            message: MESSAGE.to_owned(),
            session: SessionOptions {
                metadata: std::collections::BTreeMap::new(),
                title: Some("demo".to_owned()),
                workspace: Some(stage.workspace().to_string_lossy().into_owned()),
            },
            options: TurnOptions {
                model: Some(MODEL.to_owned()),
                functions: Some(FunctionPolicy {
                    allow: vec!["fs::*".to_owned()],
                    ..FunctionPolicy::default()
                }),
                ..TurnOptions::default()
            },
            ..SendRequest::default()
        };
        let sent = client.send(request).await?;
        let mut tour = Self {
            watch: client.watch(&sent.session_id, 0),
            out,
            client,
            stage,
            id: sent.session_id,
            session: Session::default(),
            stream: Stream::default(),
            lines: None,
            question: None,
            is_asked,
            has_decided: false,
            act: Act::Before,
            words: 0,
            is_in_text: false,
            killed: None,
            back_after: None,
        };
        tour.introduce();
        Ok(tour)
    }

    fn introduce(&mut self) {
        self.screen(1, "a message, an answer, a read");
        let pid = self.stage.pid().unwrap_or_default();
        self.tell(&format!(
            "A mesh runs just for this demo (process {pid}): a server, and the workers {}.",
            crate::host::WORKERS.join(", ")
        ));
        let workspace = self.stage.workspace();
        self.tell(&format!(
            "The workspace is a copy of the sample: {}",
            workspace.display()
        ));
        self.tell(&format!("You say: {MESSAGE}\n"));
    }

    /// Follows the turn to its end, and shows what the log says.
    pub(super) async fn run(mut self) -> Result<Exit, Failure> {
        let mut looks = interval(LOOK);
        let reason = loop {
            let ended = match self.wake(&mut looks).await {
                Wake::Item(item) => self.item(item?).await?,
                Wake::Line(line) => {
                    self.line(line).await?;
                    None
                }
                Wake::Look => {
                    self.look().await?;
                    None
                }
            };
            if let Some(reason) = ended {
                break reason;
            }
        };
        self.finish(&reason).await
    }

    async fn wake(&mut self, looks: &mut Interval) -> Wake {
        let line = async {
            match &mut self.lines {
                Some(lines) => lines.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            item = self.watch.next() => Wake::Item(item),
            line = line => Wake::Line(line),
            _ = looks.tick() => Wake::Look,
        }
    }

    async fn item(&mut self, item: Item) -> Result<Option<EndReason>, Failure> {
        let commit = match item {
            Item::Commit { commit, .. } => commit,
            Item::Delta(delta) => {
                if let Some(piece) = self.stream.delta(&delta) {
                    self.write(&[piece])?;
                    self.is_kill_due();
                }
                return Ok(None);
            }
            Item::Damaged(error) => return Err((*error).into()),
            Item::Interrupted => return Ok(None),
        };
        let mut ended = None;
        for happening in self.session.apply(&self.id, &commit) {
            match happening {
                Happening::Generating(request) => {
                    let pieces = self.stream.started(&request);
                    self.write(&pieces)?;
                }
                Happening::Said { request, text } => {
                    let pieces = self.stream.said(&request, &text);
                    self.write(&pieces)?;
                }
                Happening::Ran { function, outcome } => {
                    let name = function
                        .map_or_else(|| "a call".to_owned(), |function| function.to_string());
                    self.tell(&format!("[{name}: {}]\n", show::word(&outcome)));
                }
                Happening::Asked(pending) => self.asked(*pending).await?,
                Happening::Answered { how, .. } => {
                    self.question = None;
                    self.has_decided = true;
                    self.tell(&format!("[{how}]\n"));
                }
                Happening::TookOver(attempt) => {
                    self.tell(&format!(
                        "[the new process goes on with the turn: attempt {attempt}]\n"
                    ));
                }
                Happening::Ended(reason) => ended = Some(reason),
                Happening::Began | Happening::Running(_) => {}
            }
        }
        Ok(ended)
    }

    fn write(&mut self, pieces: &[Piece]) -> Result<(), Failure> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => {
                    self.words += text.split_whitespace().count();
                    self.is_in_text = !text.ends_with('\n');
                    self.put(&display::terminal(text))?;
                }
                Piece::Again => self.tell("[cut off; the answer again, from its beginning]"),
                Piece::End => {
                    self.words = 0;
                    self.tell("");
                }
                Piece::Retry { reason, .. } => {
                    self.tell(&format!("[{}]", display::terminal(reason)));
                }
            }
        }
        Ok(())
    }

    async fn asked(&mut self, pending: Pending) -> Result<(), Failure> {
        self.screen(2, "a write waits for a person");
        self.tell("The turn is parked: no process holds anything for it. This is the exact call, byte for byte:\n");
        self.tell(&show::pending(&pending, show::now_ms()));
        if self.is_asked {
            self.out.raw(ask::QUESTION);
            self.question = Some(pending);
            self.lines.get_or_insert_with(Lines::new).want();
            return Ok(());
        }
        self.tell("There is no terminal to ask at, so the demo decides as the operator, through the same function as:");
        let (approval, digest) = (pending.approval_id.as_str(), pending.digest);
        let approval = text::operand(approval);
        self.tell(&format!(
            "  teamster approvals approve --digest {digest} {approval}\n"
        ));
        self.decide(&pending, Decision::Approve).await
    }

    async fn decide(&mut self, pending: &Pending, decision: Decision) -> Result<(), Failure> {
        let request = ResolveRequest {
            approval_id: pending.approval_id.clone(),
            digest: pending.digest,
            decision,
            channel: "demo".to_owned(),
        };
        self.client.resolve(&request).await?;
        Ok(())
    }

    async fn line(&mut self, line: Option<String>) -> Result<(), Failure> {
        if let Some(question) = self.question.take() {
            match ask::read(&line.unwrap_or_default()) {
                Answer::Decided(decision) => self.decide(&question, decision).await?,
                Answer::Edit => {
                    let edited =
                        tokio::task::block_in_place(|| ask::edit(self.out, &question.arguments))?;
                    match edited {
                        Some(arguments) => {
                            self.decide(&question, Decision::Edit { arguments }).await?;
                        }
                        None => self.ask_again(question),
                    }
                }
                Answer::Details => {
                    self.tell(&show::details(&question.arguments));
                    self.ask_again(question);
                }
                Answer::Unclear => self.ask_again(question),
            }
        } else if self.act == Act::Kill {
            self.kill_myself();
        }
        Ok(())
    }

    fn ask_again(&mut self, question: Pending) {
        self.out.raw(ask::QUESTION);
        self.question = Some(question);
        if let Some(lines) = &mut self.lines {
            lines.want();
        }
    }

    /// Once the slow answer is under way, it is time for the kill.
    fn is_kill_due(&mut self) {
        if self.act != Act::Before || !self.has_decided || self.words < WORDS_BEFORE_KILL {
            return;
        }
        self.act = Act::Kill;
        let Some(pid) = self.stage.pid() else { return };
        self.screen(3, "kill -9 in the middle of an answer");
        if self.is_asked {
            self.tell(&format!("The process that runs this turn is {pid}. Kill it, in another terminal:\n\n  kill -9 {pid}\n"));
            self.tell(
                "or press Enter here, and the demo does it for you. (The answer goes on below.)\n",
            );
            self.lines.get_or_insert_with(Lines::new).want();
        } else {
            self.tell(&format!(
                "There is no terminal, so the demo does it by itself: kill -9 {pid}\n"
            ));
            self.kill_myself();
        }
    }

    fn kill_myself(&mut self) {
        self.stage.kill();
    }

    /// Looks after the process: where it is gone, however that came, it is started again.
    async fn look(&mut self) -> Result<(), Failure> {
        let Some(status) = self.stage.ended() else {
            return Ok(());
        };
        let before = self.stage.pid().unwrap_or_default();
        self.tell(&format!("\n[process {before} is gone: {status}]"));
        self.screen(4, "the same command again");
        let data = self.stage.data().display().to_string();
        let data = text::shell(&data);
        self.tell(&format!("  teamster up --data={data}\n"));
        let began = Instant::now();
        self.client = self.stage.start().await?;
        self.back_after = Some(began.elapsed());
        let after = self.stage.pid().unwrap_or_default();
        self.killed = Some((before, after));
        self.act = Act::After;
        self.words = 0;
        // For the eye the second try is shown from its beginning.
        self.stream = Stream::default();
        self.tell(&format!(
            "[process {after} answers after {}; nothing that was committed is lost, the answer is asked for once more]\n",
            status::seconds(began.elapsed())
        ));
        Ok(())
    }

    async fn finish(&mut self, reason: &EndReason) -> Result<Exit, Failure> {
        let commits = self.client.commits(&self.id).await?;
        let exit = Exit::of_end(reason, None);
        if self.out.is_text() {
            self.screen(5, "what the log says");
            for line in table(&commits) {
                self.tell(&line);
            }
            self.tell("");
            let summary = self.summary();
            self.tell(&summary);
            return Ok(exit);
        }
        let events: Vec<Value> = commits
            .iter()
            .flat_map(|(seq, commit)| {
                commit
                    .events
                    .iter()
                    .map(|event| event_line(*seq, commit, event))
            })
            .collect();
        let mut report = document(&self.id, self.session.turn.as_ref());
        if let Some(object) = report.as_object_mut() {
            object.insert("is_scripted".to_owned(), true.into());
            object.insert(
                "killed_pid".to_owned(),
                self.killed.map(|(before, _)| before).into(),
            );
            object.insert(
                "resumed_pid".to_owned(),
                self.killed.map(|(_, after)| after).into(),
            );
            object.insert("events".to_owned(), json!(events));
        }
        self.out.document(&report)?;
        Ok(exit)
    }

    fn summary(&self) -> String {
        let turn = self.session.turn.as_ref();
        let end = turn
            .and_then(|turn| turn.end.as_ref())
            .map_or("not ended", EndReason::status);
        let kill = match (self.killed, self.back_after) {
            (Some((before, after)), Some(took)) => format!(
                "process {before} was killed in mid-answer; process {after} went on {} later, on its own",
                status::seconds(took)
            ),
            _ => "nothing was killed this time".to_owned(),
        };
        format!(
            "The turn {end}: one message, one answer; {kill}.\n\
             All of it was scripted (no model, no cost). With a model, in your own directory:\n\n  \
             teamster run --model openai/gpt-5-mini \"what is in this directory?\"      (needs OPENAI_API_KEY)\n  \
             teamster run --model ollama/qwen3 \"what is in this directory?\"           (a model on this machine)\n"
        )
    }

    /// A new part of the tour. Each says that no model is at work.
    fn screen(&mut self, number: u32, title: &str) {
        let line = format!("── {number} of 5 · {title} · SCRIPTED, no model, no cost ");
        let rest = 100_usize.saturating_sub(line.chars().count());
        self.tell(&format!("\n{line}{}", "─".repeat(rest)));
    }

    /// Narration: data for people, words beside a document.
    fn tell(&mut self, text: &str) {
        let break_before = if std::mem::take(&mut self.is_in_text) {
            "\n"
        } else {
            ""
        };
        if self.out.is_text() {
            let _ = self.out.line(&format!("{break_before}{text}"));
        } else {
            self.out.note(&format!("{break_before}{text}"));
        }
    }

    fn put(&self, text: &str) -> Result<(), Failure> {
        if self.out.is_text() {
            self.out.text(text)?;
        } else if !self.out.is_quiet {
            self.out.raw(text);
        }
        Ok(())
    }
}
