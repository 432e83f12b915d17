//! The state of a session: a fold over its events, and nothing else.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use teamster_protocol::{
    ApprovalId, Arguments, CallId, Class, Commit, Cursor, Digest, Event, FunctionId, Head, Message,
    MessageId, Principal, RequestId, SessionId, TurnId,
    event::EndReason,
    hook::Point,
    input::{Decision, TurnOptions},
    limits,
    message::{Content, ResultKind, WireCall},
    policy::{Exposure, Judgement},
    usage::{NanoUsd, Usage},
};

use crate::turn::call::{self, Meant};

/// Version of the fold. A snapshot of another version is folded anew.
pub const FOLD_VERSION: u32 = 1;

/// Everything that is known about a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The session.
    pub session: SessionId,
    /// Number of the last commit; 0 before the first.
    pub n: u64,
    /// Stream sequence of the last commit; 0 before the first.
    pub seq: u64,
    /// SHA-256 of the last commit's bytes.
    pub hash: Digest,
    /// Head of the last commit.
    pub head: Option<Head>,
    /// What is consumed, the draft's inputs included.
    pub cursor: Cursor,
    /// The commit that holds the running turn's last claim.
    pub epoch: u64,
    /// How the session began; `None` before that.
    pub origin: Option<Origin>,
    /// The messages, oldest first.
    pub transcript: Vec<Message>,
    /// The options of the last turn, resolved.
    pub options: TurnOptions,
    /// What the next turn's first message asked for.
    pub asked: TurnOptions,
    /// The turn that runs or waits.
    pub turn: Option<Turn>,
    /// The turn that ended last.
    pub last: Option<Ended>,
    /// Turns so far.
    pub turns: u64,
    /// Whether a user message waits for a turn.
    pub is_unanswered: bool,
    /// Consumed inputs, oldest first.
    pub consumed: VecDeque<ConsumedInput>,
    /// Tokens of all turns.
    pub usage: Usage,
    /// Money of all turns that is known.
    pub cost: NanoUsd,
    /// Whether a model without a known price was used.
    pub is_cost_partial: bool,
}

/// A consumed input: what makes a late repetition recognisable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumedInput {
    /// Its id.
    pub id: MessageId,
    /// Its stream sequence.
    pub seq: u64,
    /// When its commit was made, in milliseconds since 1970.
    pub at_ms: u64,
}

/// How a session began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Who sent the first message.
    pub by: Principal,
    /// A title.
    pub title: Option<String>,
    /// The workspace root.
    pub workspace: Option<String>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A turn that runs or waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The turn.
    pub id: TurnId,
    /// Its number, from 1.
    pub number: u64,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// How long it has waited for people, in milliseconds.
    pub waited_ms: u64,
    /// Since when it waits for a person.
    pub waits_since_ms: Option<u64>,
    /// Generations begun, repeated ones not counted: also the number of the next step.
    pub steps: u32,
    /// Calls begun.
    pub calls_started: u32,
    /// Tokens spent.
    pub spent: Usage,
    /// Money spent, as far as known.
    pub cost: NanoUsd,
    /// The request to a model that is open.
    pub generation: Option<Generation>,
    /// Whether the last generation asked for nothing and was whole: the turn may end.
    pub is_answered: bool,
    /// A generation's failure that ends the turn.
    pub failure: Option<(String, String)>,
    /// The calls of the last answer, in its order.
    pub calls: Vec<Call>,
    /// Whether a user message came after the model last looked.
    pub has_unseen: bool,
    /// Cut streams that were resumed.
    pub resumes: u32,
    /// At which step each point's hooks were done last.
    pub hooks: BTreeMap<Point, u32>,
    /// The system prompt that the hooks of the coming generation made.
    pub system_prompt: Option<String>,
    /// A hook's no, which ends the turn.
    pub denied: Option<(String, String)>,
    /// The last call's fingerprint and how often it came in a row.
    pub repeats: Option<(Digest, u32)>,
    /// Whether the model was told that it repeats itself.
    pub is_warned: bool,
    /// Takeovers.
    pub attempt: u32,
}

/// A request to a model that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// The request.
    pub request: RequestId,
    /// The try, from 1.
    pub attempt: u32,
    /// The commit that started it.
    pub n: u64,
}

