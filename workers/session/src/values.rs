//! The task that removes stored values which no session names any more.
//!
//! A value is stored before the commit that names it, and the same bytes may belong to several sessions. So a value goes only
//! where all logs together have named it nowhere for a whole day, as far as this projection has seen: that is longer than anything
//! takes between a value and its commit. Who stores the value again in that day puts another message in its place, and what was
//! noted of the first is void. Whoever dies in the middle leaves notes from which the next pass goes on.
//!
//! Nothing is removed while the projection is behind. What a session names in a part of its log that cannot be read, or that is gone, is
//! not known: but it was stored before that was noticed, for such a session commits nothing. So everything that was there then
//! stays, and what was stored later is swept as always.

mod notes;

use std::{sync::Arc, time::Duration};

use teamster_mesh::{Error, Mesh};
use teamster_protocol::{Fault, limits};
use tokio_util::sync::CancellationToken;

use self::notes::{Found, Note};
use crate::{audit, error::StoreError, projection::Projection};

/// Why a pass came to no end.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("the broker does not do its part")]
    Mesh(#[from] Error),
    #[error("the projection does not answer: {0}")]
    Projection(Fault),
    #[error("what was found cannot be noted")]
    Store(#[from] StoreError),
    #[error("the ends of the logs cannot be looked at")]
    Audit(#[from] audit::Stop),
}

/// Looks again and again until cancelled.
pub(crate) async fn run(mesh: &Mesh, projection: &Projection, cancel: &CancellationToken) {
    loop {
        let wait = tokio::select! {
            () = cancel.cancelled() => return,
            swept = sweep(mesh, projection) => told(swept),
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Says what a pass came to, and when the next one is due.
fn told(swept: Result<Swept, Stop>) -> Duration {
    match swept {
        Ok(Swept { removed, kept }) => {
            if removed > 0 {
                tracing::info!(
                    count = removed,
                    "stored values that no session names were removed"
                );
            }
            if let Some(why) = kept {
                tracing::warn!(
                    what = %why,
                    "stored values from before a damage are not removed, because it is not certain which ones its session names"
                );
            }
            limits::VALUES_SWEEP_EVERY
        }
        // A projection that is being built says so to whoever asks.
        Err(Stop::Projection(fault)) => {
            tracing::debug!(error = %fault, "the look for unnamed values is put off");
            limits::VALUES_SWEEP_RETRY
        }
        Err(stop) => {
            tracing::warn!(error = %teamster_telemetry::chain(&stop), "the look for unnamed values is put off");
            limits::VALUES_SWEEP_RETRY
        }
    }
}

/// What a pass came to.
struct Swept {
    /// So many values were removed.
    removed: usize,
    /// Why older ones were not looked at.
    kept: Option<String>,
}

async fn sweep(mesh: &Mesh, projection: &Projection) -> Result<Swept, Stop> {
    audit::look(mesh, projection).await?;
    let last = mesh.blobs().last().await?;
    // What is listed first is older than the logs that are asked about it, and the heads that are kept older than their logs.
    let stored = Arc::new(mesh.blobs().list().await?);
    let headed = mesh.heads().sessions(limits::VALUES_LISTED_MAX).await?;
    let headed = Arc::new(headed);
    let found = projection
        .ask_all(mesh, move |db| {
            notes::look(db.connection()?, &stored, &headed, last, now_ms())
        })
        .await
        .map_err(Stop::Projection)?;
    let Found { unknown, due, kept } = found;
    let mut noted = Vec::with_capacity(unknown.len());
    for name in unknown {
        match mesh.blobs().place(&name).await {
            Ok(Some(seq)) => noted.push(Note { name, seq }),
            // It cannot be removed either; the others can.
            Ok(None) | Err(Error::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let store = projection.store();
    store
        .run(move |db| notes::add(db.connection()?, &noted, now_ms()))
        .await?;
    let removed = due.len();
    for note in &due {
        mesh.blobs().erase(note.seq).await?;
    }
    store
        .run(move |db| notes::drop_all(db.connection()?, &due))
        .await?;
    Ok(Swept { removed, kept })
}

pub(crate) fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
