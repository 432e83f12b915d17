//! Removes what is left of a deleted session: its timers, what its queues held, its snapshot, its log before the tombstone.
//!
//! Every step may be done again, by this owner or the next, also when the session has been created anew: nothing of the new one
//! is touched. The tombstone stays, so that commits are numbered on and a late copy of the log is known for what it is.

use bytes::Bytes;
use teamster_core::turn::State;
use teamster_mesh::{
    Error,
    snap::{Mark, Snapshot},
};
use teamster_protocol::{Lane, commit::Bell};

use super::{load, shared::Harness};

/// Removes what is left of the session before its deletion. `lease` is the doorbell that the caller holds: it is removed last,
/// by whoever acks it.
pub(super) async fn clean_up(harness: &Harness, state: &State, lease: Bell) -> Result<(), Error> {
    let Some(tombstone) = state.deleted else {
        return Ok(());
    };
    timers(harness, state).await?;
    queues(harness, state, lease).await?;
    // What a router finished since. Of a session that was created anew there may be something that is still wanted.
    if state.is_deleted() {
        harness.mesh.generations().remove(&state.session).await;
    }
    snapshot(harness, state).await?;
    let erased = harness
        .mesh
        .log()
        .erase_before(&state.session, tombstone.seq)
        .await?;
    // Whoever had the session before may have copied its head since.
    snapshot(harness, state).await?;
    if erased > 0 {
        tracing::info!(session = %state.session, erased, "a deleted session was erased");
    }
    Ok(())
}

/// Removes the timers of requests that are known to be over. One that is not known fires for nothing.
async fn timers(harness: &Harness, state: &State) -> Result<(), Error> {
    let lanes = harness.mesh.lanes();
    for approval in lanes.timers(&state.session).await? {
        let is_over = state
            .approvals
            .iter()
            .any(|known| known.approval == approval && known.settled.is_some());
        if is_over {
            lanes.cancel_timer(&state.session, &approval).await?;
        }
    }
    Ok(())
}

/// Removes the inputs that are consumed or went with the session.
async fn queues(harness: &Harness, state: &State, lease: Bell) -> Result<(), Error> {
    let lanes = harness.mesh.lanes();
    for lane in [Lane::In, Lane::Ctl] {
        let upto = state.cursor.of(lane);
        let mut after = 0;
        while let Some(queued) = lanes.next(&state.session, lane, after).await? {
            if queued.seq > upto {
                break;
            }
            after = queued.seq;
            let is_lease = lease.lane == lane && lease.seq == queued.seq;
            if !is_lease {
                lanes.remove(lane, queued.seq).await;
            }
        }
    }
    Ok(())
}

/// Puts what is left in the place of the old snapshot: it knows the tombstone, and nothing of what was before.
async fn snapshot(harness: &Harness, state: &State) -> Result<(), Error> {
    let snaps = harness.mesh.snaps();
    let found = snaps.get(&state.session).await?;
    let tombstone = state.deleted.map_or(0, |tombstone| tombstone.n);
    if found.is_some_and(|found| found.mark.n >= tombstone) {
        return Ok(());
    }
    harness.shared.heads.forget(&state.session);
    let mark = Mark {
        n: state.n,
        seq: state.seq,
        hash: state.hash,
    };
    let snapshot = Snapshot {
        mark,
        state: load::write_snapshot(state).map(Bytes::from),
    };
    snaps.put(&state.session, &snapshot).await?;
    harness.mesh.flush().await
}