/// A call of the last answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// What it means, or why that cannot be said.
    pub meant: Result<Meant, String>,
    /// How far it is.
    pub state: CallState,
    /// What it does, once it was allowed.
    pub class: Class,
    /// Whether it may run again when its outcome is lost.
    pub is_repeatable: bool,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// Times a person was asked about it.
    pub asked: u32,
    /// The bytes that a person approved.
    pub approved: Option<Digest>,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallState {
    /// The model asked for it.
    Proposed,
    /// A person must decide.
    Held(Held),
    /// A person approved; these judges are still to be heard.
    Released {
        /// All judges, because the arguments were edited, or only the rest of the chain.
        rest: Option<Vec<FunctionId>>,
    },
    /// It may run.
    Allowed,
    /// It runs; the intent is in commit `n`.
    Started {
        /// The commit.
        n: u64,
    },
    /// It came to something.
    Done,
}

/// A request for a person's decision that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The request.
    pub approval: ApprovalId,
    /// Digest of the bytes that are shown.
    pub digest: Digest,
    /// The judges after the holder.
    pub rest: Vec<FunctionId>,
    /// When the wait ends, in milliseconds since 1970.
    pub expires_at_ms: u64,
    /// What led to the request.
    pub judgement: Judgement,
}

/// A turn that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The turn.
    pub id: TurnId,
    /// Its number.
    pub number: u64,
    /// Generations that it began.
    pub steps: u32,
    /// Why it ended.
    pub reason: EndReason,
    /// Tokens that it spent.
    pub spent: Usage,
    /// Money that it spent, as far as known.
    pub cost: NanoUsd,
}

/// Why a commit cannot follow a state.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FoldError {
    /// The commit belongs to another session.
    #[error("commit {n} belongs to another session")]
    Session {
        /// The commit.
        n: u64,
    },
    /// A commit is missing, doubled or out of order.
    #[error("commit {found} follows commit {last}")]
    Number {
        /// The commit before.
        last: u64,
        /// The commit found.
        found: u64,
    },
    /// The commit does not name the bytes before it.
    #[error("commit {n} does not follow from the bytes before it")]
    Chain {
        /// The commit.
        n: u64,
    },
}

