//! The conversation's loop: what came is taken one by one, until the person leaves or the script ends.

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    time::Duration,
};

use nix::sys::signal;
use serde_json::{Value, json};
use teamster_protocol::{
    ApprovalId, MessageId, function::approval::Pending, function::harness::SendReply,
    input::SessionOptions,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal as listen},
    time::{Instant, Interval, sleep_until},
};

use super::{
    come_back,
    draft::Draft,
    editor::Editor,
    here::Here,
    input::{Came, Input},
    outgoing::Outgoing,
    past::{self, Past},
    screen::Screen,
};
use crate::{
    cli::{
        Global, compose,
        exit::Exit,
        failure::Failure,
        keep::{Keeper, Store},
        output::{Format, Output},
        run::{Approvals, Outcome, document, verdict},
        status,
    },
    client::{Client, Error, Item},
};

/// How long after the first Ctrl-C a second one stops the turn.
pub(super) const SECOND_CHANCE: Duration = Duration::from_secs(2);
/// How long a stopped turn may take to end before a script does not wait any longer.
const STOP_MAX: Duration = Duration::from_secs(15);
/// How long a message that is on its way is waited for when the person leaves.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// How often the elapsed time is drawn.
const TICK: Duration = Duration::from_millis(250);
/// Messages that are shown to whoever comes back.
const PAST_SHOWN: usize = 6;
/// Turns that ended before it was known which message they answer.
const FINISHED_MAX: usize = 16;
/// What asks for a line.
const PROMPT: &str = "> ";

/// What a conversation is held with.
pub(super) struct Setting<'a> {
    pub(super) global: &'a Global,
    pub(super) out: &'a Output,
    pub(super) turn: compose::Turn,
    pub(super) created_with: SessionOptions,
    pub(super) approvals: Approvals,
}

/// A message of a script that is waited for.
#[derive(Default)]
pub(super) struct Awaited {
    /// Its id and its sequence in the queue, once it is accepted.
    pub(super) sent: Option<(MessageId, u64)>,
}

/// A turn that ended.
pub(super) struct Finished {
    pub(super) messages: Vec<MessageId>,
    pub(super) exit: Exit,
    pub(super) failure: Option<Failure>,
    pub(super) report: Value,
}

/// A conversation.
pub(super) struct Chat<'a> {
    pub(super) set: Setting<'a>,
    pub(super) client: Client,
    pub(super) keeper: Keeper,
    pub(super) here: Here,
    pub(super) screen: Screen,
    pub(super) input: Input,
    pub(super) editor: Editor,
    pub(super) draft: Draft,
    pub(super) outgoing: Outgoing,
    /// Whether a person sits there; otherwise lines come from a script.
    pub(super) is_person: bool,
    /// The request that is asked about now, and what had been typed when it came.
    pub(super) question: Option<(Pending, String)>,
    /// Requests that the person does not want to decide now, or that were told.
    pub(super) aside: BTreeSet<ApprovalId>,
    pub(super) has_denied: bool,
    pub(super) awaited: Option<Awaited>,
    pub(super) finished: VecDeque<Finished>,
    pub(super) reports: Vec<Value>,
    pub(super) last: Exit,
    pub(super) interrupted_at: Option<Instant>,
    pub(super) stopped_at: Option<Instant>,
    pub(super) is_lost: bool,
    /// Lines that came from the input.
    pub(super) lines_read: u64,
    /// The line behind which nothing is read, once that is said.
    pub(super) read_upto: Option<u64>,
    pub(super) model: Option<String>,
}

/// What woke the loop up.
enum Wake {
    Item(Box<Result<Item, Error>>),
    Came(Came),
    Sent(Result<SendReply, Error>),
    Interrupt,
    Terminate,
    Suspend,
    Continued,
    Deadline,
    Tick,
}

/// What is listened for beside the mesh and the person.
pub(super) struct Signals {
    interrupts: Signal,
    terminations: Signal,
    quits: Signal,
    hangups: Signal,
    suspensions: Signal,
    continued: Signal,
    tick: Interval,
}

impl Signals {
    /// Begins to listen. From here on no signal leaves a terminal behind that is not as it was.
    pub(super) fn open() -> Result<Self, Failure> {
        let trap = |kind| {
            listen(kind).map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    "cli.signal",
                    format_args!("cannot wait for signals: {error}"),
                )
            })
        };
        Ok(Self {
            interrupts: trap(SignalKind::interrupt())?,
            terminations: trap(SignalKind::terminate())?,
            quits: trap(SignalKind::quit())?,
            hangups: trap(SignalKind::hangup())?,
            suspensions: trap(SignalKind::from_raw(signal::Signal::SIGTSTP as i32))?,
            continued: trap(SignalKind::from_raw(signal::Signal::SIGCONT as i32))?,
            tick: tokio::time::interval(TICK),
        })
    }
}

