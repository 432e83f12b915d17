//! What this process knows that a session's log must hold, where a reading contradicted it. A log that went back together with
//! its snapshot is told from a young one by this alone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use teamster_core::turn::State;
use teamster_mesh::{head::Head, snap::Mark};
use teamster_protocol::{Digest, SessionId, limits};

/// A commit that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Witness {
    /// Its number.
    pub(super) n: u64,
    /// Its stream sequence.
    pub(super) seq: u64,
    /// SHA-256 of its bytes.
    pub(super) hash: Digest,
    /// When it was made, in milliseconds since 1970; later than any acceptance where nobody knows.
    pub(super) at_ms: u64,
}

impl Witness {
    /// What a state says about the log that it was folded from.
    pub(super) fn of(state: &State) -> Self {
        Self {
            n: state.n,
            seq: state.seq,
            hash: state.hash,
            at_ms: state.at_ms,
        }
    }
}

impl From<&Mark> for Witness {
    fn from(mark: &Mark) -> Self {
        Self {
            n: mark.n,
            seq: mark.seq,
            hash: mark.hash,
            at_ms: u64::MAX,
        }
    }
}

impl From<&Head> for Witness {
    fn from(head: &Head) -> Self {
        Self {
            n: head.n,
            seq: head.seq,
            hash: head.hash,
            at_ms: head.at_ms,
        }
    }
}

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