impl State {
    /// The state before the first commit.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            n: 0,
            seq: 0,
            hash: Digest::ZERO,
            head: None,
            cursor: Cursor::default(),
            epoch: 0,
            origin: None,
            transcript: Vec::new(),
            options: TurnOptions::default(),
            asked: TurnOptions::default(),
            turn: None,
            last: None,
            turns: 0,
            is_unanswered: false,
            consumed: VecDeque::new(),
            usage: Usage::default(),
            cost: NanoUsd::default(),
            is_cost_partial: false,
        }
    }

    /// Folds one stored commit.
    pub fn absorb(&mut self, commit: &Commit, hash: Digest, seq: u64) -> Result<(), FoldError> {
        if commit.session != self.session {
            return Err(FoldError::Session { n: commit.n });
        }
        if commit.n != self.n + 1 {
            return Err(FoldError::Number {
                last: self.n,
                found: commit.n,
            });
        }
        if commit.prev != self.hash {
            return Err(FoldError::Chain { n: commit.n });
        }
        for input in &commit.consumed {
            self.consume(input.id.clone(), input.seq, commit.at_ms);
            self.cursor.advance(input.lane, input.seq);
        }
        for event in &commit.events {
            self.apply(event, commit.at_ms);
        }
        self.seal(commit.head.clone(), hash, seq);
        Ok(())
    }

    /// Ends the draft that made this state: it is stored.
    pub(crate) fn seal(&mut self, head: Head, hash: Digest, seq: u64) {
        self.n += 1;
        self.hash = hash;
        self.seq = seq;
        self.cursor = head.cursor;
        self.head = Some(head);
    }

    /// Remembers a consumed input for the time that keys live.
    pub(crate) fn consume(&mut self, id: MessageId, seq: u64, at_ms: u64) {
        let ttl = u64::try_from(limits::KEY_TTL.as_millis()).unwrap_or(u64::MAX);
        while self.consumed.len() >= limits::KEYS_PER_SESSION_MAX
            || self
                .consumed
                .front()
                .is_some_and(|oldest| oldest.at_ms.saturating_add(ttl) < at_ms)
        {
            self.consumed.pop_front();
        }
        self.consumed.push_back(ConsumedInput { id, seq, at_ms });
    }

    /// The input with this id, if it was consumed before.
    pub fn consumed(&self, id: &MessageId) -> Option<&ConsumedInput> {
        self.consumed.iter().find(|input| input.id == *id)
    }

    /// Whether user messages may join the transcript now: not between a call and its result, nor while a model answers.
    pub fn takes_messages(&self) -> bool {
        self.turn.as_ref().is_none_or(|turn| {
            turn.generation.is_none() && turn.calls.iter().all(|call| call.state == CallState::Done)
        })
    }

    /// The commit that is being drafted.
    pub fn drafting(&self) -> u64 {
        self.n + 1
    }

    /// The requests for a person's decision that are open.
    pub fn held(&self) -> impl Iterator<Item = (&Call, &Held)> {
        self.turn
            .iter()
            .flat_map(|turn| &turn.calls)
            .filter_map(|call| match &call.state {
                CallState::Held(held) => Some((call, held)),
                _ => None,
            })
    }

    /// A call of the running turn.
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.turn.as_ref()?.calls.iter().find(|call| call.id == *id)
    }

    /// How the running turn offers functions to its model.
    pub fn exposure(&self) -> Exposure {
        self.options
            .functions
            .as_ref()
            .map(|policy| policy.expose)
            .unwrap_or_default()
    }

    /// Folds one event of the commit that is being drafted or read.
    pub(crate) fn apply(&mut self, event: &Event, at_ms: u64) {
        let n = self.drafting();
        match event {
            Event::SessionCreated {
                by,
                title,
                workspace,
            } => {
                self.origin = Some(Origin {
                    by: by.clone(),
                    title: title.clone(),
                    workspace: workspace.clone(),
                    at_ms,
                });
            }
            Event::MessageAdded { message, options } => {
                self.asked = options.clone().or(&self.asked);
                self.add_message(message);
            }
            Event::TurnStarted {
                turn,
                number,
                options,
                ..
            } => self.start_turn(turn, *number, options.as_ref(), at_ms),
            Event::TurnEnded { reason, .. } => self.end_turn(reason),
            Event::TookOver { attempt, .. } => {
                self.epoch = n;
                self.with_turn(|turn| turn.attempt = *attempt);
            }
            Event::GenerationStarted { request, step, .. } => {
                self.with_turn(|turn| turn.start_generation(request, *step, n));
            }
            Event::GenerationFinished {
                message,
                stop,
                usage,
                cost,
                ..
            } => {
                self.spend(usage, *cost);
                let exposure = self.exposure();
                if let Some(turn) = &mut self.turn {
                    turn.finish_generation(message.as_ref(), *stop, exposure);
                }
                self.transcript.extend(message.clone());
            }
            Event::GenerationInterrupted {
                partial,
                usage,
                cost,
                error,
                ..
            } => {
                self.spend(usage, *cost);
                self.with_turn(|turn| {
                    turn.generation = None;
                    turn.calls.clear();
                    turn.failure = Some((
                        format!("model.{}", error.kind.as_str()),
                        error.message.clone(),
                    ));
                });
                self.transcript.extend(partial.clone());
            }
            Event::CallProposed { .. }
            | Event::BudgetExceeded { .. }
            | Event::InputDropped { .. }
            | Event::ApprovalExpired { .. } => {}
            Event::HookRan { .. } => self.note_hook(event),
            Event::CallAllowed { .. }
            | Event::CallRefused { .. }
            | Event::CallStarted { .. }
            | Event::CallFinished { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. } => self.move_call(event, at_ms),
        }
    }

    fn add_message(&mut self, message: &Message) {
        if matches!(message, Message::User { .. }) {
            match &mut self.turn {
                Some(turn) => {
                    turn.has_unseen = true;
                    turn.is_answered = false;
                }
                None => self.is_unanswered = true,
            }
        }
        if matches!(message, Message::Notice { .. }) {
            self.with_turn(|turn| {
                // A notice answers what it speaks of: a cut stream, or calls that repeat.
                if turn.failure.take().is_some() {
                    turn.resumes += 1;
                } else if turn
                    .repeats
                    .as_ref()
                    .is_some_and(|(_, count)| *count >= limits::REPEATS_WARN)
                {
                    turn.is_warned = true;
                }
            });
        }
        self.transcript.push(message.clone());
    }

    fn start_turn(&mut self, id: &TurnId, number: u64, options: Option<&TurnOptions>, at_ms: u64) {
        if let Some(options) = options {
            self.options = options.clone();
        }
        self.asked = TurnOptions::default();
        self.turns = number;
        self.is_unanswered = false;
        self.epoch = self.drafting();
        self.turn = Some(Turn::new(id.clone(), number, at_ms));
    }

    fn end_turn(&mut self, reason: &EndReason) {
        if let Some(turn) = self.turn.take() {
            self.is_unanswered = turn.has_unseen && turn.steps > 0;
            self.last = Some(Ended {
                id: turn.id,
                number: turn.number,
                steps: turn.steps,
                reason: reason.clone(),
                spent: turn.spent,
                cost: turn.cost,
            });
        }
    }

    fn note_hook(&mut self, event: &Event) {
        let Event::HookRan {
            point,
            step,
            function,
            denied,
            system_prompt,
            ..
        } = event
        else {
            return;
        };
        self.with_turn(|turn| {
            if let Some(prompt) = system_prompt {
                turn.system_prompt = Some(prompt.clone());
            }
            match (function, denied) {
                (None, _) => {
                    turn.hooks.insert(*point, *step);
                }
                (Some(function), Some(reason)) => {
                    turn.denied = Some((function.to_string(), reason.clone()));
                }
                (Some(_), None) => {}
            }
        });
    }

    fn move_call(&mut self, event: &Event, at_ms: u64) {
        let n = self.drafting();
        let Some(turn) = &mut self.turn else { return };
        let (Event::CallAllowed { call, .. }
        | Event::CallRefused { call, .. }
        | Event::CallStarted { call }
        | Event::CallFinished { call, .. }
        | Event::ApprovalRequested { call, .. }
        | Event::ApprovalResolved { call, .. }) = event
        else {
            return;
        };
        let Some(call) = turn.calls.iter_mut().find(|known| known.id == *call) else {
            return;
        };
        let mut result = None;
        match event {
            Event::CallAllowed {
                class,
                repeatable,
                timeout_ms,
                arguments,
                ..
            } => {
                call.class = *class;
                call.is_repeatable = *repeatable;
                call.timeout_ms = *timeout_ms;
                call.replace_arguments(arguments.as_ref());
                call.state = CallState::Allowed;
            }
            Event::ApprovalRequested {
                approval,
                arguments,
                holder: _,
                rest,
                expires_at_ms,
                judgement,
                ..
            } => {
                call.replace_arguments(Some(arguments));
                call.asked += 1;
                call.state = CallState::Held(Held {
                    approval: approval.clone(),
                    digest: arguments.digest(),
                    rest: rest.clone(),
                    expires_at_ms: *expires_at_ms,
                    judgement: judgement.clone(),
                });
                turn.waits_since_ms.get_or_insert(at_ms);
            }
            Event::ApprovalResolved {
                decision, digest, ..
            } => call.release(decision, *digest),
            Event::CallStarted { .. } => {
                call.state = CallState::Started { n };
                turn.calls_started += 1;
            }
            Event::CallRefused { outcome, text, .. }
            | Event::CallFinished { outcome, text, .. } => {
                call.state = CallState::Done;
                result = Some(call.result(*outcome, text));
            }
            _ => {}
        }
        if let Some(message) = result {
            turn.note_result(&message);
            self.transcript.push(message);
        }
        turn.stop_waiting(at_ms);
    }

    fn with_turn(&mut self, change: impl FnOnce(&mut Turn)) {
        if let Some(turn) = &mut self.turn {
            change(turn);
        }
    }

    fn spend(&mut self, usage: &Usage, cost: Option<NanoUsd>) {
        self.usage.add(usage);
        self.is_cost_partial |= cost.is_none();
        self.cost = self.cost.plus(cost.unwrap_or_default());
        self.with_turn(|turn| {
            turn.spent.add(usage);
            turn.cost = turn.cost.plus(cost.unwrap_or_default());
        });
    }
}

