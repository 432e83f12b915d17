//! What is taken over when a loss is accepted, and how much is not: pure.
//!
//! A fold ends at a break, and whatever lies behind it does not count. That is right for what was decided there, and a waste of what
//! was said there: where single commits cannot be read, those behind them can. So the commit that accepts a loss adds their
//! messages anew, and those of a snapshot that reaches further than the break, and says how many turns there were, what they spent and
//! what the session was asked for. What the lost part says of open turns and of decisions is given up, and counted.

use std::collections::BTreeSet;

use teamster_protocol::{
    Commit, Event, Message, SessionId, function::harness::Loss, input::TurnOptions, limits,
};

use super::state::{Ledger, Origin, State};

/// Bytes of the messages that one acceptance takes over, as JSON.
const MESSAGES_BYTES_MAX: usize = limits::EVENTS_BYTES_MAX / 2;

/// What can be taken over behind a break.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Salvage {
    /// Messages of the transcript behind what is kept, oldest first.
    pub messages: Vec<Message>,
    /// How the session began, if what is kept does not say it.
    pub origin: Option<Origin>,
    /// What turns behind what is kept were asked for, where it holds for later ones.
    pub options: TurnOptions,
    /// Turns that began behind what is kept.
    pub turns: u64,
    /// What was spent behind what is kept.
    pub spent: Ledger,
    /// Commits behind what is kept of which nobody knows what was spent in them.
    pub unknown: u64,
    /// Whether what the generation came to that is open where the kept part ends is known, and so is part of what was spent.
    is_answered: bool,
    /// How much is given up. `upto` and `unreadable` are left to whoever knows them.
    pub loss: Loss,
}

impl Salvage {
    /// What lies behind `kept`: `snapshot` is a state that the log is known to have led to, and `behind` are the commits behind
    /// what is kept that can be read, oldest first. Their messages are taken over only with `is_taken_over`: commits that do not
    /// follow although nothing is unreadable were written by nobody knows whom.
    pub fn of(
        kept: &State,
        snapshot: Option<&State>,
        behind: &[Commit],
        is_taken_over: bool,
    ) -> Self {
        let mut salvage = Self::default();
        let snapshot = snapshot.filter(|state| state.n > kept.n);
        let mut known: BTreeSet<String> = kept
            .transcript
            .iter()
            .filter_map(|message| name(message))
            .collect();
        let mut found: Vec<Message> = Vec::new();
        let mut add = |message: Message| {
            let is_new = name(&message).is_some_and(|name| known.insert(name));
            if is_new {
                found.push(message);
            }
        };
        if let Some(state) = snapshot {
            let inherited = state
                .base
                .as_ref()
                .filter(|base| base.is_supplied && kept.base.is_some())
                .map_or(0, |base| {
                    usize::try_from(base.messages).unwrap_or(usize::MAX)
                });
            let own = state.transcript.get(inherited..).unwrap_or_default();
            own.iter()
                .map(|message| Message::clone(message))
                .for_each(&mut add);
        }
        let reached = snapshot.map_or(kept.n, |state| state.n);
        if is_taken_over || snapshot.is_some() {
            salvage.sum(kept, snapshot, behind);
        }
        for commit in behind {
            salvage.loss.commits += 1;
            for event in &commit.events {
                match event {
                    Event::TurnStarted { .. } => salvage.loss.turns += 1,
                    Event::ApprovalRequested { .. } => salvage.loss.approvals += 1,
                    Event::SessionCreated {
                        by,
                        title,
                        workspace,
                        metadata,
                    } => {
                        salvage.origin.get_or_insert_with(|| Origin {
                            by: by.clone(),
                            title: title.clone(),
                            workspace: workspace.clone(),
                            metadata: metadata.clone(),
                            at_ms: commit.at_ms,
                        });
                    }
                    _ => {}
                }
                if (is_taken_over || snapshot.is_some())
                    && commit.n > reached
                    && let Some(message) = said(event)
                {
                    add(message);
                }
            }
        }
        if let Some(origin) = snapshot.and_then(|state| state.origin.clone()) {
            salvage.origin = Some(origin);
        }
        salvage.loss.from = kept.n.saturating_add(1);
        salvage.loss.options =
            kept.origin.is_none() && !kept.is_deleted() && salvage.origin.is_none();
        salvage.fit(found);
        salvage
    }

