//! The turn that runs or waits: its generation, its calls, and how far each is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use teamster_protocol::{
    ApprovalId, Arguments, CallId, Class, Digest, FunctionId, Message, RequestId, TurnId,
    hook::Point,
    input::Decision,
    limits,
    message::{Content, ResultKind, WireCall},
    policy::{Exposure, Judgement},
    trace::Trace,
    usage::{NanoUsd, Usage},
};

use crate::turn::call::{self, Meant};

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
    pub failure: Option<Failure>,
    /// The calls of the last answer, in its order.
    pub calls: Vec<Call>,
    /// Whether a user message came after the model last looked.
    pub has_unseen: bool,
    /// Cut streams that were resumed.
    pub resumes: u32,
    /// Requests for the coming answer that the provider refused as too large.
    pub refused: u32,
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
    /// Its span; none where nothing was traced.
    pub trace: Option<Trace>,
}

/// A generation's failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A stable code.
    pub code: String,
    /// What happened, and what to do next.
    pub message: String,
    /// What is left of the answer, if it had begun and may be resumed.
    pub cut: Option<Cut>,
    /// Whether the provider refused the request as too large, so that a smaller one may be made.
    pub is_refused: bool,
}

/// What is left of an answer that broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// A text, which stands in the transcript.
    Text,
    /// Nothing that could be kept.
    Nothing,
}

impl Failure {
    fn lasting(code: &str, message: &str) -> Self {
        Self {
            code: code.to_owned(),
            message: message.to_owned(),
            cut: None,
            is_refused: false,
        }
    }
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

impl Turn {
    pub(super) fn new(id: TurnId, number: u64, at_ms: u64) -> Self {
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
            refused: 0,
            hooks: BTreeMap::new(),
            system_prompt: None,
            denied: None,
            repeats: None,
            is_warned: false,
            attempt: 0,
            trace: None,
        }
    }

    /// The step that runs, from 0.
    pub fn step(&self) -> u32 {
        self.steps.saturating_sub(1)
    }

    pub(super) fn start_generation(&mut self, request: &RequestId, step: u32, n: u64) {
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
        // A request that was refused as too large is made again.
        self.failure = None;
        self.is_answered = false;
        self.has_unseen = false;
        self.calls.clear();
    }

    pub(super) fn finish_generation(
        &mut self,
        message: Option<&Message>,
        stop: teamster_protocol::message::StopReason,
        exposure: Exposure,
    ) {
        use teamster_protocol::message::StopReason as Stop;
        self.generation = None;
        self.system_prompt = None;
        self.refused = 0;
        let Some(Message::Assistant { content, .. }) = message else {
            self.failure = Some(Failure::lasting(
                "model.empty_answer",
                "the model answered nothing",
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
                self.failure = Some(Failure::lasting(
                    "model.length",
                    "the answer was cut at the output limit; raise max_output_tokens",
                ));
            }
            Stop::Refused => {
                self.failure = Some(Failure::lasting(
                    "model.refused",
                    "the model or its filter refused",
                ));
            }
            _ => self.is_answered = self.calls.is_empty(),
        }
    }

    pub(super) fn note_result(&mut self, message: &Message) {
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

    pub(super) fn stop_waiting(&mut self, at_ms: u64) {
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
    pub(super) fn proposed(
        wire: &WireCall,
        exposure: Exposure,
        is_cut: bool,
        index: usize,
    ) -> Self {
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

    pub(super) fn replace_arguments(&mut self, arguments: Option<&Arguments>) {
        if let (Ok(meant), Some(arguments)) = (&mut self.meant, arguments) {
            meant.arguments = arguments.clone();
        }
    }

    pub(super) fn release(&mut self, decision: &Decision, digest: Digest) {
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

    pub(super) fn result(&self, outcome: ResultKind, text: &str) -> Message {
        Message::FunctionResult {
            call: self.id.clone(),
            function: self.function().cloned(),
            text: text.to_owned(),
            outcome,
        }
    }
}