impl Turn {
    fn new(id: TurnId, number: u64, at_ms: u64) -> Self {
        Self {
            id,
            number,
            started_ms: at_ms,
            waited_ms: 0,
            waits_since_ms: None,
            steps: 0,
            calls_started: 0,
            spent: Usage::default(),
            cost: NanoUsd::default(),
            generation: None,
            is_answered: false,
            failure: None,
            calls: Vec::new(),
            has_unseen: false,
            resumes: 0,
            hooks: BTreeMap::new(),
            system_prompt: None,
            denied: None,
            repeats: None,
            is_warned: false,
            attempt: 0,
        }
    }

    /// The step that runs, from 0.
    pub fn step(&self) -> u32 {
        self.steps.saturating_sub(1)
    }

    fn start_generation(&mut self, request: &RequestId, step: u32, n: u64) {
        let attempt = request
            .as_str()
            .rsplit('.')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(1);
        self.generation = Some(Generation {
            request: request.clone(),
            attempt,
            n,
        });
        self.steps = step + 1;
        self.is_answered = false;
        self.has_unseen = false;
        self.calls.clear();
    }

    fn finish_generation(
        &mut self,
        message: Option<&Message>,
        stop: teamster_protocol::message::StopReason,
        exposure: Exposure,
    ) {
        use teamster_protocol::message::StopReason as Stop;
        self.generation = None;
        self.system_prompt = None;
        let Some(Message::Assistant { content, .. }) = message else {
            self.failure = Some((
                "model.empty_answer".to_owned(),
                "the model answered nothing".to_owned(),
            ));
            return;
        };
        let wire: Vec<&WireCall> = content
            .iter()
            .filter_map(|part| match part {
                Content::Call(call) => Some(call),
                Content::Text { .. } | Content::Thinking { .. } => None,
            })
            .collect();
        let last = wire.len().saturating_sub(1);
        self.calls = wire
            .iter()
            .enumerate()
            .map(|(index, call)| {
                Call::proposed(call, exposure, stop == Stop::Length && index == last, index)
            })
            .collect();
        match stop {
            Stop::Length if self.calls.is_empty() => {
                self.failure = Some((
                    "model.length".to_owned(),
                    "the answer was cut at the output limit; raise max_output_tokens".to_owned(),
                ));
            }
            Stop::Refused => {
                self.failure = Some((
                    "model.refused".to_owned(),
                    "the model or its filter refused".to_owned(),
                ));
            }
            _ => self.is_answered = self.calls.is_empty(),
        }
    }

