//! What this process knows that a session's log must hold, where a reading contradicted it. A log that went back together with
//! its snapshot is told from a young one by this alone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use teamster_protocol::{SessionId, limits};

use crate::witness::Witness;

/// The witnesses by session; of each the one that saw most.
#[derive(Debug, Default)]
pub(super) struct Witnesses(Mutex<HashMap<SessionId, Witness>>);

impl Witnesses {
    /// Remembers a witness.
    pub(super) fn note(&self, session: &SessionId, witness: Witness) {
        let mut all = self.all();
        if all.len() >= limits::WITNESSES_MAX && !all.contains_key(session) {
            tracing::error!(%session, "too many sessions are damaged; that one of them went back may be forgotten");
            return;
        }
        let known = all.entry(session.clone()).or_insert(witness);
        if known.n < witness.n {
            *known = witness;
        }
    }

    /// The witness of a session.
    pub(super) fn of(&self, session: &SessionId) -> Option<Witness> {
        self.all().get(session).copied()
    }

    /// Forgets the witness of a session: its log is what it was, or its loss was accepted.
    pub(super) fn forget(&self, session: &SessionId) {
        self.all().remove(session);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Witness>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
