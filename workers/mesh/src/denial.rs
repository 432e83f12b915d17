//! What the broker does not let this connection do. It says so beside the requests, and answers none that it denies.
//!
//! Owns: which request a denial belongs to, so that nobody waits for an answer that cannot come. Invariant: a denial tells only of
//! requests that were made before it, but for one of the connection's inbox, without which no answer arrives at all.
//!
//! Never: whether something may be done. The broker decides that.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Subjects that are remembered.
const RECENT_MAX: usize = 32;
/// How the broker begins to say it.
const VIOLATION: &str = "Permissions Violation for ";

/// What was denied to one connection.
#[derive(Debug)]
pub(crate) struct Denials {
    /// What the subjects of the connection's own inboxes begin with.
    inbox: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    count: u64,
    /// The number of a denial and the subject that was published to.
    recent: VecDeque<(u64, String)>,
    is_deaf: bool,
}

impl Denials {
    /// None yet, for a connection whose inboxes begin with `inbox`.
    pub(crate) fn new(inbox: &str) -> Self {
        Self {
            inbox: format!("{inbox}."),
            known: Mutex::default(),
        }
    }

    /// Takes what the broker said; how many denials there are now, if it was one.
    pub(crate) fn take(&self, said: &str) -> Option<u64> {
        let (_, what) = said.split_once(VIOLATION)?;
        let (kind, subject) = what.split_once(" to \"")?;
        let (subject, _) = subject.split_once('"')?;
        let mut known = self.known();
        match kind {
            "Publish" => {
                known.count += 1;
                let number = known.count;
                if known.recent.len() == RECENT_MAX {
                    known.recent.pop_front();
                }
                known.recent.push_back((number, subject.to_owned()));
            }
            "Subscription" if subject.starts_with(&self.inbox) => {
                known.count += 1;
                known.is_deaf = true;
            }
            _ => return None,
        }
        Some(known.count)
    }

    /// The connection was made anew: what it may do is asked anew.
    pub(crate) fn forget(&self) {
        self.known().is_deaf = false;
    }

    /// Whether no answer can reach this connection.
    pub(crate) fn is_deaf(&self) -> bool {
        self.known().is_deaf
    }

    /// What was denied of a request to `subject` that was made when there were `since` denials.
    pub(crate) fn of(&self, subject: &str, since: u64) -> Option<Denied> {
        let known = self.known();
        if known.is_deaf {
            return Some(Denied::Answers);
        }
        let mut recent = known.recent.iter();
        let is_denied = recent.any(|(number, denied)| *number > since && denied == subject);
        is_denied.then(|| Denied::Publish(subject.to_owned()))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// To receive answers, and with that all that is answered.
    #[error("the server does not let the user of these credentials receive answers here")]
    Answers,
    /// To publish to a subject.
    #[error("the server does not let the user of these credentials publish to {0}")]
    Publish(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_belongs_to_the_requests_before_it() {
        let denials = Denials::new("_INBOX.operator");
        let said = "nats: Permissions Violation for Publish to \"op.owner.x\"";
        assert_eq!(denials.of("op.owner.x", 0), None);
        assert_eq!(denials.take(said), Some(1));
        assert_eq!(
            denials.of("op.owner.x", 0),
            Some(Denied::Publish("op.owner.x".to_owned()))
        );
        assert_eq!(denials.of("op.owner.y", 0), None);
        assert_eq!(denials.of("op.owner.x", 1), None, "asked afterwards");
        for other in [
            "nats: stale connection",
            "nats: Permissions Violation for Subscription to \"_INBOX.operators.1\"",
            "nats: Permissions Violation for Publish",
        ] {
            assert_eq!(denials.take(other), None, "{other}");
        }
        for _ in 0..2 * RECENT_MAX {
            denials.take(said);
        }
        assert_eq!(denials.known().recent.len(), RECENT_MAX);
    }

    #[test]
    fn without_an_inbox_nothing_is_answered_until_the_connection_is_made_anew() {
        let denials = Denials::new("_INBOX.operator");
        let said = "nats: Permissions Violation for Subscription to \"_INBOX.operator.1.*\"";
        assert_eq!(denials.take(said), Some(1));
        assert_eq!(denials.of("anything", 1), Some(Denied::Answers));
        denials.forget();
        assert!(!denials.is_deaf());
        assert_eq!(denials.of("anything", 1), None);
    }
}
