//! The faults of the context worker.

use std::fmt;

use teamster_core::context::Overflow;
use teamster_protocol::{CallId, Fault, SessionId};

/// The history does not fit into the window, whatever is masked.
pub(crate) fn overflow(model: &str, overflow: &Overflow) -> Fault {
    Fault::caller("context.overflow", overflow).hint(format_args!(
        "Begin a new session, shorten the system prompt, offer fewer functions, or use a model with a larger window. If the \
         window of {model} is larger than {}, say so in the configuration: context.windows.",
        overflow.window
    ))
}

/// There is no such session.
pub(crate) fn no_session(session: &SessionId) -> Fault {
    Fault::gone(
        "context.no_session",
        format_args!("there is no session {session}"),
    )
    .hint("`teamster sessions ls` lists the sessions.")
}

/// The call names no session, so that nothing can be shown to it.
pub(crate) fn no_caller() -> Fault {
    Fault::caller(
        "context.no_caller",
        "the call is made in no session's name, so it has no results to read",
    )
    .hint("Results are read by the model of the session that they belong to; `teamster sessions show ID` shows them to you.")
}

/// The session has no result of that call.
pub(crate) fn no_result(call: &CallId) -> Fault {
    Fault::gone(
        "context.no_result",
        format_args!(
            "this session has no result of a call {call}; name a call as a cut or left out result names it"
        ),
    )
}

/// A stored value is not there any more.
pub(crate) fn value_lost(call: &CallId) -> Fault {
    Fault::gone(
        "context.value_lost",
        format_args!(
            "the whole result of call {call} is not stored any more; what is left of it stands in the history"
        ),
    )
}

/// The stored messages that the session begins with cannot be used.
pub(crate) fn history_lost(session: &SessionId, why: impl fmt::Display) -> Fault {
    Fault::internal(
        "session.value_missing",
        format_args!("the stored messages that {session} begins with cannot be used: {why}"),
    )
    .hint("Restore the broker's data from a backup, or fork the source again.")
}

/// The log does not hold the commit yet that was asked for.
pub(crate) fn not_yet(session: &SessionId, upto: u64) -> Fault {
    Fault::busy(
        "context.not_yet",
        format_args!("the log of {session} does not reach commit {upto} yet"),
    )
}

/// The log does not fold.
pub(crate) fn damaged(session: &SessionId, why: impl fmt::Display) -> Fault {
    Fault::internal(
        "context.log_damaged",
        format_args!("the log of {session} cannot be read: {why}"),
    )
    .hint("`teamster sessions show ID` says what can be done.")
}