    /// Adds up what holds of a part that does not count: turns, spending, and what the session was asked for.
    fn sum(&mut self, kept: &State, snapshot: Option<&State>, behind: &[Commit]) {
        self.is_answered = is_answered(kept, snapshot, behind);
        let last = snapshot.unwrap_or(kept);
        let mut model = last.options.model.clone();
        if let Some(state) = snapshot {
            self.turns = state.turns.saturating_sub(kept.turns);
            self.spent = state.spent.since(&kept.spent);
            self.options = state.asked.clone().or(&state.wanted);
        }
        // What an acceptance among them says stands for what it gave up.
        let mut counted: Vec<&Commit> = Vec::new();
        for commit in behind {
            if let Some(Event::LossAccepted { lost_from, .. }) = commit.events.first() {
                counted.retain(|earlier| earlier.n < *lost_from);
            }
            counted.push(commit);
        }
        for commit in counted.into_iter().filter(|commit| commit.n > last.n) {
            for event in &commit.events {
                self.spent.note(event, model.as_deref(), commit.at_ms);
                match event {
                    Event::TurnStarted { options, .. } => {
                        self.turns += 1;
                        let own = options.as_ref().and_then(|options| options.model.clone());
                        model = own.or(model);
                    }
                    Event::LossAccepted {
                        turns,
                        spent,
                        unknown,
                        ..
                    } => {
                        self.turns += turns;
                        self.spent.extend(spent);
                        self.unknown += unknown;
                    }
                    Event::MessageAdded { options, .. } => {
                        self.options = options.clone().or(&self.options);
                    }
                    Event::SessionForked { fork, .. } => {
                        self.options = self.options.clone().or(&fork.options);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Notes up to which number commits are known to have been.
    pub fn bound(&mut self, kept: u64, reached: Option<u64>, behind: &[Commit], n_max: u64) {
        self.loss.upto = n_max;
        let last = reached.unwrap_or(kept).max(kept);
        let read = behind.iter().filter(|commit| commit.n > last).count();
        self.unknown += n_max.saturating_sub(last).saturating_sub(read as u64);
    }

    /// Keeps the newest messages that one commit takes.
    fn fit(&mut self, found: Vec<Message>) {
        let mut bytes = 0_usize;
        let fitting = found
            .iter()
            .rev()
            .take_while(|message| {
                let size = serde_json::to_vec(message).map_or(usize::MAX, |text| text.len());
                bytes = bytes.saturating_add(size).saturating_add(64);
                bytes <= MESSAGES_BYTES_MAX
            })
            .count();
        let left = found.len().saturating_sub(fitting);
        self.loss.left = left as u64;
        self.loss.recovered = fitting as u64;
        self.messages = found.into_iter().skip(left).collect();
    }

    /// What became of calls that are open where the kept part ends, instead of that nobody knows it.
    pub(crate) fn settle(&mut self, closing: &mut Vec<Event>) {
        // What it came to is counted already, or stands in what nobody can read, which is counted as unknown.
        let is_answered = self.is_answered || self.unknown > 0;
        closing
            .retain(|event| !is_answered || !matches!(event, Event::GenerationInterrupted { .. }));
        for event in closing {
            let Event::CallFinished {
                call,
                outcome,
                text,
                ..
            } = event
            else {
                continue;
            };
            let own = |message: &Message| matches!(message, Message::FunctionResult { call: of, .. } if of == call);
            let Some(index) = self.messages.iter().position(own) else {
                continue;
            };
            if let Message::FunctionResult {
                text: known,
                outcome: kind,
                ..
            } = self.messages.remove(index)
            {
                (*outcome, *text) = (kind, known);
            }
        }
    }

    /// The events that take the messages over: they join the transcript and begin no turn.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.messages.iter().map(|message| Event::MessageAdded {
            message: message.clone(),
            options: TurnOptions::default(),
            appended: true,
        })
    }
}

/// Whether it is known what became of the generation that is open where the kept part ends.
fn is_answered(kept: &State, snapshot: Option<&State>, behind: &[Commit]) -> bool {
    let open = |state: &State| {
        let turn = state.turn.as_ref()?;
        turn.generation
            .as_ref()
            .map(|generation| generation.request.clone())
    };
    let Some(request) = open(kept) else {
        return false;
    };
    let ends = |event: &Event| match event {
        Event::GenerationFinished { request: own, .. }
        | Event::GenerationInterrupted { request: own, .. } => *own == request,
        _ => false,
    };
    let is_over = snapshot.is_some_and(|state| open(state).as_ref() != Some(&request));
    is_over || behind.iter().flat_map(|commit| &commit.events).any(ends)
}

/// What tells a message from others of its session; `None` for what is not taken over: a word of the harness about a moment that
/// has passed.
fn name(message: &Message) -> Option<String> {
    match message {
        Message::User { id, .. } | Message::Assistant { id, .. } | Message::Custom { id, .. } => {
            Some(format!("m {id}"))
        }
        Message::FunctionResult { call, .. } => Some(format!("r {call}")),
        Message::Notice { .. } => None,
    }
}

/// The message that an event adds to a transcript.
fn said(event: &Event) -> Option<Message> {
    match event {
        Event::MessageAdded { message, .. }
        | Event::GenerationFinished {
            message: Some(message),
            ..
        }
        | Event::GenerationInterrupted {
            partial: Some(message),
            ..
        } => Some(message.clone()),
        Event::CallFinished {
            call,
            outcome,
            text,
            ..
        }
        | Event::CallRefused {
            call,
            outcome,
            text,
            ..
        } => Some(Message::FunctionResult {
            call: call.clone(),
            function: None,
            text: text.clone(),
            outcome: *outcome,
        }),
        _ => None,
    }
}

/// Where commits are missing between those that can be read: for whoever must say what is wrong. `commits` are (number, stream
/// sequence) of those of one session that can be read, oldest first; numbers that were left out on purpose are none.
pub fn gaps(session: &SessionId, stored: &[(u64, &[u8])]) -> Vec<String> {
    let mut gaps = Vec::new();
    let (mut n, mut at) = (0_u64, 0_u64);
    for (seq, bytes) in stored {
        let Ok(commit) = Commit::decode(bytes) else {
            continue;
        };
        let is_left_out = matches!(
            commit.events.first(),
            Some(Event::LossAccepted { .. } | Event::SessionDeleted { .. })
        ) || commit.session != *session;
        if commit.n > n.saturating_add(1) && !is_left_out && gaps.len() < GAPS_MAX {
            let missing = if commit.n == n.saturating_add(2) {
                format!("commit {}", n.saturating_add(1))
            } else {
                format!("commits {} to {}", n.saturating_add(1), commit.n - 1)
            };
            gaps.push(format!("{missing} (between sequences {at} and {seq})"));
        }
        (n, at) = (commit.n, *seq);
    }
    gaps
}

/// Gaps that are named.
const GAPS_MAX: usize = 8;
