//! Tells the spans of a turn to the collector: from what its log has stored, and only once it is stored.
//!
//! Owns: the place of a turn and of everything below it in a trace. The turn's place is stored when it begins; the place of
//! a generation or a call follows from it, from its id and from the takeovers so far, so that each owner finds the same.
//!
//! Whoever stores an end tells the span. Whoever takes a turn over tells, as failed, what the owner before had open, and
//! links its own attempts to that. So the parent of what other workers tell is always told by somebody.

use std::{borrow::Cow, collections::BTreeMap};

use teamster_core::turn::{
    State,
    state::{CallState, Turn},
};
use teamster_protocol::{
    Commit, Event, FunctionId, SessionId, TurnId,
    event::EndReason,
    message::{ResultKind, StopReason},
    trace::Trace,
    usage::{NanoUsd, Usage},
};
use teamster_telemetry::{
    metric, semconv,
    span::{self, Finished, Kind, Value},
    trace,
};

/// What an owner had open when it was lost.
const OWNER_LOST: &str = "harness.owner_lost";
/// A request to a model that came to no end: it is made again.
const ROUTER_LOST: &str = "harness.router_lost";

/// The place of a turn that begins now, for the message with the `traceparent` `cause`.
pub(super) fn begin(cause: Option<&str>) -> Option<Trace> {
    let place = trace::begin(cause, semconv::INVOKE_AGENT)?;
    Some(Trace {
        context: place.context,
        parent: place.parent,
    })
}

/// The `traceparent` of a generation or a call, by its id; without one, that of the turn.
pub(super) fn place(turn: &Turn, id: Option<&str>) -> Option<String> {
    let turn_place = &turn.trace.as_ref()?.context;
    match id {
        Some(id) => trace::below(turn_place, &key(id, turn.attempt)),
        None => Some(turn_place.clone()),
    }
}

fn key(id: &str, attempt: u32) -> String {
    format!("{id}/{attempt}")
}

/// What is known of the turn and of what runs in it.
#[derive(Debug)]
pub(super) struct Spans {
    session: SessionId,
    turn: Option<Running>,
    /// By id: the open generation and the open calls.
    open: BTreeMap<String, Open>,
    /// Functions of calls that were proposed and have not begun, by call.
    proposed: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Running {
    id: TurnId,
    number: u64,
    trace: Option<Trace>,
    started_ms: u64,
    attempt: u32,
}

#[derive(Debug, Clone)]
struct Open {
    what: What,
    start_ms: u64,
    attempt: u32,
    /// The attempt before: a `traceparent`.
    link: Option<String>,
}

#[derive(Debug, Clone)]
enum What {
    Generation { model: String, step: u32 },
    Call { function: String },
}

impl Spans {
    /// What a stored state tells. When something open began is not in it: not before its last commit, as far as one knows.
    pub(super) fn of(state: &State) -> Self {
        let mut spans = Self {
            session: state.session.clone(),
            turn: None,
            open: BTreeMap::new(),
            proposed: BTreeMap::new(),
        };
        let Some(turn) = &state.turn else {
            return spans;
        };
        let attempt = turn.attempt;
        spans.turn = Some(Running {
            id: turn.id.clone(),
            number: turn.number,
            trace: turn.trace.clone(),
            started_ms: turn.started_ms,
            attempt,
        });
        let mut open = |id: &str, what| {
            let open = Open {
                what,
                start_ms: state.at_ms,
                attempt,
                link: None,
            };
            spans.open.insert(id.to_owned(), open);
        };
        if let Some(generation) = &turn.generation {
            let model = state.options.model.clone().unwrap_or_default();
            let step = turn.step();
            open(
                generation.request.as_str(),
                What::Generation { model, step },
            );
        }
        for call in &turn.calls {
            let function = call.function().map(ToString::to_string).unwrap_or_default();
            if matches!(call.state, CallState::Started { .. }) {
                open(call.id.as_str(), What::Call { function });
            } else {
                spans.proposed.insert(call.id.to_string(), function);
            }
        }
        spans
    }

