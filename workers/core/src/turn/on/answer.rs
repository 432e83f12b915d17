//! What an answer of a model means, whole, cut or lost.

use teamster_protocol::{
    CallId, Event, Message, MessageId, RequestId,
    function::router::{Completion, CompletionError, ErrorKind, Part},
    message::{Content, StopReason, WireCall},
};

use crate::{
    context::is_truncated,
    turn::{call, on::Sent, state::State},
};

/// Bytes of one assistant message in the log, as JSON.
/// A held call's arguments stand in its commit a second time, and both must fit into `COMMIT_BYTES_MAX`.
const MESSAGE_JSON_BYTES_MAX: usize = 240 * 1024;

/// Calls that an answer may hold at all. Each is proposed and has a result, so that they count more than their bytes.
const CALLS_MAX: usize = 1024;

pub(super) fn on_generated(
    state: &State,
    request: &RequestId,
    completion: &Completion,
    sent: &Sent,
    at_ms: u64,
) -> Vec<Event> {
    let is_awaited = state
        .turn
        .as_ref()
        .and_then(|turn| turn.generation.as_ref())
        .is_some_and(|generation| generation.request == *request);
    if !is_awaited {
        return Vec::new();
    }
    let is_whole = !matches!(
        completion.stop,
        StopReason::Incomplete | StopReason::Error | StopReason::Aborted
    );
    let message = assistant(state, request, completion, is_whole, at_ms);
    let is_too_large = message.as_ref().is_some_and(|message| {
        calls_in(message) > CALLS_MAX
            || serde_json::to_vec(message).map_or(usize::MAX, |bytes| bytes.len())
                > MESSAGE_JSON_BYTES_MAX
    });
    if is_too_large {
        let error = CompletionError {
            kind: ErrorKind::Rejected,
            message: "the answer is larger than one commit can hold".to_owned(),
            hint: Some("ask for less at once, or lower max_output_tokens".to_owned()),
        };
        return vec![interrupted(request, completion, None, error, false)];
    }
    let known = state
        .calibration
        .as_ref()
        .filter(|known| known.model == completion.model);
    if is_truncated(
        sent.estimated,
        &completion.usage,
        completion.attempts,
        known,
    ) {
        // What the model said was said without the rules and the words that were cut.
        let error = truncated(sent, completion);
        return vec![interrupted(request, completion, None, error, false)];
    }
    let mut events: Vec<Event> = masked(sent, completion).into_iter().collect();
    if !is_whole {
        let error = completion.error.clone().unwrap_or_else(|| CompletionError {
            kind: ErrorKind::Transient,
            message: "the stream ended without a terminal signal".to_owned(),
            hint: None,
        });
        let is_cut =
            completion.stop == StopReason::Incomplete && error.kind == ErrorKind::Transient;
        events.push(interrupted(request, completion, message, error, is_cut));
        return events;
    }
    let proposed = message
        .iter()
        .flat_map(|message| proposals(message, state))
        .collect::<Vec<_>>();
    let finished = Event::GenerationFinished {
        request: request.clone(),
        message,
        stop: completion.stop,
        usage: completion.usage,
        cost: completion.cost,
        model: completion.model.clone(),
        attempts: completion.attempts,
        estimated: sent.estimated,
    };
    events.push(finished);
    events.extend(proposed);
    events
}

/// What was masked for the first time in a request that a provider took. One that is made again, smaller, is planned anew from
/// what the log says.
fn masked(sent: &Sent, completion: &Completion) -> Option<Event> {
    let is_refused = completion
        .error
        .as_ref()
        .is_some_and(|error| error.kind == ErrorKind::ContextOverflow);
    (!is_refused && !sent.masked.is_empty()).then(|| Event::ContextMasked {
        calls: sent.masked.clone(),
        tokens_before: sent.tokens_before,
        tokens_after: sent.tokens_after,
    })
}

fn truncated(sent: &Sent, completion: &Completion) -> CompletionError {
    let read = completion.usage.input + completion.usage.cache_read + completion.usage.cache_write;
    CompletionError {
        kind: ErrorKind::ContextTruncated,
        message: format!(
            "the server of {} read {read} tokens of a request of about {}: it cut the beginning of the context to a smaller \
             window, rules included, so its answer is not used",
            completion.model, sent.estimated
        ),
        hint: Some(format!(
            "raise the window on the server (for Ollama: `num_ctx`, or OLLAMA_CONTEXT_LENGTH), or name the window that it has \
             in the configuration: context.windows: {{\"{}\": N}}",
            completion.model
        )),
    }
}

fn interrupted(
    request: &RequestId,
    completion: &Completion,
    partial: Option<Message>,
    error: CompletionError,
    is_cut: bool,
) -> Event {
    Event::GenerationInterrupted {
        request: request.clone(),
        partial,
        error,
        is_cut,
        usage: completion.usage,
        cost: completion.cost,
        attempts: completion.attempts,
    }
}

/// The answer as a message. Of a cut answer only the visible text is kept: a call that did not come whole must not run, and
/// reasoning without its signature cannot be sent again.
fn assistant(
    state: &State,
    request: &RequestId,
    completion: &Completion,
    is_whole: bool,
    at_ms: u64,
) -> Option<Message> {
    let mut calls = 0;
    let content: Vec<Content> = completion
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text } if text.is_empty() => None,
            Part::Text { text } => Some(Content::Text { text: text.clone() }),
            Part::Thinking { text, signature } => is_whole.then(|| Content::Thinking {
                text: text.clone(),
                signature: signature.clone(),
            }),
            Part::Call { name, arguments } => is_whole.then(|| {
                calls += 1;
                Content::Call(WireCall {
                    call: CallId::of(request, calls - 1, at_ms),
                    name: name.clone(),
                    arguments: arguments.clone(),
                })
            }),
        })
        .collect();
    let says_something = content
        .iter()
        .any(|part| !matches!(part, Content::Thinking { .. }));
    says_something.then(|| Message::Assistant {
        id: MessageId::of_commit(&state.session, state.drafting(), state.transcript.len()),
        content,
        partial: !is_whole,
    })
}

fn calls_in(message: &Message) -> usize {
    match message {
        Message::Assistant { content, .. } => content
            .iter()
            .filter(|part| matches!(part, Content::Call(_)))
            .count(),
        _ => 0,
    }
}

fn proposals(message: &Message, state: &State) -> Vec<Event> {
    let Message::Assistant { content, .. } = message else {
        return Vec::new();
    };
    content
        .iter()
        .filter_map(|part| match part {
            Content::Call(wire) => Some(wire),
            Content::Text { .. } | Content::Thinking { .. } => None,
        })
        .map(|wire| {
            let meant = call::meaning(wire, state.exposure()).ok();
            Event::CallProposed {
                call: wire.call.clone(),
                function: meant.as_ref().and_then(|meant| meant.function.clone()),
                digest: meant.as_ref().map(|meant| meant.arguments.digest()),
            }
        })
        .collect()
}

pub(super) fn on_lost(state: &State, request: &RequestId) -> Vec<Event> {
    let Some(turn) = &state.turn else {
        return Vec::new();
    };
    let Some(generation) = turn
        .generation
        .as_ref()
        .filter(|generation| generation.request == *request)
    else {
        return Vec::new();
    };
    vec![Event::GenerationStarted {
        request: RequestId::of(&state.session, state.drafting(), generation.attempt + 1),
        step: turn.step(),
        reserved: 0,
    }]
}
