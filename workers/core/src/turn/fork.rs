//! What a new session takes over from the one that it is a fork of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use teamster_protocol::{
    BlobRef, CallId, Message,
    input::{SessionOptions, TurnOptions},
    message::ResultKind,
    usage::Budget,
};

use crate::turn::state::{CallState, State};

/// What a fork takes over. Grants, approvals, queue, budgets and usage are left behind.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// The transcript; open calls are answered as cancelled.
    pub messages: Vec<Arc<Message>>,
    /// What the next turn runs with where its message says nothing.
    pub options: TurnOptions,
    /// Calls whose results are masked.
    pub masked: Vec<CallId>,
    /// Results of which the transcript holds a part, with the whole.
    pub stored: BTreeMap<CallId, BlobRef>,
    /// Title, workspace and metadata of the source.
    pub session: SessionOptions,
}

/// What a fork of `state` takes over. The state's stored messages must have been supplied.
pub fn taken(state: &State) -> Taken {
    let mut messages = state.transcript.clone();
    let calls = state.turn.iter().flat_map(|turn| &turn.calls);
    messages.extend(calls.filter_map(|call| {
        let (outcome, text) = match call.state {
            CallState::Done => return None,
            CallState::Started { .. } => (
                ResultKind::OutcomeUnknown,
                "cancelled by fork: the session was forked while this call ran; whether it took effect there is not known. \
                 Check before you repeat it.",
            ),
            _ => (
                ResultKind::Cancelled,
                "cancelled by fork: the session was forked before this call ran, and it does not run here",
            ),
        };
        Some(Arc::new(call.result(outcome, text)))
    }));
    // Appended messages that waited for these results.
    messages.extend(state.waiting.iter().cloned().map(Arc::new));
    let known: BTreeSet<&CallId> = messages
        .iter()
        .filter_map(|message| match &**message {
            Message::FunctionResult { call, .. } => Some(call),
            _ => None,
        })
        .collect();
    let masked = state
        .masked
        .iter()
        .filter(|call| known.contains(call))
        .cloned()
        .collect();
    let origin = state.origin.as_ref();
    // Not what was configured when its last turn began: that may have changed.
    let options = state.asked.clone().or(&state.wanted);
    Taken {
        masked,
        stored: state.stored.clone(),
        messages,
        options: TurnOptions {
            budget: Budget::default(),
            ..options
        },
        session: SessionOptions {
            title: origin.and_then(|origin| origin.title.clone()),
            workspace: origin.and_then(|origin| origin.workspace.clone()),
            metadata: origin
                .map(|origin| origin.metadata.clone())
                .unwrap_or_default(),
        },
    }
}