    /// Tells what a commit ended; `state` is the state with it.
    pub(super) fn stored(&mut self, commit: &Commit, state: &State) {
        for event in &commit.events {
            self.event(event, commit.at_ms, state);
        }
    }

    fn event(&mut self, event: &Event, at_ms: u64, state: &State) {
        match event {
            Event::TurnStarted {
                turn,
                number,
                trace,
                ..
            } => {
                self.open.clear();
                self.proposed.clear();
                self.turn = Some(Running {
                    id: turn.clone(),
                    number: *number,
                    trace: trace.clone(),
                    started_ms: at_ms,
                    attempt: 0,
                });
            }
            Event::TookOver { attempt, .. } => self.took_over(*attempt, at_ms),
            Event::GenerationStarted { request, step, .. } => {
                let model = state.options.model.clone().unwrap_or_default();
                self.generation_started(request.as_str(), model, *step, at_ms);
            }
            Event::GenerationFinished { .. } | Event::GenerationInterrupted { .. } => {
                self.generation_ended(event, at_ms);
            }
            Event::CallProposed { call, function, .. } => {
                let function = function.as_ref().map(FunctionId::to_string);
                self.proposed
                    .insert(call.to_string(), function.unwrap_or_default());
            }
            Event::CallStarted { call } => {
                let function = self.proposed.remove(call.as_str()).unwrap_or_default();
                self.begin(call.as_str(), What::Call { function }, at_ms, None);
            }
            Event::CallRefused { call, outcome, .. } => {
                let function = self.proposed.remove(call.as_str()).unwrap_or_default();
                self.begin(call.as_str(), What::Call { function }, at_ms, None);
                self.call_ended(call.as_str(), *outcome, at_ms);
            }
            Event::CallFinished { call, outcome, .. } => {
                self.call_ended(call.as_str(), *outcome, at_ms);
            }
            Event::TurnEnded { reason, .. } => self.turn_ended(reason, at_ms, state),
            _ => {}
        }
    }

    fn begin(&mut self, id: &str, what: What, start_ms: u64, link: Option<String>) {
        let attempt = self.turn.as_ref().map_or(0, |turn| turn.attempt);
        self.open.insert(
            id.to_owned(),
            Open {
                what,
                start_ms,
                attempt,
                link,
            },
        );
    }

    /// What the owner before had open ends with it; this owner's attempts go on from there.
    fn took_over(&mut self, attempt: u32, at_ms: u64) {
        for (id, lost) in std::mem::take(&mut self.open) {
            let link = self.place_of(&id, &lost);
            let what = lost.what.clone();
            self.tell(&id, lost, at_ms, Vec::new(), Some(OWNER_LOST.into()));
            if let Some(turn) = &mut self.turn {
                turn.attempt = attempt;
            }
            self.begin(&id, what, at_ms, link);
        }
        if let Some(turn) = &mut self.turn {
            turn.attempt = attempt;
        }
    }

    fn generation_started(&mut self, request: &str, model: String, step: u32, at_ms: u64) {
        let before = self
            .open
            .iter()
            .find(|(_, open)| matches!(open.what, What::Generation { .. }))
            .map(|(id, _)| id.clone());
        let mut link = None;
        if let Some(id) = before
            && let Some(lost) = self.open.remove(&id)
        {
            link = self.place_of(&id, &lost);
            self.tell(&id, lost, at_ms, Vec::new(), Some(ROUTER_LOST.into()));
        }
        self.begin(request, What::Generation { model, step }, at_ms, link);
    }

