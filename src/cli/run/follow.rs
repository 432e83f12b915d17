//! Follows one turn to its end: shows it, asks about approvals, lets go or stops on Ctrl-C.

mod approval;
mod damage;
mod text;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use serde_json::Value;
use teamster_core::display;
use teamster_protocol::{
    ApprovalId, Commit, Event, Lane, MessageId, SessionId,
    event::DropReason,
    function::{
        approval::Pending,
        harness::{SendReply, SendState},
    },
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

use super::{
    Approvals, Told,
    result::{Outcome, document, verdict},
};
use crate::{
    cli::{
        ask::Lines,
        compose,
        exit::Exit,
        failure::Failure,
        keep::{Keeper, Store},
        output::{Closed, Format, Output},
        show,
        status::{self, Status},
    },
    client::{
        Client, Item, Watch,
        session::{Happening, Session, Turn},
        stream::Stream,
    },
    env,
};

/// How long after the first Ctrl-C a second one stops the turn.
const SECOND_CHANCE: Duration = Duration::from_secs(2);
/// How long a stopped turn may take to end before this command does not wait any longer.
const STOP_MAX: Duration = Duration::from_secs(15);
/// How long a message may lie before the user is told that nobody takes it.
const SLOW_START: Duration = Duration::from_secs(10);
/// How often the elapsed time is drawn.
const TICK: Duration = Duration::from_millis(250);

/// Follows one turn.
pub(super) struct Follower<'a> {
    out: &'a Output,
    client: Client,
    watch: Watch,
    id: SessionId,
    message: MessageId,
    seq: u64,
    approvals: Approvals,
    session: Session,
    stream: Stream,
    status: Status,
    lines: Option<Lines>,
    question: Option<Pending>,
    /// Requests that were told or decided here.
    aside: BTreeSet<ApprovalId>,
    has_denied: bool,
    has_begun: bool,
    /// The commit that brought the message.
    brought_at: Option<u64>,
    /// When it is looked next whether anything is to come that a damaged log does not show.
    look_at: Instant,
    is_lost: bool,
    let_go_at: Option<Instant>,
    stopped_at: Option<Instant>,
    keeper: Keeper,
    told: Told,
}