    fn note_result(&mut self, message: &Message) {
        let Message::FunctionResult {
            call,
            function,
            text,
            ..
        } = message
        else {
            return;
        };
        let arguments = self
            .calls
            .iter()
            .find(|known| known.id == *call)
            .and_then(|known| known.meant.as_ref().ok())
            .map_or("", |meant| meant.arguments.as_str());
        let name = function.as_ref().map_or("", FunctionId::as_str);
        let print = Digest::of_fields(&[name.as_bytes(), arguments.as_bytes(), text.as_bytes()]);
        match &mut self.repeats {
            Some((last, count)) if *last == print => *count += 1,
            repeats => {
                *repeats = Some((print, 1));
                self.is_warned = false;
            }
        }
    }

    fn stop_waiting(&mut self, at_ms: u64) {
        let waits = self
            .calls
            .iter()
            .any(|call| matches!(call.state, CallState::Held(_)));
        if !waits && let Some(since) = self.waits_since_ms.take() {
            self.waited_ms = self.waited_ms.saturating_add(at_ms.saturating_sub(since));
        }
    }
}

impl Call {
    fn proposed(wire: &WireCall, exposure: Exposure, is_cut: bool, index: usize) -> Self {
        let meant = if index >= limits::CALLS_PER_MESSAGE_MAX {
            Err(format!(
                "only {} calls may be asked for at once",
                limits::CALLS_PER_MESSAGE_MAX
            ))
        } else if is_cut {
            Err(
                "the call was cut at the output limit and did not run; ask again with less text"
                    .to_owned(),
            )
        } else {
            call::meaning(wire, exposure)
        };
        Self {
            id: wire.call.clone(),
            meant,
            state: CallState::Proposed,
            class: Class::default(),
            is_repeatable: false,
            timeout_ms: 0,
            asked: 0,
            approved: None,
        }
    }

    /// The function that it means, if that can be said.
    pub fn function(&self) -> Option<&FunctionId> {
        self.meant
            .as_ref()
            .ok()
            .and_then(|meant| meant.function.as_ref())
    }

    fn replace_arguments(&mut self, arguments: Option<&Arguments>) {
        if let (Ok(meant), Some(arguments)) = (&mut self.meant, arguments) {
            meant.arguments = arguments.clone();
        }
    }

    fn release(&mut self, decision: &Decision, digest: Digest) {
        let CallState::Held(held) = &self.state else {
            return;
        };
        match decision {
            Decision::Approve => {
                self.approved = Some(digest);
                self.state = CallState::Released {
                    rest: Some(held.rest.clone()),
                };
            }
            Decision::Edit { arguments } => {
                self.approved = Some(arguments.digest());
                self.state = CallState::Released { rest: None };
                self.replace_arguments(Some(arguments));
            }
            Decision::Deny { .. } => {} // the refusal that comes with it ends the call
        }
    }

    fn result(&self, outcome: ResultKind, text: &str) -> Message {
        Message::FunctionResult {
            call: self.id.clone(),
            function: self.function().cloned(),
            text: text.to_owned(),
            outcome,
        }
    }
}