    fn generation_ended(&mut self, event: &Event, at_ms: u64) {
        let (request, usage, cost, attempts, stop, answered, error) = match event {
            Event::GenerationFinished {
                request,
                usage,
                cost,
                attempts,
                stop,
                model,
                ..
            } => (
                request,
                usage,
                cost,
                attempts,
                Some(*stop),
                Some(model),
                None,
            ),
            Event::GenerationInterrupted {
                request,
                usage,
                cost,
                attempts,
                error,
                ..
            } => {
                let code = format!("model.{}", error.kind.as_str());
                (request, usage, cost, attempts, None, None, Some(code))
            }
            _ => return,
        };
        let Some(open) = self.open.remove(request.as_str()) else {
            return;
        };
        if let What::Generation { model, .. } = &open.what {
            let (input, output) = totals(usage);
            let error = error.as_deref();
            metric::generation(seconds(open.start_ms, at_ms), model, input, output, error);
        }
        if !span::is_wanted() {
            return;
        }
        let mut attributes = spent(usage, *cost);
        attributes.push((semconv::PROVIDER_ATTEMPTS, u64::from(*attempts).into()));
        if let Some(model) = answered {
            attributes.push((semconv::RESPONSE_MODEL, model.as_str().into()));
        }
        if let Some(stop) = stop {
            let reason = Value::Texts(vec![stop_word(stop).to_owned()]);
            attributes.push((semconv::FINISH_REASONS, reason));
        }
        self.tell(
            request.as_str(),
            open,
            at_ms,
            attributes,
            error.map(Cow::Owned),
        );
    }

    fn call_ended(&mut self, call: &str, outcome: ResultKind, at_ms: u64) {
        let Some(open) = self.open.remove(call) else {
            return;
        };
        let word = outcome_word(outcome);
        if let What::Call { function } = &open.what {
            metric::call(seconds(open.start_ms, at_ms), function, word);
        }
        let attributes = vec![(semconv::OUTCOME, word.into())];
        let error = outcome.is_error().then_some(Cow::Borrowed(word));
        self.tell(call, open, at_ms, attributes, error);
    }

    fn turn_ended(&mut self, reason: &EndReason, at_ms: u64, state: &State) {
        // A stop leaves open what it cut short.
        for (id, cut) in std::mem::take(&mut self.open) {
            self.tell(
                &id,
                cut,
                at_ms,
                Vec::new(),
                Some("harness.turn_ended".into()),
            );
        }
        self.proposed.clear();
        let Some(turn) = self.turn.take() else { return };
        metric::turn(seconds(turn.started_ms, at_ms), reason.status());
        let (Some(trace), true) = (turn.trace, span::is_wanted()) else {
            return;
        };
        let mut attributes = vec![
            (semconv::OPERATION, semconv::INVOKE_AGENT.into()),
            (semconv::AGENT, "teamster".into()),
            (semconv::CONVERSATION, self.session.as_str().into()),
            (semconv::SESSION, self.session.as_str().into()),
            (semconv::TURN, turn.id.as_str().into()),
            (semconv::TURN_NUMBER, turn.number.into()),
            (semconv::ATTEMPT, u64::from(turn.attempt).into()),
            (semconv::STATUS, reason.status().into()),
        ];
        if let Some(model) = &state.options.model {
            attributes.push((semconv::REQUEST_MODEL, model.as_str().into()));
        }
        if let Some(ended) = state.last.as_ref().filter(|ended| ended.id == turn.id) {
            attributes.push((semconv::STEPS, u64::from(ended.steps).into()));
            attributes.extend(spent(&ended.spent, Some(ended.cost)));
        }
        span::emit(Finished {
            context: trace.context,
            parent: trace.parent,
            name: semconv::INVOKE_AGENT.into(),
            kind: Kind::Internal,
            start_ms: turn.started_ms,
            end_ms: at_ms,
            attributes,
            links: Vec::new(),
            error: match reason {
                EndReason::Completed => None,
                EndReason::Failed { code, .. } => Some(Cow::Owned(code.clone())),
                other => Some(other.status().into()),
            },
        });
    }

    fn place_of(&self, id: &str, open: &Open) -> Option<String> {
        let above = &self.turn.as_ref()?.trace.as_ref()?.context;
        trace::below(above, &key(id, open.attempt))
    }

