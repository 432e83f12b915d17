//! `session::fork`: begins a new session with the transcript of another.
//!
//! The source is only read. What the fork begins with is stored as a value before the input that names it, so that whoever dies in
//! between leaves a value that nobody names, and nothing else.

use teamster_core::turn::{
    Fold, State,
    admin::read_base,
    fold::behind_deletion,
    fork::{Taken, taken},
};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault, SessionId,
    function::session::{ChangeReply, ForkRequest},
    id::ParseError,
    input::{AdminAction, Fork, SessionOptions},
    limits, text,
};

use crate::admin::{self, Change};

/// Bytes of what a commit holds beside the fork.
const COMMIT_ROOM: usize = 16 * 1024;

/// The function.
pub(super) fn function() -> Result<Function, ParseError> {
    let contract = super::change::<ForkRequest, ChangeReply>(
        "session::fork",
        "Begins a new session with the transcript of another up to one of its commits. The other does not change; calls that \
         were open there are cancelled here, and approvals, queue and budgets are left behind.",
        Class::Write,
    )?;
    Ok(Function::new(contract, fork))
}

async fn fork(ctx: Ctx, request: ForkRequest) -> Result<ChangeReply, Fault> {
    let by = admin::principal(&ctx)?;
    let source = at(&ctx, &request.session_id, request.at).await?;
    let taken = taken(&source);
    let session = merged(request.session, taken.session.clone());
    if let Some(fault) = session.fault() {
        return Err(admin::invalid(fault));
    }
    let fork = store(&ctx, &source, taken, session).await?;
    let new = request
        .new_session_id
        .unwrap_or_else(|| admin::made_up(&ctx, &by));
    let change = Change {
        ctx: &ctx,
        session: &new,
        by,
        key: admin::key(&ctx, "fork", None)?,
    };
    let action = AdminAction::Fork {
        fork: Box::new(fork),
    };
    super::changed(&change, action).await
}

/// The source as it was at a commit, or as it is, with the messages that it begins with itself.
async fn at(ctx: &Ctx, session: &SessionId, at: Option<u64>) -> Result<State, Fault> {
    let survey = ctx.mesh.log().survey(session).await?;
    if survey.stored == 0 {
        return Err(super::unknown(session));
    }
    let is_end_unreadable = survey.is_end_unreadable;
    let stored: Vec<(u64, &[u8])> = survey
        .commits
        .iter()
        .map(|one| (one.seq, &*one.body))
        .collect();
    let mut fold = Fold::new(State::new(session.clone()));
    let mut is_begun = false;
    // What a deleted session of the same name has left is not the session's.
    for (seq, bytes) in behind_deletion(&stored) {
        if is_begun && at.is_some_and(|at| fold.n() >= at) {
            break;
        }
        fold.take(bytes, *seq);
        is_begun |= fold.state().exists();
    }
    let n = fold.n();
    let mut state = match (fold.finish(), at) {
        (Ok(_), None) if is_end_unreadable => {
            let fault = admin::damaged(session, &format!("it cannot be read behind commit {n}"));
            return Err(fault.hint(ways_on(session, is_begun.then_some(n))));
        }
        (Ok(state), None) => state,
        (Ok(state), Some(at)) if n == at => state,
        // What is broken behind the commit that is asked for does not matter.
        (Err(damage), Some(at)) if damage.state.n == at => damage.state,
        (Ok(_), Some(at)) if is_begun => return Err(no_commit(session, at, n)),
        (Ok(_), Some(_)) => return Err(super::unknown(session)),
        (Err(damage), _) => {
            let fault = Fault::internal(
                "session.log_damaged",
                format_args!("the log of {session} is damaged: {}", damage.why),
            );
            return Err(fault.hint(ways_on(session, is_begun.then_some(n))));
        }
    };
    if !state.exists() {
        return Err(super::unknown(session));
    }
    if let Some(base) = state.missing().copied() {
        let lost = |why: String| {
            Fault::internal(
                "session.value_missing",
                format_args!("a value that {session} begins with is lost: {why}"),
            )
            .hint("Restore the broker's data from a backup.")
        };
        let bytes = ctx.mesh.blobs().get(&base.value).await?;
        let bytes = bytes.ok_or_else(|| lost("it is not there".to_owned()))?;
        let messages = read_base(&bytes, base.messages).map_err(|error| lost(error.to_string()))?;
        state.supply(messages);
    }
    Ok(state)
}

/// What may be done with a damaged source; `last` is the last commit that it can be forked at, if it can be at all.
fn ways_on(session: &SessionId, last: Option<u64>) -> String {
    let session = text::operand(session.as_str());
    let accept = format!("accept the loss: `teamster sessions accept-loss --yes {session}`");
    match last {
        None => format!("Nothing before the damage is left to fork at; {accept}."),
        Some(last) => format!(
            "Fork at commit {last} or before it: `teamster sessions fork --at {last} {session}`; or {accept}."
        ),
    }
}

fn no_commit(session: &SessionId, at: u64, n: u64) -> Fault {
    let name = text::operand(session.as_str());
    Fault::caller(
        "session.no_commit",
        format_args!("{session} has no commit {at} to fork at; the nearest is {n}"),
    )
    .hint(format_args!(
        "`teamster sessions show --events {name}` lists its commits."
    ))
}

/// What is asked for, else what the source has.
fn merged(asked: SessionOptions, source: SessionOptions) -> SessionOptions {
    let mut metadata = source.metadata;
    metadata.extend(asked.metadata);
    SessionOptions {
        title: asked.title.or(source.title),
        workspace: asked.workspace.or(source.workspace),
        metadata,
    }
}

/// Stores the transcript, and says what the fork begins with.
async fn store(
    ctx: &Ctx,
    source: &State,
    taken: Taken,
    session: SessionOptions,
) -> Result<Fork, Fault> {
    let encode = |error: serde_json::Error| Fault::internal("session.encode", error);
    let bytes = serde_json::to_vec(&taken.messages).map_err(encode)?;
    if bytes.len() > limits::BLOB_BYTES_MAX {
        return Err(too_large(bytes.len(), limits::BLOB_BYTES_MAX));
    }
    let messages = taken.messages.len() as u64;
    let transcript = ctx.mesh.blobs().put(bytes.into()).await?;
    let fork = Fork {
        source: source.session.clone(),
        at: source.n,
        hash: source.hash,
        transcript,
        messages,
        options: taken.options,
        masked: taken.masked,
        stored: taken.stored,
        session,
    };
    let bytes = serde_json::to_vec(&fork).map_err(encode)?.len();
    let most = limits::EVENTS_BYTES_MAX - COMMIT_ROOM;
    if bytes > most {
        return Err(too_large(bytes, most));
    }
    Ok(fork)
}

fn too_large(bytes: usize, most: usize) -> Fault {
    Fault::caller(
        "session.too_large",
        format_args!("a fork would begin with {bytes} bytes; at most {most} can be taken over"),
    )
    .hint("Fork at an earlier commit.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_on_names_only_a_commit_that_is_there() {
        let session = SessionId::parse("-x y").expect("valid");
        let none = ways_on(&session, None);
        assert!(
            !none.contains("--at") && !none.contains("commit 0"),
            "{none}"
        );
        for hint in [none, ways_on(&session, Some(7))] {
            assert!(
                hint.contains("`teamster sessions accept-loss --yes -- '-x y'`"),
                "{hint}"
            );
        }
        let some = ways_on(&session, Some(7));
        assert!(
            some.contains("`teamster sessions fork --at 7 -- '-x y'`"),
            "{some}"
        );
    }
}
