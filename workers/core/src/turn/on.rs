//! What an outcome means, as events.

use teamster_protocol::{
    ApprovalId, Arguments, BlobRef, CallId, Class, Event, FunctionId, Lane, Message, MessageId,
    RequestId, TurnId,
    commit::Consumed,
    event::{DropReason, EndReason},
    function::router::{Completion, CompletionError, ErrorKind},
    hook::Point,
    input::{Admin, Control, Send, TurnOptions},
    limits,
    message::ResultKind,
    policy::Judgement,
    text,
    usage::Usage,
};

use crate::context;
use crate::turn::{
    admin::joins,
    next::{Action, Env, measure, next_step, reserve},
    state::{Call, CallState, Cut, Held, State},
};

mod admin;
mod answer;
mod input;

use answer::{on_generated, on_lost};
use input::{expire, on_input};

/// What came of something that the machine asked for, or came by itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// An input was read.
    Input(Incoming),
    /// The hooks of a point were run.
    Hooks {
        /// The point.
        point: Point,
        /// What they said, in order.
        notes: Vec<HookNote>,
    },
    /// A model answered, or failed to.
    Generated {
        /// The request.
        request: RequestId,
        /// What it came to.
        completion: Completion,
        /// What it was made with.
        sent: Sent,
    },
    /// Nobody knows of a request that an earlier owner made: it is made again.
    Lost(RequestId),
    /// It was decided whether a call may run.
    Decided {
        /// The call.
        call: CallId,
        /// What was decided.
        decided: Decided,
        /// What the hooks noted.
        notes: Vec<HookNote>,
    },
    /// A call came to something.
    Finished {
        /// The call.
        call: CallId,
        /// What kind of result it is.
        outcome: ResultKind,
        /// The text that the model reads.
        text: String,
        /// The whole, where the text is a part of it.
        whole: Option<BlobRef>,
        /// How long it took, in milliseconds.
        duration_ms: u64,
        /// What the hooks noted.
        notes: Vec<HookNote>,
    },
}

/// What a request was made with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    /// Calls whose results were masked in it for the first time.
    pub masked: Vec<CallId>,
    /// Estimated tokens of the request without these masks.
    pub tokens_before: u64,
    /// Estimated tokens of it with them.
    pub tokens_after: u64,
    /// Estimated tokens of it by the text alone, without what is known about the model; 0 where nobody estimated.
    pub estimated: u64,
}

/// An input with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming {
    /// Its lane.
    pub lane: Lane,
    /// Its stream sequence.
    pub seq: u64,
    /// What it is.
    pub input: Input,
}

/// What an input is.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A user message.
    Message(Box<Send>),
    /// A control input.
    Control(Control),
    /// An administrator's input that deletes the session.
    Deletion {
        /// The input.
        admin: Admin,
        /// The last sequence of TURNS that holds a message of the session: what goes with it.
        queued: u64,
    },
    /// A control input that cannot be taken for a reason that its reader found.
    Refused {
        /// Its id.
        id: MessageId,
        /// The reason.
        why: DropReason,
    },
    /// Neither, although its subject says so.
    Malformed(String),
}

impl Incoming {
    /// How the commit that consumes it names it.
    pub fn consumed(&self, state: &State) -> Consumed {
        let id = match &self.input {
            Input::Message(send) => send.id.clone(),
            Input::Control(control) => control.id().clone(),
            Input::Deletion { admin, .. } => admin.id.clone(),
            Input::Refused { id, .. } => id.clone(),
            Input::Malformed(_) => {
                MessageId::of_input(&state.session, "malformed", &self.seq.to_string())
            }
        };
        Consumed {
            lane: self.lane,
            seq: self.seq,
            id,
        }
    }
}

/// What one hook said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HookNote {
    /// The hook.
    pub function: Option<FunctionId>,
    /// Its note for the log.
    pub annotation: Option<String>,
    /// Why it said no, at the points where that ends the turn.
    pub denied: Option<String>,
    /// At pre-generate: the system prompt that it made.
    pub system_prompt: Option<String>,
    /// At pre-generate: notices to append.
    pub append: Vec<String>,
}

/// What was decided about a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    /// It may run.
    Allow {
        /// What it does.
        class: Class,
        /// Whether it may run again when its outcome is lost.
        is_repeatable: bool,
        /// How long it may take, in milliseconds.
        timeout_ms: u64,
        /// The bytes that run, when they are not those that the model wrote.
        arguments: Option<Arguments>,
        /// Why.
        judgement: Option<Judgement>,
    },
    /// It will not run.
    Refuse {
        /// The kind.
        outcome: ResultKind,
        /// Why, for the model.
        text: String,
        /// What led to it.
        judgement: Option<Judgement>,
    },
    /// A person must decide.
    Hold {
        /// The function.
        function: FunctionId,
        /// The bytes that would run.
        arguments: Arguments,
        /// What led to it.
        judgement: Judgement,
        /// The hook that holds the call.
        holder: FunctionId,
        /// The judges after it.
        rest: Vec<FunctionId>,
    },
}