impl<'a> Chat<'a> {
    pub(super) fn new(
        set: Setting<'a>,
        client: Client,
        data: Option<PathBuf>,
        here: Here,
        input: Input,
    ) -> Self {
        let is_edited = matches!(input, Input::Keys(_));
        Self {
            screen: Screen::new(set.out, is_edited),
            is_person: is_edited || set.out.can_ask(),
            set,
            client,
            keeper: Keeper::new(data),
            here,
            input,
            editor: Editor::default(),
            draft: Draft::default(),
            outgoing: Outgoing::default(),
            question: None,
            aside: BTreeSet::new(),
            has_denied: false,
            awaited: None,
            finished: VecDeque::new(),
            reports: Vec::new(),
            last: Exit::Completed,
            interrupted_at: None,
            stopped_at: None,
            lines_read: 0,
            read_upto: None,
            is_lost: false,
            model: None,
        }
    }

    /// Talks until the end and tells how it came.
    pub(super) async fn run(
        mut self,
        past: Vec<Past>,
        mut signals: Signals,
    ) -> Result<Exit, Failure> {
        self.greet(&past);
        let left = Box::pin(self.talk(&mut signals)).await;
        self.screen.leave();
        let format = self.set.out.format;
        match left {
            Ok(exit) => {
                self.farewell().await;
                if format == Format::Json {
                    self.set.out.document(&self.whole())?;
                }
                Ok(exit)
            }
            Err(failure) => {
                let failure = self.with_rest(failure).await;
                let told = (format == Format::Json).then(|| self.whole());
                self.set.out.failure(&failure, told);
                Ok(failure.exit)
            }
        }
    }

    fn greet(&mut self, past: &[Past]) {
        if !self.is_person {
            return;
        }
        if past.is_empty() {
            self.screen
                .note("/help lists the commands; Ctrl-D leaves, and work goes on");
            return;
        }
        let title = self.here.session.title.clone().unwrap_or_default();
        self.screen.note(&format!(
            "session {} {}",
            teamster_core::display::terminal(self.here.id.as_str()),
            teamster_core::display::terminal(&title)
        ));
        self.screen.note(past::shown(past, PAST_SHOWN).trim_end());
    }

    /// The one document of `--json`.
    fn whole(&self) -> Value {
        let status = self.reports.last().map(|report| report["status"].clone());
        json!({
            "v": 1,
            "session": self.here.id,
            "status": status,
            "turns": self.reports,
        })
    }

    async fn talk(&mut self, signals: &mut Signals) -> Result<Exit, Failure> {
        if let Some(exit) = self.next_question().await? {
            return Ok(exit);
        }
        self.prompt();
        loop {
            self.keep_reachable().await?;
            self.want_line();
            self.draw();
            let left = match self.wake(signals).await {
                Wake::Item(item) => self.item(*item).await?,
                Wake::Came(came) => self.came(came).await?,
                Wake::Sent(result) => self.sent(result).await?,
                Wake::Interrupt => self.interrupt().await?,
                Wake::Terminate => Some(Exit::Interrupted),
                Wake::Deadline => return Err(self.let_go()),
                Wake::Suspend => {
                    // Whoever has the terminal meanwhile finds it as it was before.
                    self.screen.leave();
                    self.input.lend();
                    let _ = signal::raise(signal::Signal::SIGSTOP);
                    None
                }
                Wake::Continued => {
                    self.input.take();
                    None
                }
                Wake::Tick => {
                    self.tick()?;
                    None
                }
            };
            if let Some(exit) = left {
                return Ok(exit);
            }
        }
    }

