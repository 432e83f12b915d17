//! Folded sessions that nobody runs, so that the next doorbell reads only what is new.

use std::sync::{Mutex, MutexGuard, PoisonError};

use teamster_core::turn::{State, kept::Kept};
use teamster_protocol::SessionId;

/// Shared by all runs of a harness.
#[derive(Default)]
pub(super) struct Cache(Mutex<Kept>);

impl Cache {
    /// Takes a session's state out.
    pub(super) fn take(&self, session: &SessionId) -> Option<State> {
        self.kept().take(session)
    }

    /// A copy of a session's state.
    pub(super) fn peek(&self, session: &SessionId) -> Option<State> {
        self.kept().peek(session).cloned()
    }

    /// Keeps a state.
    pub(super) fn put(&self, state: State) {
        self.kept().put(state);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
