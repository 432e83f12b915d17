//! A session as a reader sees it: folded from its commits, for output. Pure.
//!
//! This is a view, not the state that decides: the harness folds its own.

mod gap;

use std::collections::BTreeMap;

use serde::Serialize;
use teamster_protocol::{
    ApprovalId, CallId, Commit, FunctionId, MessageId, SessionId, TurnId,
    commit::Phase,
    event::{EndReason, Event},
    function::{approval::Pending, router::ErrorKind},
    id::{Incarnation, RequestId},
    input::Decision,
    message::{Content, Message, ResultKind},
    usage::{NanoUsd, Usage},
};

/// A turn as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// Its id.
    pub id: Option<TurnId>,
    /// Its number in the session, from 1.
    pub number: u64,
    /// The user messages that it answers.
    pub messages: Vec<MessageId>,
    /// The step it is in, from 0.
    pub step: u32,
    /// `provider/model`.
    pub model: Option<String>,
    /// The request that is being generated.
    pub generating: Option<RequestId>,
    /// The call that runs.
    pub running: Option<FunctionId>,
    /// What the assistant said, message by message.
    pub texts: Vec<String>,
    /// Tokens.
    pub usage: Usage,
    /// Money that is known; `None` as long as no priced model answered.
    pub cost: Option<NanoUsd>,
    /// Whether an unpriced model was used, so that `cost` is not all.
    pub cost_is_partial: bool,
    /// What waits for a person.
    pub pending: BTreeMap<ApprovalId, Pending>,
    /// All approvals that the turn asked for, in order.
    pub approvals: Vec<ApprovalId>,
    /// When it began, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_at_ms: Option<u64>,
    /// Why it ended.
    pub end: Option<EndReason>,
    /// What the last generation failed with, if it did.
    pub trouble: Option<ErrorKind>,
    /// Whether commits are missing since it began, so that it may have ended in one of them.
    pub is_uncertain: bool,
}

impl Turn {
    /// What the assistant said, one message after another.
    pub fn text(&self) -> String {
        self.texts.join("\n")
    }

    /// The requests that wait for a person, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Pending> {
        self.approvals
            .iter()
            .filter_map(|approval| self.pending.get(approval))
    }
}

/// A session in short.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Session {
    /// Its title.
    pub title: Option<String>,
    /// Its workspace.
    pub workspace: Option<String>,
    /// The beginning of the first user message.
    pub opening: Option<String>,
    /// Commits so far, since the last deletion of a session of this name.
    pub commits: u64,
    /// Turns so far.
    pub turns: u64,
    /// Who moves next.
    pub phase: Option<Phase>,
    /// The harness process that made the last commit.
    pub owner: Option<Incarnation>,
    /// When it began, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// When the last commit was made, in milliseconds since 1970.
    pub updated_at_ms: u64,
    /// The running turn, or the last one.
    pub turn: Option<Turn>,
    /// Tokens of all turns.
    pub usage: Usage,
    /// Money of all turns that is known.
    pub cost: Option<NanoUsd>,
    /// Whether `cost` is not all.
    pub cost_is_partial: bool,
    model: Option<String>,
    functions: BTreeMap<CallId, FunctionId>,
    /// Messages that no turn answers yet, with their commits.
    unassigned: Vec<(u64, MessageId)>,
    /// The number of the last commit.
    n: u64,
    /// The number of the one before it.
    before: u64,
    /// The deletion behind which commits are counted.
    buried: u64,
    /// Whether the session is deleted. What is known of it stays until another one begins, for whoever was watching it.
    is_deleted: bool,
    /// The commit before which commits are missing whose loss nobody has accepted so far.
    gap_at: Option<u64>,
    /// Whether the commit that was opened last says itself how the turn ended that it gives up.
    ends_turn: bool,
}

/// What an event means to somebody who watches.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// A turn began.
    Began,
    /// A generation began.
    Generating(RequestId),
    /// A generation is over; its visible text, which may be empty.
    Said {
        /// The request.
        request: RequestId,
        /// The text.
        text: String,
    },
    /// A call began to run.
    Running(FunctionId),
    /// A call came to something.
    Ran {
        /// The function, if the model named one that can be read.
        function: Option<FunctionId>,
        /// What.
        outcome: ResultKind,
    },
    /// A person must decide.
    Asked(Box<Pending>),
    /// A request for a decision is answered or gone.
    Answered {
        /// The request.
        approval: ApprovalId,
        /// How, in words.
        how: String,
    },
    /// Another harness goes on with the turn.
    TookOver(u32),
    /// The turn ended.
    Ended(EndReason),
}

impl Session {
    /// Takes what a commit says apart from its events. Call it before the events.
    pub fn open(&mut self, commit: &Commit) {
        if self.is_deleted && commit.head.phase != Phase::Deleted {
            *self = Self {
                buried: self.buried,
                n: self.n,
                ..Self::default()
            };
        }
        if self.created_at_ms == 0 {
            self.created_at_ms = commit.at_ms;
        }
        self.look_for_gap(commit);
        self.before = std::mem::replace(&mut self.n, commit.n);
        self.commits = commit.n.saturating_sub(self.buried);
        self.updated_at_ms = commit.at_ms;
        self.phase = Some(commit.head.phase);
        self.owner = Some(commit.head.owner.clone());
    }

