//! What lies in a log and is no commit.
//!
//! The server publishes its answers to whatever reply subject a request names, so that any worker can have one stored under a
//! session's log. No such answer carries the mark of a commit: readers pass it by, and who may write the log takes it out,
//! because the fence counts it.
//!
//! The mark names the session. An answer that repeats a stored message, headers and all, is so no commit of another session;
//! in its own session the fence that is repeated with it refuses it.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use async_nats::HeaderMap;
use teamster_protocol::{SessionId, header};

use super::last;
use crate::wire::{Failure, StoredMessage, Wire, code};

/// Reports that are remembered, so that each message is reported once.
const REPORTS_MAX: usize = 1024;

/// The messages that this connection has reported, by stream and sequence.
#[derive(Default)]
pub(crate) struct Reported(Mutex<BTreeSet<(String, u64)>>);

impl Reported {
    /// Whether a message is met for the first time. What was met longest ago may be forgotten.
    pub(crate) fn is_new(&self, stream: &str, seq: u64) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.insert((stream.to_owned(), seq));
        if known.len() > REPORTS_MAX {
            known.pop_first();
        }
        is_new
    }
}

/// Marks a message as a commit of this session.
pub(super) fn mark(headers: &mut HeaderMap, session: &SessionId) {
    headers.insert(header::COMMIT, session.token());
}

/// Whether a stored message is a commit of this session.
pub(crate) fn is_commit(headers: Option<&HeaderMap>, session: &SessionId) -> bool {
    headers
        .and_then(|headers| headers.get(header::COMMIT))
        .is_some_and(|value| value.as_str() == session.token())
}

/// Says once that a log holds something else.
pub(super) fn report(wire: &Wire, session: &SessionId, stream: &str, seq: u64) {
    if wire.reported.is_new(stream, seq) {
        tracing::error!(%session, stream, seq, code = "session.log_noise", "a log holds a message that is no commit");
    }
}

/// The session's last commit. What lies behind it, which the fence counts, is taken out; only who may commit may do so.
pub(super) async fn clean(
    wire: &Wire,
    session: &SessionId,
    stream: &str,
    subject: &str,
) -> Result<Option<StoredMessage>, Failure> {
    loop {
        match last::last(wire, stream, subject).await? {
            Some(last) if !is_commit(Some(&last.headers), session) => {
                report(wire, session, stream, last.seq);
                match wire.take_out(stream, last.seq).await {
                    // Somebody else was faster: the next reading shows it.
                    Err(failure) if failure.number().is_some_and(code::is_gone) => {}
                    removed => removed?,
                }
            }
            last => return Ok(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_56_only_a_message_marked_for_its_session_is_a_commit() {
        let session = |text: &str| SessionId::parse(text).expect("valid");
        let mut headers = HeaderMap::new();
        assert!(!is_commit(None, &session("a b")));
        assert!(!is_commit(Some(&headers), &session("a b")));
        mark(&mut headers, &session("a b"));
        assert!(is_commit(Some(&headers), &session("a b")));
        assert!(!is_commit(Some(&headers), &session("a")));
    }

    #[test]
    fn a_message_is_reported_once() {
        let reported = Reported::default();
        assert!(reported.is_new("LOG_0", 7));
        assert!(!reported.is_new("LOG_0", 7));
        assert!(reported.is_new("LOG_1", 7));
        for seq in 0..2 * REPORTS_MAX as u64 {
            reported.is_new("LOG_2", seq);
        }
        assert!(reported.0.lock().expect("lock").len() <= REPORTS_MAX);
    }
}