/// The events of an action that needs nobody; `None` for the actions whose outcome [`on`] takes.
pub fn settle(state: &State, action: &Action, env: &Env<'_>) -> Option<Vec<Event>> {
    match action {
        Action::StartTurn => Some(start_turn(state, env)),
        Action::Join => Some(state.joining().iter().cloned().map(joins).collect()),
        Action::Resume(cut) => Some(vec![notice(
            state,
            match cut {
                Cut::Text => {
                    "The connection broke in the middle of your answer. What had arrived stands above; go on from there and \
                     do not repeat it."
                }
                Cut::Nothing => {
                    "The connection broke in the middle of your answer, and nothing of it could be kept. Answer again."
                }
            },
        )]),
        Action::Warn => Some(vec![notice(
            state,
            "You have made the same call with the same result several times in a row. Do something else, or answer with what \
             you have.",
        )]),
        Action::Assemble => Some(vec![Event::GenerationStarted {
            request: RequestId::of(&state.session, state.drafting(), 1),
            step: state.turn.as_ref().map_or(0, next_step),
            reserved: reserve(state, env),
        }]),
        Action::Expire(approvals) => Some(
            approvals
                .iter()
                .flat_map(|approval| expire(state, approval))
                .collect(),
        ),
        Action::Begin(calls) => Some(
            calls
                .iter()
                .map(|call| Event::CallStarted { call: call.clone() })
                .collect(),
        ),
        Action::Finish(reason) => Some(finish(state, reason, env)),
        Action::Idle
        | Action::RunHook(_)
        | Action::Generate(_)
        | Action::Recover(_)
        | Action::Decide(_)
        | Action::Await { .. }
        | Action::Invoke(_)
        | Action::RecoverCalls(_) => None,
    }
}

/// The events of an outcome. An outcome that the state does not wait for, for example one that came twice, has none.
pub fn on(state: &State, outcome: &Outcome, at_ms: u64) -> Vec<Event> {
    match outcome {
        Outcome::Input(incoming) => on_input(state, incoming, at_ms),
        Outcome::Hooks { point, notes } => on_hooks(state, *point, notes),
        Outcome::Generated {
            request,
            completion,
            sent,
        } => on_generated(state, request, completion, sent, at_ms),
        Outcome::Lost(request) => on_lost(state, request),
        Outcome::Decided {
            call,
            decided,
            notes,
        } => on_decided(state, call, decided, notes, at_ms),
        Outcome::Finished {
            call,
            outcome,
            text,
            whole,
            duration_ms,
            notes,
        } => {
            let finished = Event::CallFinished {
                call: call.clone(),
                outcome: *outcome,
                text: context::fit(call, text, whole.map(|blob| blob.bytes)),
                whole: *whole,
                duration_ms: *duration_ms,
            };
            on_finished(state, call, finished, notes)
        }
    }
}

fn start_turn(state: &State, env: &Env<'_>) -> Vec<Event> {
    let resolved = resolve_options(state, env);
    let number = state.turns + 1;
    vec![Event::TurnStarted {
        turn: TurnId::of(&state.session, state.drafting(), env.now_ms),
        number,
        options: (resolved != state.options).then_some(resolved),
        config: env.settings.revision,
        trace: env.trace.cloned(),
    }]
}

/// What the message asked for, else what an earlier one did, else what is configured now.
fn resolve_options(state: &State, env: &Env<'_>) -> TurnOptions {
    let mut options = state.asked.clone().or(&state.wanted);
    options
        .model
        .get_or_insert_with(|| env.settings.model.clone());
    options.budget = options.budget.or(&env.settings.budget);
    options
}

fn notice(state: &State, text: &str) -> Event {
    Event::MessageAdded {
        message: Message::Notice {
            id: MessageId::of_commit(&state.session, state.drafting(), state.transcript.len()),
            text: text.to_owned(),
        },
        options: TurnOptions::default(),
        appended: false,
    }
}

fn on_hooks(state: &State, point: Point, notes: &[HookNote]) -> Vec<Event> {
    let Some(turn) = &state.turn else {
        return Vec::new();
    };
    let step = match point {
        Point::PreTurn => 0,
        Point::PreGenerate => turn.steps,
        Point::PostGenerate | Point::PreTrigger | Point::PostTrigger => turn.step(),
    };
    let mut events = Vec::new();
    for note in notes {
        events.extend(hook_event(point, step, None, note));
        events.extend(
            note.append
                .iter()
                .enumerate()
                .map(|(index, text)| Event::MessageAdded {
                    message: Message::Notice {
                        id: MessageId::of_commit(
                            &state.session,
                            state.drafting(),
                            state.transcript.len() + index,
                        ),
                        text: text::cut(text, limits::RESULT_BYTES_MAX),
                    },
                    options: TurnOptions::default(),
                    appended: false,
                }),
        );
    }
    events.push(Event::HookRan {
        point,
        step,
        function: None,
        call: None,
        annotation: None,
        denied: None,
        system_prompt: None,
    });
    events
}