    /// Takes a whole commit.
    pub fn apply(&mut self, session: &SessionId, commit: &Commit) -> Vec<Happening> {
        self.open(commit);
        commit
            .events
            .iter()
            .filter_map(|event| self.event(session, commit.at_ms, event))
            .collect()
    }

    /// The function that a call of the running or last turn means.
    pub fn function_of(&self, call: &CallId) -> Option<&FunctionId> {
        self.functions.get(call)
    }

    /// Whether the running or last turn answers `message`.
    pub fn answers(&self, message: &MessageId) -> bool {
        self.turn
            .as_ref()
            .is_some_and(|turn| turn.messages.contains(message))
    }

    /// Takes one event.
    pub fn event(&mut self, session: &SessionId, at_ms: u64, event: &Event) -> Option<Happening> {
        match event {
            Event::SessionCreated {
                title, workspace, ..
            } => {
                self.title.clone_from(title);
                self.workspace.clone_from(workspace);
                None
            }
            Event::SessionForked { fork, .. } => {
                self.title.clone_from(&fork.session.title);
                self.workspace.clone_from(&fork.session.workspace);
                self.model.clone_from(&fork.options.model);
                None
            }
            Event::MetaChanged {
                title: Some(title), ..
            } => {
                self.title = Some(title.clone());
                None
            }
            Event::MessageAdded {
                message, appended, ..
            } => {
                self.message(message, *appended);
                None
            }
            Event::LossAccepted { .. } => self.give_up(event, at_ms),
            Event::TurnStarted {
                turn,
                number,
                options,
                ..
            } => {
                if let Some(model) = options.as_ref().and_then(|options| options.model.clone()) {
                    self.model = Some(model);
                }
                self.turns += 1;
                self.functions.clear();
                self.turn = Some(Turn {
                    id: Some(turn.clone()),
                    number: *number,
                    messages: self.assign(),
                    model: self.model.clone(),
                    started_at_ms: at_ms,
                    ..Turn::default()
                });
                Some(Happening::Began)
            }
            Event::SessionDeleted { .. } => {
                self.buried = self.n;
                self.is_deleted = true;
                None
            }
            Event::CallProposed {
                call,
                function: Some(function),
                ..
            } => {
                self.functions.insert(call.clone(), function.clone());
                None
            }
            other => {
                if self.has_gap() {
                    self.find_turn(at_ms, other);
                }
                let mut turn = self.turn.take()?;
                let happening = self.within(session, at_ms, &mut turn, other);
                self.turn = Some(turn);
                happening
            }
        }
    }

    fn message(&mut self, message: &Message, is_appended: bool) {
        let Message::User { id, text, .. } = message else {
            return;
        };
        if self.opening.is_none() {
            self.opening = Some(teamster_protocol::text::cut(text, 200));
        }
        if is_appended {
            return; // no turn answers it
        }
        match &mut self.turn {
            Some(turn) if turn.end.is_none() => {
                turn.messages.push(id.clone());
                // If the turn has ended in what is missing, it is the next one that answers.
                if turn.is_uncertain {
                    self.unassigned.push((self.n, id.clone()));
                }
            }
            _ => self.unassigned.push((self.n, id.clone())),
        }
    }

    /// The messages that a turn answers which begins now.
    fn assign(&mut self) -> Vec<MessageId> {
        let unassigned = std::mem::take(&mut self.unassigned);
        unassigned.into_iter().map(|(_, message)| message).collect()
    }

    /// Events that mean something only within a turn.
    fn within(
        &mut self,
        session: &SessionId,
        at_ms: u64,
        turn: &mut Turn,
        event: &Event,
    ) -> Option<Happening> {
        match event {
            Event::GenerationStarted { request, step, .. } => {
                turn.step = *step;
                turn.generating = Some(request.clone());
                Some(Happening::Generating(request.clone()))
            }
            Event::GenerationFinished {
                request,
                message,
                usage,
                cost,
                model,
                ..
            } => {
                turn.model = Some(model.clone());
                turn.trouble = None;
                self.spend(turn, usage, *cost);
                Some(said(turn, request, message.as_ref()))
            }
            Event::GenerationInterrupted {
                request,
                partial,
                error,
                usage,
                cost,
                ..
            } => {
                turn.trouble = Some(error.kind);
                self.spend(turn, usage, *cost);
                Some(said(turn, request, partial.as_ref()))
            }
            Event::CallStarted { call } => {
                let function = self.functions.get(call)?.clone();
                turn.running = Some(function.clone());
                Some(Happening::Running(function))
            }
            Event::CallFinished { call, outcome, .. }
            | Event::CallRefused { call, outcome, .. } => {
                turn.running = None;
                Some(Happening::Ran {
                    function: self.functions.get(call).cloned(),
                    outcome: *outcome,
                })
            }
            Event::TurnEnded { turn: id, reason } => {
                turn.id.get_or_insert_with(|| id.clone());
                if turn.is_uncertain {
                    self.unassigned
                        .retain(|(_, message)| !turn.messages.contains(message));
                }
                Some(end(turn, reason, at_ms))
            }
            Event::TookOver { attempt, .. } => Some(Happening::TookOver(*attempt)),
            _ => decided(session, at_ms, turn, event),
        }
    }