    fn tell(
        &self,
        id: &str,
        open: Open,
        end_ms: u64,
        mut attributes: Vec<(&'static str, Value)>,
        error: Option<Cow<'static, str>>,
    ) {
        let Some(turn) = self.turn.as_ref().filter(|_| span::is_wanted()) else {
            return;
        };
        let (Some(context), Some(above)) = (self.place_of(id, &open), &turn.trace) else {
            return;
        };
        attributes.extend([
            (semconv::CONVERSATION, self.session.as_str().into()),
            (semconv::SESSION, self.session.as_str().into()),
            (semconv::TURN, turn.id.as_str().into()),
            (semconv::ATTEMPT, u64::from(open.attempt).into()),
        ]);
        let (name, kind) = match open.what {
            What::Generation { model, step } => {
                let provider = model.split('/').next().unwrap_or_default().to_owned();
                let name = named(semconv::CHAT, &model);
                attributes.extend([
                    (semconv::OPERATION, semconv::CHAT.into()),
                    (semconv::PROVIDER, provider.into()),
                    (semconv::REQUEST_MODEL, model.into()),
                    (semconv::REQUEST, id.into()),
                    (semconv::STEP, u64::from(step).into()),
                ]);
                (name, Kind::Client)
            }
            What::Call { function } => {
                let name = named(semconv::EXECUTE_TOOL, &function);
                attributes.extend([
                    (semconv::OPERATION, semconv::EXECUTE_TOOL.into()),
                    (semconv::TOOL_TYPE, "function".into()),
                    (semconv::TOOL, function.into()),
                    (semconv::TOOL_CALL, id.into()),
                    (semconv::CALL, id.into()),
                ]);
                (name, Kind::Internal)
            }
        };
        span::emit(Finished {
            parent: trace::ids(&above.context).map(|(_, span)| span),
            context,
            name,
            kind,
            start_ms: open.start_ms,
            end_ms,
            attributes,
            links: open.link.into_iter().collect(),
            error,
        });
    }
}

fn named(operation: &'static str, of: &str) -> Cow<'static, str> {
    if of.is_empty() {
        operation.into()
    } else {
        format!("{operation} {of}").into()
    }
}

/// Tokens and money as the conventions count them: cached tokens are a part of the input, reasoning of the output.
fn spent(usage: &Usage, cost: Option<NanoUsd>) -> Vec<(&'static str, Value)> {
    let (input, output) = totals(usage);
    let mut attributes = vec![
        (semconv::INPUT_TOKENS, input.into()),
        (semconv::OUTPUT_TOKENS, output.into()),
        (semconv::CACHE_READ_TOKENS, usage.cache_read.into()),
    ];
    if let Some(cost) = cost {
        attributes.push((semconv::COST_USD, Value::Real(cost.as_usd())));
    }
    attributes
}

fn totals(usage: &Usage) -> (u64, u64) {
    let input = usage
        .input
        .saturating_add(usage.cache_read)
        .saturating_add(usage.cache_write);
    (input, usage.output.saturating_add(usage.reasoning))
}

fn seconds(start_ms: u64, end_ms: u64) -> f64 {
    std::time::Duration::from_millis(end_ms.saturating_sub(start_ms)).as_secs_f64()
}

fn stop_word(stop: StopReason) -> &'static str {
    match stop {
        StopReason::End => "stop",
        StopReason::Call => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refused => "content_filter",
        StopReason::Aborted => "aborted",
        StopReason::Incomplete => "incomplete",
        StopReason::Error => "error",
    }
}

fn outcome_word(outcome: ResultKind) -> &'static str {
    match outcome {
        ResultKind::Ok => "ok",
        ResultKind::Error => "error",
        ResultKind::Invalid => "invalid",
        ResultKind::DeniedByPolicy => "denied_by_policy",
        ResultKind::DeniedByOwner => "denied_by_owner",
        ResultKind::Expired => "expired",
        ResultKind::GateUnavailable => "gate_unavailable",
        ResultKind::OutcomeUnknown => "outcome_unknown",
        ResultKind::Cancelled => "cancelled",
    }
}