/// A hook that had nothing to say leaves no event.
fn hook_event(point: Point, step: u32, call: Option<&CallId>, note: &HookNote) -> Option<Event> {
    let is_silent =
        note.annotation.is_none() && note.denied.is_none() && note.system_prompt.is_none();
    (!is_silent).then(|| Event::HookRan {
        point,
        step,
        function: note.function.clone(),
        call: call.cloned(),
        annotation: note.annotation.as_deref().map(|text| text::cut(text, 2048)),
        denied: note.denied.as_deref().map(|text| text::cut(text, 2048)),
        system_prompt: note.system_prompt.clone(),
    })
}

/// What the hooks of a call said.
fn heard(state: &State, point: Point, call: &CallId, notes: &[HookNote]) -> Vec<Event> {
    let step = state
        .turn
        .as_ref()
        .map_or(0, crate::turn::state::Turn::step);
    notes
        .iter()
        .filter_map(|note| hook_event(point, step, Some(call), note))
        .collect()
}

fn on_decided(
    state: &State,
    id: &CallId,
    decided: &Decided,
    notes: &[HookNote],
    at_ms: u64,
) -> Vec<Event> {
    let undecided =
        |call: &&Call| matches!(call.state, CallState::Proposed | CallState::Released { .. });
    let Some(call) = state.call(id).filter(undecided) else {
        return Vec::new();
    };
    let mut events = heard(state, Point::PreTrigger, id, notes);
    events.push(match decided.clone() {
        Decided::Allow {
            class,
            is_repeatable,
            timeout_ms,
            arguments,
            judgement,
        } => Event::CallAllowed {
            call: id.clone(),
            class,
            repeatable: is_repeatable,
            timeout_ms,
            arguments,
            judgement,
        },
        Decided::Refuse {
            outcome,
            text,
            judgement,
        } => Event::CallRefused {
            call: id.clone(),
            outcome,
            text: context::fit(id, &text, None),
            judgement,
        },
        Decided::Hold {
            function,
            arguments,
            judgement,
            holder,
            rest,
        } => {
            let ttl = judgement.ask_ttl_ms.unwrap_or_else(|| {
                u64::try_from(limits::APPROVAL_TTL.as_millis()).unwrap_or(u64::MAX)
            });
            Event::ApprovalRequested {
                approval: ApprovalId::of(id, call.asked, at_ms),
                call: id.clone(),
                function,
                arguments,
                judgement,
                holder,
                rest,
                expires_at_ms: at_ms.saturating_add(ttl),
            }
        }
    });
    events
}

fn on_finished(state: &State, id: &CallId, finished: Event, notes: &[HookNote]) -> Vec<Event> {
    let is_open = state
        .call(id)
        .is_some_and(|call| matches!(call.state, CallState::Started { .. }));
    if !is_open {
        return Vec::new();
    }
    let mut events = heard(state, Point::PostTrigger, id, notes);
    events.push(finished);
    events
}

fn finish(state: &State, reason: &EndReason, env: &Env<'_>) -> Vec<Event> {
    let mut events = Vec::new();
    if let EndReason::Budget { which } = reason {
        let (limit, used) = measure(*which, state, env);
        events.push(Event::BudgetExceeded {
            which: *which,
            limit,
            used,
        });
    }
    events.extend(close(state, reason));
    events
}

/// Ends the turn with everything that is open in it.
pub(crate) fn close(state: &State, reason: &EndReason) -> Vec<Event> {
    let Some(turn) = &state.turn else {
        return Vec::new();
    };
    let mut events = Vec::new();
    if let Some(generation) = &turn.generation {
        events.push(Event::GenerationInterrupted {
            request: generation.request.clone(),
            partial: None,
            error: CompletionError {
                kind: ErrorKind::Transient,
                message: "the turn ended before the model did".to_owned(),
                hint: None,
            },
            is_cut: false,
            usage: Usage::default(),
            cost: None,
            attempts: generation.attempt,
        });
    }
    for call in &turn.calls {
        let (outcome, text) = match &call.state {
            CallState::Done => continue,
            CallState::Started { .. } => (
                ResultKind::OutcomeUnknown,
                "the turn ended while this call ran; whether it took effect is not known",
            ),
            CallState::Held(Held { approval, .. }) => {
                events.push(Event::ApprovalExpired {
                    approval: approval.clone(),
                    call: call.id.clone(),
                    withdrawn: true,
                });
                (ResultKind::Cancelled, "the turn ended before this call ran")
            }
            CallState::Proposed | CallState::Released { .. } | CallState::Allowed => {
                (ResultKind::Cancelled, "the turn ended before this call ran")
            }
        };
        events.push(Event::CallFinished {
            whole: None,
            call: call.id.clone(),
            outcome,
            text: text.to_owned(),
            duration_ms: 0,
        });
    }
    events.push(Event::TurnEnded {
        turn: turn.id.clone(),
        reason: reason.clone(),
    });
    events
}
