//! When work on files must end: the caller's cancellation and the deadline.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Asked between two steps of blocking work.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Cancelled when nobody wants the answer any more.
    pub(crate) cancel: CancellationToken,
    /// When the answer must be there.
    pub(crate) until: Instant,
}

impl Stop {
    /// The same, but no later than `limit` from now.
    pub(crate) fn within(&self, limit: Duration) -> Self {
        let until = Instant::now()
            .checked_add(limit)
            .map_or(self.until, |limit| limit.min(self.until));
        Self {
            cancel: self.cancel.clone(),
            until,
        }
    }

    /// The same, but no later than `until`.
    pub(crate) fn until(&self, until: Instant) -> Self {
        Self {
            cancel: self.cancel.clone(),
            until: self.until.min(until),
        }
    }

    /// An error once the work must end.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.cancel.is_cancelled() {
            Err(Error::Cancelled)
        } else if Instant::now() >= self.until {
            Err(Error::Time)
        } else {
            Ok(())
        }
    }
}
