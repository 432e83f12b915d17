//! Rings for sessions that nobody seems to serve. A needless ring costs one load.
//!
//! Two things tell of such a session: what lies in a lane, and a log that says that a turn runs in a process that is gone. The
//! second is looked for where a process is missed. The doorbell that is a turn's lease may be gone with the input that it was: whoever
//! consumed that removes it late, or the turn was claimed by a doorbell that had been held for long; then no lease lapses, and
//! nothing lies in a lane.

use std::sync::atomic::{AtomicBool, Ordering};

use teamster_mesh::{Error, log::From as Begin};
use teamster_protocol::{Commit, Phase, SessionId, id::Incarnation, limits};

use super::{clock, own, shared::Harness};

/// Whether a look at the logs came to nothing, and is owed.
#[derive(Debug, Default)]
pub(super) struct Owed(AtomicBool);

/// Rings when this harness starts for everything that lies in a lane and for every turn whose process is not there: whoever served
/// it may be gone.
pub(super) async fn at_start(harness: &Harness) {
    let reason = format!("start-{}", harness.mesh.incarnation());
    ring(harness, &reason, |_| false).await;
    orphans(harness, &reason, |owner| !is_registered(harness, owner)).await;
}

/// Rings now and then; harnesses that sweep in the same period ring once.
pub(super) async fn keep(harness: &Harness) {
    loop {
        tokio::time::sleep(limits::SWEEP_EVERY).await;
        let period = clock::now_ms() / clock::millis(limits::SWEEP_EVERY);
        let reason = format!("sweep-{period}");
        ring(harness, &reason, |_| false).await;
        if harness.shared.owed.0.swap(false, Ordering::Relaxed) {
            orphans(harness, &reason, |owner| !is_registered(harness, owner)).await;
        }
    }
}

/// Rings for everything that lies in a lane and is served neither here nor, as far as `is_served` knows, elsewhere.
pub(super) async fn ring(
    harness: &Harness,
    reason: &str,
    is_served: impl Fn(&SessionId) -> bool + Send,
) {
    match harness.mesh.lanes().sessions().await {
        Ok(sessions) => {
            for session in sessions {
                if harness.shared.desk.get(&session).is_none() && !is_served(&session) {
                    own::kick(&harness.mesh, &session, reason).await;
                }
            }
        }
        Err(error) => {
            tracing::warn!(error = %teamster_telemetry::chain(&error), "the queues could not be listed");
        }
    }
}

/// Rings for the sessions whose log says that a turn runs in a process that `is_gone`.
pub(super) async fn orphans(
    harness: &Harness,
    reason: &str,
    is_gone: impl Fn(&Incarnation) -> bool + Send,
) {
    if let Err(error) = ring_for_orphans(harness, reason, is_gone).await {
        tracing::warn!(error = %teamster_telemetry::chain(&error), "the logs could not be looked through; trying again");
        harness.shared.owed.0.store(true, Ordering::Relaxed);
    }
}

async fn ring_for_orphans(
    harness: &Harness,
    reason: &str,
    is_gone: impl Fn(&Incarnation) -> bool + Send,
) -> Result<(), Error> {
    let mut follow = harness.mesh.log().follow(Begin::LastOfEach, false).await?;
    while let Some(next) = follow.next().await {
        let (session, stored) = next?;
        let Ok(Commit { head, .. }) = Commit::decode(&stored.body) else {
            continue;
        };
        let is_elsewhere = head.owner != *harness.mesh.incarnation();
        let is_orphan = head.phase == Phase::Active && is_elsewhere && is_gone(&head.owner);
        if is_orphan && harness.shared.desk.get(&session).is_none() {
            own::kick(&harness.mesh, &session, reason).await;
        }
    }
    Ok(())
}

fn is_registered(harness: &Harness, owner: &Incarnation) -> bool {
    let catalog = harness.registry.catalog();
    let mut workers = catalog.workers.iter();
    workers.any(|worker| worker.incarnation == *owner)
}
