//! Doorbells: un-acked deliveries of TURNS and CONTROL, which are also the leases.

use std::time::Duration;

use teamster_protocol::{Lane, SessionId};

use crate::{Error, connection::Mesh};

/// One delivery. It is a hint; the truth is the lane and the log.
pub struct Ring {
    /// The session.
    pub session: SessionId,
    /// The stream.
    pub lane: Lane,
    /// The stream sequence.
    pub seq: u64,
    /// Whether it is a kick.
    pub is_kick: bool,
    /// How often it was delivered, from 1.
    pub delivered: u64,
}

impl Ring {
    /// Says that it is dealt with; does not wait.
    pub async fn ack(&self) {
        todo!()
    }

    /// Renews it as a lease; does not wait.
    pub async fn progress(&self) {
        todo!()
    }

    /// Gives it back, to be delivered again after `delay`; does not wait.
    pub async fn nak(&self, delay: Duration) {
        todo!()
    }
}

/// The shared consumers of both streams, pulled with exact credit.
pub struct Bells {}

impl Bells {
    /// Begins to pull. `credit` bounds the deliveries that are outstanding at once; each [`Bells::next`] uses one up and
    /// [`Bells::release`] gives it back.
    pub async fn open(mesh: &Mesh, credit: usize) -> Result<Self, Error> {
        let _ = (mesh, credit);
        todo!()
    }

    /// The next doorbell of either stream. Survives restarts of the broker and the loss of its consumer. A delivery whose
    /// subject cannot be read is removed and reported in the log, never returned. Cancel-safe.
    pub async fn next(&mut self) -> Option<Ring> {
        todo!()
    }

    /// Gives one credit back.
    pub fn release(&mut self) {
        todo!()
    }
}
