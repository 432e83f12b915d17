//! The task that copies heads outside of their logs: lazily, so many at a time, never awaited by anybody. A copy that is old is still a
//! lower bound.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use teamster_mesh::{Mesh, head::Head};
use teamster_protocol::{SessionId, limits};
use tokio_util::sync::CancellationToken;

/// How long what is pending is copied when the worker ends.
const AT_THE_END: std::time::Duration = std::time::Duration::from_secs(2);

/// What is to be copied: the latest of each session.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<HashMap<SessionId, Head>>);

impl Heads {
    /// Notes where logs stand. Beyond what is kept in mind, sessions are copied when they move next.
    pub(crate) fn note(&self, heads: Vec<(SessionId, Head)>) {
        let mut pending = self.pending();
        for (session, head) in heads {
            if pending.len() < limits::HEADS_PENDING_MAX || pending.contains_key(&session) {
                pending.insert(session, head);
            }
        }
    }

    /// Copies what is pending until cancelled, and what is pending then.
    pub(crate) async fn run(&self, mesh: &Mesh, cancel: &CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                () = tokio::time::sleep(limits::HEADS_EVERY) => {}
            }
            self.copy(mesh, self.some()).await;
        }
        let all = async {
            loop {
                let some = self.some();
                if some.is_empty() || !self.copy(mesh, some).await {
                    return;
                }
            }
        };
        // What is not copied then is one witness less.
        let _ = tokio::time::timeout(AT_THE_END, all).await;
    }

    /// Copies heads; whether all were.
    pub(crate) async fn copy(&self, mesh: &Mesh, heads: Vec<(SessionId, Head)>) -> bool {
        for (session, head) in heads {
            if let Err(error) = mesh.heads().raise(&session, &head).await {
                tracing::warn!(%session, error = %teamster_telemetry::chain(&error), "a head was not copied");
                // The broker is away or slow; the others would fare no better now.
                return false;
            }
        }
        true
    }

    /// Takes some out.
    fn some(&self) -> Vec<(SessionId, Head)> {
        let mut pending = self.pending();
        let names: Vec<SessionId> = pending
            .keys()
            .take(limits::HEADS_AT_ONCE_MAX)
            .cloned()
            .collect();
        names
            .into_iter()
            .filter_map(|session| pending.remove_entry(&session))
            .collect()
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<SessionId, Head>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
