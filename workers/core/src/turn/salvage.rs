//! What is taken over when a loss is accepted, and how much is not: pure.
//!
//! A fold ends at a break, and whatever lies behind it does not count. That is right for what was decided there, and a waste of what
//! was said there: where single commits cannot be read, those behind them can. So the commit that accepts a loss adds their
//! messages anew, and those of a snapshot that reaches further than the break. What the lost part says of turns, budgets and
//! decisions is given up, and counted.

use std::collections::BTreeSet;

use teamster_protocol::{
    Commit, Event, Message, SessionId, function::harness::Loss, input::TurnOptions, limits,
};

use super::state::{Origin, State};

/// Bytes of the messages that one acceptance takes over, as JSON.
const MESSAGES_BYTES_MAX: usize = limits::EVENTS_BYTES_MAX / 2;

/// What can be taken over behind a break.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Salvage {
    /// Messages of the transcript behind what is kept, oldest first.
    pub messages: Vec<Message>,
    /// How the session began, if what is kept does not say it.
    pub origin: Option<Origin>,
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
        let mut known: BTreeSet<String> = kept.transcript.iter().filter_map(name).collect();
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
            own.iter().cloned().for_each(&mut add);
        }
        let reached = snapshot.map_or(kept.n, |state| state.n);
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
        salvage.fit(found);
        salvage
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
    pub(crate) fn settle(&mut self, closing: &mut [Event]) {
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
