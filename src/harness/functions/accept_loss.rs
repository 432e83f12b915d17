//! `harness::accept_loss`: an operator lets a session go on whose log is damaged.

use std::sync::Arc;

use bytes::Bytes;
use teamster_core::turn::fold::Damage;
use teamster_mesh::{
    Ctx, Function,
    log::CommitError,
    snap::{Mark, Snapshot},
};
use teamster_protocol::{
    Class, Fault, Lane, SessionId,
    commit::Bell,
    function::harness::{AcceptLossReply, AcceptLossRequest},
    id::ParseError,
    text,
};

use super::{Shared, exists, fault_of, operator, principal, read};
use crate::harness::{clock, load, own};

pub(super) fn function(shared: &Arc<Shared>) -> Result<Function, ParseError> {
    let mut contract = operator::<AcceptLossRequest, AcceptLossReply>(
        "harness::accept_loss",
        "Lets a session go on whose log is damaged, from what the log still holds. What is missing is given up for good.",
        Class::Destructive,
    )?;
    contract.idempotent = false;
    let shared = Arc::clone(shared);
    Ok(Function::new(contract, move |ctx, request| {
        accept(ctx, Arc::clone(&shared), request)
    }))
}

async fn accept(
    ctx: Ctx,
    shared: Arc<Shared>,
    request: AcceptLossRequest,
) -> Result<AcceptLossReply, Fault> {
    let by = principal(&ctx)?;
    let session = request.session_id;
    let known = shared.cache.peek(&session);
    let load::Examined { damage, survey } =
        load::examine(&ctx.mesh, &shared.witnesses, &session, known.as_ref())
            .await
            .map_err(|error| fault_of(&session, error))?;
    if damage.is_none() {
        let queued = ctx.mesh.lanes().waiting(&session).await?;
        exists(&read(&ctx, &shared, &session).await?, queued)?;
    }
    if damage.is_some() && !ctx.mesh.log().is_counted(&session).await? {
        return Err(contradictory(&session));
    }
    if !request.confirm {
        let lost = damage.as_ref().map_or_else(String::new, |damage| {
            format!(". It gives up {}", damage.salvage.loss.words())
        });
        let kept = damage.as_ref().map_or(0, |damage| damage.state.n);
        let number = kept.to_string();
        let at = text::shell(&number);
        let session = text::operand(session.as_str());
        let fork = if kept > 0 {
            format!(
                "; `teamster sessions fork --at={at} {session}` begins another session from what stands before the damage"
            )
        } else {
            String::new()
        };
        return Err(Fault::caller(
            "harness.confirm_needed",
            format_args!("a loss is accepted for good, so that it must be confirmed{lost}"),
        )
        .hint(format_args!(
            "look at what is left with `teamster sessions tail --after 0 {session}`, and keep a copy of it with `teamster sessions \
             export {session}`{fork}. Then `teamster sessions accept-loss --yes {session}`"
        )));
    }
    let damage = check(&session, damage)?;
    let (kept, message) = (damage.state.n, damage.why.clone());
    let loss = damage.salvage.loss;
    let draft = damage.accept(&by, clock::now_ms());
    // No doorbell is held: the session is rung for once it can be loaded.
    let bell = Bell {
        lane: Lane::Ctl,
        seq: 0,
    };
    let sealed = draft
        .seal(ctx.mesh.incarnation(), bell, clock::now_ms())
        .map_err(|error| Fault::internal("harness.encode", error))?;
    let body = Bytes::from(sealed.bytes.clone());
    let seq = ctx
        .mesh
        .log()
        .commit_behind(&session, body, &survey)
        .await
        .map_err(refused)?;
    let commit = sealed.commit.n;
    let state = draft.stored(&sealed, seq);
    tracing::warn!(%session, %by, kept, commit, message, "the loss of a part of a log was accepted");
    let mark = Mark {
        n: state.n,
        seq: state.seq,
        hash: state.hash,
    };
    let snapshot = Snapshot {
        mark,
        state: load::write_snapshot(&state).map(Bytes::from),
    };
    // What is to be copied is of before.
    shared.heads.forget(&session);
    // Until this is stored the old head still speaks against the log, and the loss can be accepted again.
    ctx.mesh.snaps().put(&session, &snapshot).await?;
    ctx.mesh.flush().await?;
    shared.cache.take(&session);
    shared.witnesses.forget(&session);
    own::kick(&ctx.mesh, &session, &format!("loss-{commit}")).await;
    Ok(AcceptLossReply {
        session_id: session,
        kept,
        commit,
        message,
        loss,
    })
}

/// What a server that contradicts itself does not hand out may be there: nothing is given up by its word.
fn contradictory(session: &SessionId) -> Fault {
    Fault::internal(
        "session.log_uncertain",
        format_args!(
            "the server contradicts itself about the stream that holds the log of {session}: what it cannot hand out now may be whole"
        ),
    )
    .hint(
        "nothing was given up. Start the server again, and look then: `teamster up` mends what can be mended when it starts its own \
         server; with a server of your own, stop it, remove `index.db` of that LOG stream, and start it",
    )
}

fn check(session: &SessionId, damage: Option<Damage>) -> Result<Damage, Fault> {
    let Some(damage) = damage else {
        return Err(Fault::caller(
            "session.log_sound",
            format_args!("nothing is wrong with the log of {session}"),
        ));
    };
    if damage.is_newer {
        return Err(Fault::caller(
            "session.log_too_new",
            format_args!(
                "a newer build wrote to the log of {session}: {}",
                damage.why
            ),
        )
        .hint("use a build that is at least as new; nothing is lost"));
    }
    Ok(damage)
}

fn refused(error: CommitError) -> Fault {
    match error {
        CommitError::Fenced { .. } | CommitError::WentBack { .. } | CommitError::Unreadable => {
            Fault::busy(
                "session.log_moved",
                "the log changed while it was looked at; nothing was accepted",
            )
            .hint("look at the session again")
        }
        CommitError::Unknown(error) => error.into(),
    }
}