/// What woke the loop up.
enum Wake {
    Item(Result<Item, crate::client::Error>),
    Line(Option<String>),
    Interrupt,
    Terminate,
    Deadline,
    Tick,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        out: &'a Output,
        client: Client,
        data: Option<PathBuf>,
        sent: &SendReply,
        approvals: Approvals,
        told: Told,
    ) -> Self {
        let mut status = Status::new(out);
        if out.is_text() {
            let word = match sent.state {
                SendState::Merged => " (joins the running turn)",
                SendState::Deduplicated => " (sent before; this is what became of it)",
                SendState::Queued => "",
            };
            status.note(&format!(
                "session {}{word}",
                display::terminal(sent.session_id.as_str())
            ));
        }
        if told.is_repeated {
            status.note(compose::REPEATED);
        }
        Self {
            watch: client.watch(&sent.session_id, 0),
            out,
            client,
            id: sent.session_id.clone(),
            message: sent.message_id.clone(),
            seq: sent.seq,
            approvals,
            session: Session::default(),
            stream: Stream::default(),
            status,
            lines: None,
            question: None,
            aside: BTreeSet::new(),
            has_denied: false,
            has_begun: false,
            brought_at: None,
            look_at: Instant::now() + damage::LOOK_AFTER,
            is_lost: false,
            let_go_at: None,
            stopped_at: None,
            keeper: Keeper::new(data),
            told,
        }
    }

    /// The one document of `--json`, with what is known of the message.
    fn report(&self, turn: Option<&Turn>) -> Value {
        let mut report = document(&self.id, turn);
        if let Some(object) = report.as_object_mut() {
            object.insert("deduplicated".to_owned(), self.told.is_repeated.into());
            object.insert("warnings".to_owned(), self.told.warnings.clone().into());
        }
        report
    }

    /// Follows to the end and tells the result.
    pub(super) async fn run(mut self) -> Result<Exit, Failure> {
        let followed = Box::pin(self.follow()).await;
        self.status.clear();
        if self.stream.is_open() && self.out.is_live() {
            let _ = self.out.text("\n");
        }
        let turn = self
            .session
            .turn
            .as_ref()
            .filter(|_| self.session.answers(&self.message));
        let outcome = match followed {
            Ok(outcome) => outcome,
            Err(failure) => {
                self.out.failure(&failure, Some(self.report(turn)));
                return Ok(failure.exit);
            }
        };
        if let (Outcome::Ended(_), Some(turn)) = (&outcome, turn) {
            self.status.end(turn);
        }
        let (exit, failure) = verdict(&self.id, turn, &outcome, self.has_denied);
        if let (Outcome::Waiting(approvals), Format::Text) = (&outcome, self.out.format) {
            for approval in approvals {
                let _ = self.out.line(approval.as_str());
            }
        }
        let report = || {
            let mut report = self.report(turn);
            // It is the turn of another message that waits, and this one behind it.
            if let (Outcome::Waiting(approvals), None, Some(object)) =
                (&outcome, turn, report.as_object_mut())
            {
                object.insert("status".to_owned(), "awaiting_approval".into());
                object.insert("approvals".to_owned(), serde_json::json!(approvals));
            }
            report
        };
        match failure {
            // Letting go is no error; a document says it all the same.
            Some(failure) if outcome == Outcome::Detached && self.out.is_text() => {
                self.out.note(&format!(
                    "{}: {}",
                    failure.message,
                    failure.hint.unwrap_or_default()
                ));
            }
            Some(failure) => self.out.failure(&failure, Some(report())),
            None if self.out.format == Format::Json => {
                let _ = self.out.document(&report());
            }
            None => {}
        }
        Ok(exit)
    }

    async fn follow(&mut self) -> Result<Outcome, Failure> {
        let trap = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    "cli.signal",
                    format_args!("cannot wait for signals: {error}"),
                )
            })
        };
        let mut interrupts = trap(SignalKind::interrupt())?;
        let mut terminations = trap(SignalKind::terminate())?;
        let slow_at = Instant::now() + SLOW_START;
        let mut tick = tokio::time::interval(TICK);
        loop {
            let outcome = match self
                .wake(&mut interrupts, &mut terminations, &mut tick)
                .await
            {
                Wake::Item(item) => self.item(item?).await?,
                Wake::Line(line) => self.answer(line).await?,
                Wake::Interrupt => self.interrupt().await?,
                Wake::Terminate | Wake::Deadline => Some(Outcome::Detached),
                Wake::Tick => self.tick(slow_at).await?,
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
    }

    async fn wake(
        &mut self,
        interrupts: &mut Signal,
        terminations: &mut Signal,
        tick: &mut tokio::time::Interval,
    ) -> Wake {
        let deadline = match (self.stopped_at, self.let_go_at) {
            (Some(at), _) => Some(at + STOP_MAX),
            (None, Some(at)) => Some(at + SECOND_CHANCE),
            (None, None) => None,
        };
        let line = async {
            match &mut self.lines {
                Some(lines) => lines.next().await,
                None => std::future::pending().await,
            }
        };
        let over = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = interrupts.recv() => Wake::Interrupt,
            _ = terminations.recv() => Wake::Terminate,
            () = over => Wake::Deadline,
            item = self.watch.next() => Wake::Item(item),
            line = line => Wake::Line(line),
            _ = tick.tick() => Wake::Tick,
        }
    }

    async fn tick(&mut self, slow_at: Instant) -> Result<Option<Outcome>, Failure> {
        for told in self.keeper.look(&self.client, &self.id) {
            self.status.note(&told);
        }
        // While a person is asked nothing is to be stored.
        let is_parked = self
            .session
            .turn
            .as_ref()
            .is_some_and(|turn| !turn.pending.is_empty());
        if !is_parked {
            match self.keeper.store() {
                Store::Fine => {}
                Store::Told(told) => self.status.note(&told),
                Store::Full(failure) => return Err(failure),
            }
        }
        let is_quiet_line =
            self.question.is_none() && !(self.stream.is_open() && self.out.is_live());
        match &self.session.turn {
            Some(turn) if self.has_begun && is_quiet_line => self.status.show(turn),
            _ => {}
        }
        if !self.has_begun && !self.is_lost && !is_parked && Instant::now() > slow_at {
            self.is_lost = true;
            self.status.note("the message is stored, but no turn has begun yet; `teamster doctor` shows whether a harness runs");
        }
        if let Some(failure) = self.look_for_end().await {
            return Err(failure);
        }
        self.settle().await
    }

    async fn item(&mut self, item: Item) -> Result<Option<Outcome>, Failure> {
        if matches!(item, Item::Commit { .. } | Item::Delta(_)) {
            self.keeper.heard();
        }
        match item {
            Item::Commit { seq, commit } => self.commit(seq, &commit).await,
            Item::Delta(delta) => {
                let piece = self.stream.delta(&delta);
                let pieces = piece.as_slice();
                if self.has_begun && self.write(pieces, true).is_err() {
                    return Ok(Some(Outcome::Closed));
                }
                Ok(None)
            }
            Item::Damaged(error) => Err((*error).into()),
            Item::Interrupted => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    self.status.note("the mesh does not answer; still trying");
                }
                Ok(None)
            }
        }
    }

    async fn commit(&mut self, seq: u64, commit: &Commit) -> Result<Option<Outcome>, Failure> {
        self.is_lost &= !self.has_begun;
        self.session.open(commit);
        let brings_mine = commit
            .events
            .iter()
            .any(|event| matches!(event, Event::MessageAdded { message, .. } if is_message(message, &self.message)));
        self.look_at = Instant::now() + damage::LOOK_AFTER;
        for event in &commit.events {
            if let Some(failure) = self.dropped(event) {
                return Err(failure);
            }
            let happening = self.session.event(&self.id, commit.at_ms, event);
            let is_mine = self.session.answers(&self.message);
            if is_mine && !std::mem::replace(&mut self.has_begun, true) {
                self.began();
            }
            if (is_mine || brings_mine) && self.tell(seq, commit, event).is_err() {
                return Ok(Some(Outcome::Closed));
            }
            match happening {
                Some(happening) if is_mine => {
                    if let Some(outcome) = self.happening(happening) {
                        return Ok(Some(outcome));
                    }
                }
                // What another turn says is not shown, but the message may join it in the middle of an answer.
                Some(Happening::Generating(request)) => drop(self.stream.started(&request)),
                Some(Happening::Said { request, text }) => drop(self.stream.said(&request, &text)),
                _ => {}
            }
        }
        if let Some(failure) = self.given_up(commit, brings_mine) {
            return Err(failure);
        }
        if brings_mine {
            self.brought_at = Some(commit.n);
        }
        if self.has_begun {
            return self.settle().await;
        }
        Ok(None)
    }

    /// The message itself was refused by the session.
    fn dropped(&self, event: &Event) -> Option<Failure> {
        match event {
            Event::InputDropped {
                lane: Lane::In,
                seq,
                why: DropReason::Malformed { message },
            } if *seq == self.seq => Some(Failure::new(
                Exit::Failed,
                "session.input_dropped",
                format_args!("the session could not take the message: {message}"),
            )),
            _ => None,
        }
    }

    /// One line of `--jsonl`: the event as the log has it, with its place.
    fn tell(&self, seq: u64, commit: &Commit, event: &Event) -> Result<(), Closed> {
        if self.out.format != Format::JsonLines {
            return Ok(());
        }
        self.out
            .document(&super::super::sessions::event_line(seq, commit, event))
    }

    fn happening(&mut self, happening: Happening) -> Option<Outcome> {
        let closed = Some(Outcome::Closed);
        match happening {
            Happening::Generating(request) => {
                let pieces = self.stream.started(&request);
                if self.write(&pieces, true).is_err() {
                    return closed;
                }
            }
            Happening::Said { request, text } => {
                let pieces = self.stream.said(&request, &text);
                if self.write(&pieces, false).is_err() {
                    return closed;
                }
            }
            Happening::Ran { function, outcome } if outcome.is_error() => {
                let name =
                    function.map_or_else(|| "a call".to_owned(), |function| function.to_string());
                self.status.note(&format!(
                    "{}: {}",
                    display::terminal(&name),
                    show::word(&outcome)
                ));
            }
            // What is asked is settled when the whole commit is known: it may hold several requests.
            Happening::Began
            | Happening::Asked(_)
            | Happening::Running(_)
            | Happening::Ran { .. } => {}
            Happening::TookOver(attempt) => {
                self.status.note(&format!(
                    "another harness goes on with the turn (attempt {attempt})"
                ));
            }
            Happening::Answered { approval, how } => {
                if self
                    .question
                    .take_if(|question| question.approval_id == approval)
                    .is_some()
                {
                    self.out.say("");
                }
                self.status.note(&format!("{approval}: {how}"));
            }
            Happening::Ended(reason) => return Some(Outcome::Ended(reason)),
        }
        None
    }

    fn began(&mut self) {
        let model = self
            .session
            .turn
            .as_ref()
            .and_then(|turn| turn.model.clone());
        let Some(model) = model else { return };
        self.status
            .note(&format!("model {}", status::label(&model)));
        if !status::is_scripted(&model) {
            return;
        }
        let key = env::PROVIDER_KEYS
            .iter()
            .find(|(name, _)| std::env::var_os(name).is_some());
        if let Some((name, provider)) = key {
            self.status.note(&format!(
                "{name} is set: `--model {provider}/MODEL` would use it; nothing is sent unless you choose it"
            ));
        }
    }

    async fn interrupt(&mut self) -> Result<Option<Outcome>, Failure> {
        if self.stopped_at.is_some() {
            return Ok(Some(Outcome::Detached));
        }
        if self.let_go_at.take().is_none() {
            self.let_go_at = Some(Instant::now());
            self.status.clear();
            let session = display::terminal(&teamster_protocol::text::operand(self.id.as_str()));
            self.out.say(&format!(
                "\nletting go; the turn goes on: teamster sessions tail {session}\nCtrl-C once more within {} s stops the turn",
                SECOND_CHANCE.as_secs()
            ));
            return Ok(None);
        }
        self.out.say("stopping the turn");
        self.stopped_at = Some(Instant::now());
        let turn = self.session.turn.as_ref().and_then(|turn| turn.id.clone());
        let turn = turn.filter(|_| self.session.answers(&self.message));
        self.client.stop(&self.id, turn.as_ref()).await?;
        Ok(None)
    }
}

fn is_message(message: &teamster_protocol::Message, id: &MessageId) -> bool {
    matches!(message, teamster_protocol::Message::User { id: mine, .. } if mine == id)
}
