//! The faults of the context worker.

use std::fmt;

use teamster_core::context::Overflow;
use teamster_protocol::{CallId, Fault, SessionId, text};

/// The history does not fit into the window, whatever is masked. `earlier` is a commit of the session from which it could be gone
/// on.
pub(crate) fn overflow(
    session: Option<(&SessionId, Option<u64>)>,
    model: &str,
    overflow: &Overflow,
) -> Fault {
    let mut ways = Vec::new();
    if overflow.room() < overflow.usable / 2 {
        ways.push(
            "shorten the system prompt or offer fewer functions (`--allow`, `--expose agent_trigger`)"
                .to_owned(),
        );
    }
    match session {
        Some((session, Some(earlier))) => {
            let session = text::operand(session.as_str());
            ways.push(format!(
            "go on from an earlier point: `teamster sessions fork --at {earlier} {session}` begins a session with what was said up \
             to there"
            ));
        }
        Some((_, None)) => ways.push("begin a new session".to_owned()),
        None => ways.push("send less".to_owned()),
    }
    ways.push("take a model with a larger window: `--model PROVIDER/NAME`".to_owned());
    let key = format!("context.windows.\"{model}\"");
    let key = text::operand(&key);
    ways.push(format!(
        "if the window of {model} is larger than {}, say so: `teamster config set {key} TOKENS`",
        overflow.window
    ));
    Fault::caller("context.overflow", overflow).hint(ways.join("; or "))
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
