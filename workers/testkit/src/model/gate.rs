//! A gate: holds a reply until the test opens it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::wait;

/// A gate in a reply. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_reached: bool,
    is_open: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Opens it for good.
    pub fn open(&self) {
        self.0.send_modify(|state| state.is_open = true);
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.0.borrow().is_open
    }

    /// Whether a reply has come to it.
    pub fn is_reached(&self) -> bool {
        self.0.borrow().is_reached
    }

    /// Waits until a reply has come to it; all pieces before it are written then.
    ///
    /// # Panics
    /// When none has within `limit`.
    pub async fn reached(&self, limit: Duration) {
        let mut state = self.0.subscribe();
        let reached = state.wait_for(|state| state.is_reached);
        let _ = wait::within(limit, "a reply comes to the gate", reached).await;
    }

    pub(super) async fn pass(&self) {
        self.0.send_modify(|state| state.is_reached = true);
        // The sender lives in `self`, so that the wait ends only with the opening.
        let _ = self.0.subscribe().wait_for(|state| state.is_open).await;
    }
}
