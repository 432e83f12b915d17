//! Copies heads, and the states that are due, outside of their logs. Never awaited by a turn.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use teamster_core::turn::State;
use teamster_mesh::{
    Mesh,
    snap::{Mark, Snapshot},
};
use teamster_protocol::{SessionId, limits};
use tokio_util::sync::CancellationToken;

use super::load;

/// How long the last copies may take when a harness ends.
const LAST_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// What is to be copied at the next occasion: the latest of each session.
#[derive(Default)]
pub(super) struct Heads(Mutex<HashMap<SessionId, Snapshot>>);

impl Heads {
    /// Notes where a session stands. The state goes with it when it is small, or when many commits came since it did last.
    pub(super) fn note(&self, state: &State) {
        let mark = Mark {
            n: state.n,
            seq: state.seq,
            hash: state.hash,
        };
        let is_due = state.n.is_multiple_of(limits::SNAPSHOT_COMMITS);
        let size: usize = state
            .transcript
            .iter()
            .map(|message| teamster_core::turn::history::bytes_of(message))
            .sum();
        let body = (is_due || size <= limits::SNAPSHOT_SMALL_BYTES)
            .then(|| load::write_snapshot(state))
            .flatten();
        // A large session keeps the snapshot that it has until the next one is due: it is still a lower bound.
        if let Some(body) = body {
            self.pending().insert(
                state.session.clone(),
                Snapshot {
                    mark,
                    state: Some(Bytes::from(body)),
                },
            );
        }
    }

    /// Forgets what is to be copied of a session.
    pub(super) fn forget(&self, session: &SessionId) {
        self.pending().remove(session);
    }

    /// Writes what is pending, now and then, and once more at the end.
    pub(super) async fn keep(&self, mesh: &Mesh, cancel: &CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = tokio::time::sleep(limits::HEADS_EVERY) => {}
            }
            if !cancel.is_cancelled() {
                self.flush(mesh).await;
                continue;
            }
            // A copy is a convenience: a server that is gone is not waited for.
            if tokio::time::timeout(LAST_MAX, self.flush(mesh))
                .await
                .is_err()
            {
                tracing::warn!("the last heads were not copied in time");
            }
            break;
        }
        // What was told last is not to be lost with the connection.
        if let Err(error) = mesh.flush().await {
            tracing::debug!(error = %teamster_telemetry::chain(&error), "the last heads may not be copied");
        }
    }

    async fn flush(&self, mesh: &Mesh) {
        let pending = std::mem::take(&mut *self.pending());
        for (session, snapshot) in pending {
            if let Err(error) = mesh.snaps().put(&session, &snapshot).await {
                tracing::warn!(%session, error = %teamster_telemetry::chain(&error), "a head was not copied");
            }
        }
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