    async fn wake(&mut self, signals: &mut Signals) -> Wake {
        let deadline = match (self.is_person, self.stopped_at, self.interrupted_at) {
            (true, ..) | (_, None, None) => None,
            (_, Some(at), _) => Some(at + STOP_MAX),
            (_, None, Some(at)) => Some(at + SECOND_CHANCE),
        };
        let over = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = signals.interrupts.recv() => Wake::Interrupt,
            _ = signals.terminations.recv() => Wake::Terminate,
            _ = signals.quits.recv() => Wake::Terminate,
            _ = signals.hangups.recv() => Wake::Terminate,
            _ = signals.suspensions.recv() => Wake::Suspend,
            () = over => Wake::Deadline,
            came = self.input.next() => Wake::Came(came),
            item = self.here.next() => Wake::Item(Box::new(item)),
            result = self.outgoing.next(&self.client) => Wake::Sent(result),
            _ = signals.continued.recv() => Wake::Continued,
            _ = signals.tick.tick() => Wake::Tick,
        }
    }

    fn tick(&mut self) -> Result<(), Failure> {
        for told in self.keeper.look(&self.client, &self.here.id) {
            self.screen.note(&told);
        }
        if self.here.is_running()
            && self.question.is_none()
            && let Some(turn) = &self.here.session.turn
        {
            self.screen.progress(turn);
        }
        if (self.here.is_running() && !self.here.is_waiting()) || self.awaited.is_some() {
            match self.keeper.store() {
                Store::Told(told) => self.screen.say(&told),
                Store::Full(failure) if !self.is_person => return Err(failure),
                Store::Fine | Store::Full(_) => {}
            }
        } else {
            self.keeper.heard();
        }
        Ok(())
    }

    /// A line is read when it may be answered: a person's at any time, a script's when the one before is.
    fn want_line(&mut self) {
        if let Input::Lines(lines) = &mut self.input
            && (self.is_person || (self.awaited.is_none() && self.outgoing.is_empty()))
        {
            lines.want();
        }
    }

    /// Asks for a line where the terminal edits it.
    pub(super) fn prompt(&mut self) {
        if self.is_person
            && self.question.is_none()
            && !self.here.is_running()
            && self.set.out.is_text()
        {
            self.screen.prompt(PROMPT);
        }
    }

    /// The row at the bottom.
    fn draw(&mut self) {
        if !self.screen.is_edited {
            return;
        }
        let (shown, behind) = self.editor.view();
        let (text, is_typing) = match (&self.question, &self.here.session.turn) {
            (Some(_), _) => (format!("{}{shown}", crate::cli::ask::QUESTION), true),
            (None, _) if self.draft.is_open() => (format!(". {shown}"), true),
            (None, Some(turn)) if self.here.is_running() && self.editor.is_empty() => {
                (status::line(turn, self.here.since.elapsed()), false)
            }
            (None, _) if self.here.is_running() => (format!("(steers) {PROMPT}{shown}"), true),
            (None, _) => (format!("{PROMPT}{shown}"), !self.editor.is_empty()),
        };
        self.screen.bottom(&text, behind, is_typing);
    }

    /// A turn ended.
    pub(super) fn ended(&mut self, reason: teamster_protocol::event::EndReason) {
        let Some(turn) = self.here.session.turn.clone() else {
            return;
        };
        let outcome = Outcome::Ended(reason);
        let denied = std::mem::take(&mut self.has_denied);
        let (exit, failure) = verdict(&self.here.id, Some(&turn), &outcome, denied);
        self.screen.note(&status::summary(&turn));
        if self.is_person && self.set.out.is_text() {
            if let Some(failure) = failure {
                self.screen.say(&words(&failure));
            }
            self.prompt();
            return;
        }
        if self.finished.len() == FINISHED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(Finished {
            messages: turn.messages.clone(),
            exit,
            failure,
            report: document(&self.here.id, Some(&turn)),
        });
        self.settle();
    }

    /// Takes the end of the turn that answers the awaited message, if both are known.
    pub(super) fn settle(&mut self) {
        let Some((message, _)) = self
            .awaited
            .as_ref()
            .and_then(|awaited| awaited.sent.clone())
        else {
            return;
        };
        let answers = |finished: &Finished| finished.messages.contains(&message);
        let Some(place) = self.finished.iter().position(answers) else {
            return;
        };
        let Some(finished) = self.finished.drain(..=place).next_back() else {
            return;
        };
        self.awaited = None;
        self.interrupted_at = None;
        self.stopped_at = None;
        self.last = finished.exit;
        let mut report = finished.report;
        if let Some(failure) = finished.failure {
            if let Some(object) = report.as_object_mut() {
                object.insert(
                    "error".to_owned(),
                    serde_json::to_value(failure.advised()).unwrap_or_default(),
                );
            }
            if self.set.out.format == Format::Json {
                self.screen.say(&words(&failure));
            } else {
                self.screen.leave();
                self.set.out.failure(&failure, Some(report.clone()));
            }
        }
        if self.set.out.format == Format::Json {
            self.reports.push(report);
        }
    }

    /// What is not sent yet is given a moment; then how to come back is said.
    async fn farewell(&mut self) {
        let until = Instant::now() + LEAVE_MAX;
        while !self.outgoing.is_empty() {
            let sent = tokio::select! {
                sent = self.outgoing.next(&self.client) => sent,
                () = sleep_until(until) => break,
            };
            if sent.is_err() {
                break;
            }
            self.outgoing.settle();
            self.here.is_new = false;
        }
        for text in self.outgoing.clear() {
            self.name_unsent(&text);
        }
        if self.here.is_new || !self.is_person {
            return;
        }
        let back = come_back(&self.here.id);
        self.screen.note(&if self.here.is_running() {
            format!("the turn goes on; come back with: {back}")
        } else {
            format!("come back with: {back}")
        });
    }

    fn let_go(&mut self) -> Failure {
        let (_, failure) = verdict(&self.here.id, None, &Outcome::Detached, false);
        failure.unwrap_or_else(|| Failure::new(Exit::Interrupted, "cli.detached", "you let go"))
    }
}

/// A failure in words, as a person reads it.
pub(super) fn words(failure: &Failure) -> String {
    let failure = failure.advised();
    let mut text = format!("error: {failure}");
    if let Some(hint) = &failure.hint {
        text.push_str("\n  next: ");
        text.push_str(hint);
    }
    teamster_core::display::terminal(&text)
}