    fn spend(&mut self, turn: &mut Turn, usage: &Usage, cost: Option<NanoUsd>) {
        turn.usage.add(usage);
        self.usage.add(usage);
        match cost {
            Some(cost) => {
                turn.cost = Some(turn.cost.unwrap_or_default().plus(cost));
                self.cost = Some(self.cost.unwrap_or_default().plus(cost));
            }
            None if usage.total() > 0 => {
                turn.cost_is_partial = true;
                self.cost_is_partial = true;
            }
            None => {}
        }
    }
}

/// A turn is over.
fn end(turn: &mut Turn, reason: &EndReason, at_ms: u64) -> Happening {
    turn.end = Some(reason.clone());
    turn.ended_at_ms = Some(at_ms);
    turn.generating = None;
    turn.running = None;
    turn.pending.clear();
    Happening::Ended(reason.clone())
}

/// Events about a person's decision.
fn decided(session: &SessionId, at_ms: u64, turn: &mut Turn, event: &Event) -> Option<Happening> {
    let (approval, how) = match event {
        Event::ApprovalRequested { approval, .. } => {
            // Of a turn whose beginning cannot be read nobody knows the id.
            let id = turn.id.clone().unwrap_or_else(TurnId::unknown);
            let pending = Pending::of(event, session, &id, at_ms)?;
            turn.pending.insert(approval.clone(), pending.clone());
            turn.approvals.push(approval.clone());
            return Some(Happening::Asked(Box::new(pending)));
        }
        Event::ApprovalResolved {
            approval,
            by,
            channel,
            decision,
            ..
        } => {
            let word = match decision {
                Decision::Approve => "approved",
                Decision::Edit { .. } => "edited",
                Decision::Deny { .. } => "denied",
            };
            (approval, format!("{word} by {by} through {channel}"))
        }
        Event::ApprovalExpired {
            approval,
            withdrawn: true,
            ..
        } => (approval, "withdrawn: its turn ended".to_owned()),
        Event::ApprovalExpired { approval, .. } => {
            (approval, "expired: nobody decided in time".to_owned())
        }
        _ => return None,
    };
    turn.pending.remove(approval);
    Some(Happening::Answered {
        approval: approval.clone(),
        how,
    })
}

fn said(turn: &mut Turn, request: &RequestId, message: Option<&Message>) -> Happening {
    turn.generating = None;
    let text = message.map(visible).unwrap_or_default();
    if !text.is_empty() {
        turn.texts.push(text.clone());
    }
    Happening::Said {
        request: request.clone(),
        text,
    }
}

/// The visible text of a message, as its parts follow one another.
pub fn visible(message: &Message) -> String {
    match message {
        Message::Assistant { content, .. } => content
            .iter()
            .filter_map(|part| match part {
                Content::Text { text } => Some(text.as_str()),
                Content::Thinking { .. } | Content::Call(_) => None,
            })
            .collect(),
        Message::User { text, .. }
        | Message::FunctionResult { text, .. }
        | Message::Notice { text, .. }
        | Message::Custom { text, .. } => text.clone(),
    }
}

/// What a turn came to, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of this document.
    pub v: u32,
    /// The session.
    pub session: String,
    /// The turn.
    pub turn: Option<String>,
    /// One word: `completed`, `failed`, `cancelled`, `budget`, `denied`, `no-progress`, `poisoned`, `awaiting_approval`,
    /// `running`, `unknown`.
    pub status: String,
    /// Why it ended, if it did.
    pub reason: Option<EndReason>,
    /// What the assistant said.
    pub text: String,
    /// Tokens.
    pub usage: Usage,
    /// Money in US dollars; `null` where it is not known.
    pub cost_usd: Option<f64>,
    /// What waits for a person.
    pub approvals: Vec<ApprovalId>,
}

impl Report {
    /// The report of a turn, ended or not.
    pub fn of(session: &SessionId, turn: Option<&Turn>) -> Self {
        let empty = Turn::default();
        let known = turn.unwrap_or(&empty);
        let status = match (&known.end, turn) {
            (Some(reason), _) => reason.status(),
            (None, None) => "unknown",
            (None, Some(_)) if !known.pending.is_empty() => "awaiting_approval",
            (None, Some(_)) => "running",
        };
        Self {
            v: 1,
            session: session.to_string(),
            turn: known.id.as_ref().map(ToString::to_string),
            status: status.to_owned(),
            reason: known.end.clone(),
            text: known.text(),
            usage: known.usage,
            cost_usd: known
                .cost
                .filter(|_| !known.cost_is_partial)
                .map(NanoUsd::as_usd),
            approvals: known.pending.keys().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
