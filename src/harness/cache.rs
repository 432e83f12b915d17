//! Folded sessions that nobody runs, so that the next doorbell reads only what is new.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use teamster_core::turn::State;
use teamster_protocol::{SessionId, limits};

/// Least recently used goes first.
#[derive(Default)]
pub(super) struct Cache(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    clock: u64,
    states: HashMap<SessionId, (u64, State)>,
}

impl Cache {
    /// Takes a session's state out.
    pub(super) fn take(&self, session: &SessionId) -> Option<State> {
        self.inner().states.remove(session).map(|(_, state)| state)
    }

    /// A copy of a session's state.
    pub(super) fn peek(&self, session: &SessionId) -> Option<State> {
        self.inner()
            .states
            .get(session)
            .map(|(_, state)| state.clone())
    }

    /// Keeps a state.
    pub(super) fn put(&self, state: State) {
        let mut inner = self.inner();
        inner.clock += 1;
        let clock = inner.clock;
        inner.states.insert(state.session.clone(), (clock, state));
        if inner.states.len() > limits::FOLDED_SESSIONS_MAX {
            // Half at once, so that the search for the oldest is paid seldom.
            let mut used: Vec<u64> = inner.states.values().map(|(used, _)| *used).collect();
            used.sort_unstable();
            let keep_from = used.get(used.len() / 2).copied().unwrap_or(0);
            inner.states.retain(|_, (used, _)| *used >= keep_from);
        }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
