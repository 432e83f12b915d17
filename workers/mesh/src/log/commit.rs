//! Storing one commit exactly once, or saying why not.
//!
//! No message id is used: one node checks the expected sequence before it looks for a repeated id, so that a repeated commit
//! would be refused although it is stored. The log itself answers instead: the message after the expected sequence is ours or
//! somebody else's. What is no commit at all is taken out of its way.

use std::time::Duration;

use async_nats::{HeaderMap, header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE};
use bytes::Bytes;
use teamster_protocol::{SessionId, limits, subject};
use tokio::time::sleep;

use super::{CommitError, noise};
use crate::{
    Error,
    pause::Pauses,
    topology::log_stream,
    wire::{Failure, Get, StoredMessage, Wire, code},
};

/// How long a commit is tried in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a refusal that means nothing but "a write is in flight".
const IN_FLIGHT_PAUSE: Duration = Duration::from_micros(500);
/// Pause before the second attempt.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What the log says about a commit whose fate is in doubt.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is stored.
    Stored(u64),
    /// It is not, and its place is free: the same write may be repeated.
    Free,
    /// Its place holds another commit.
    Fenced { tail: u64 },
    /// The log ends before its place.
    WentBack { tail: u64 },
}

/// Decides from the commit's bytes, the message that follows `expected` on the subject, and the subject's last sequence
/// (0: none).
fn judge(body: &[u8], expected: u64, next: Option<(u64, &[u8])>, tail: u64) -> Verdict {
    match next {
        Some((seq, stored)) if stored == body => Verdict::Stored(seq),
        Some((seq, _)) => Verdict::Fenced {
            tail: tail.max(seq),
        },
        None if tail < expected => Verdict::WentBack { tail },
        None if tail == expected => Verdict::Free,
        None => Verdict::Fenced { tail },
    }
}

/// Where a commit is to be stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// What the server must take for the subject's last sequence.
    pub(super) fence: u64,
    /// The last message that can be read. The same as the fence, unless the server cannot read what lies behind it.
    pub(super) after: u64,
    /// Whether it is known that the server cannot read what lies behind it.
    pub(super) is_end_unreadable: bool,
}

/// Stores `body` at a place in the session's log, or says within [`PATIENCE`] why not.
pub(super) async fn commit(
    wire: &Wire,
    session: &SessionId,
    body: Bytes,
    place: Place,
) -> Result<u64, CommitError> {
    let action = || format!("committing to the log of {session}");
    if body.len() > limits::COMMIT_BYTES_MAX {
        let failure = Failure::Refused {
            number: 0,
            description: format!(
                "the commit has {} bytes; {} are allowed",
                body.len(),
                limits::COMMIT_BYTES_MAX
            ),
        };
        return Err(CommitError::Unknown(failure.during(action())));
    }
    tokio::time::timeout(PATIENCE, persist(wire, session, &body, place))
        .await
        .unwrap_or_else(|_| Err(CommitError::Unknown(Error::Timeout { action: action() })))
}

/// Tries until it is stored or cannot be.
async fn persist(
    wire: &Wire,
    session: &SessionId,
    body: &Bytes,
    place: Place,
) -> Result<u64, CommitError> {
    let subject = subject::log(session);
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, place.fence.to_string());
    noise::mark(&mut headers, session);
    let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
    loop {
        let failure = match wire
            .store(subject.clone(), Some(headers.clone()), body.clone())
            .await
        {
            Ok(ack) => return Ok(ack.seq),
            Err(failure) => failure,
        };
        match failure.number() {
            Some(code::WRITE_IN_FLIGHT) => {
                sleep(IN_FLIGHT_PAUSE).await;
                continue;
            }
            // Any other refusal names what is wrong, and a repetition changes nothing about it.
            Some(number) if number != code::WRONG_LAST_SEQUENCE && !failure.is_passing() => {
                let action = format!("committing to the log of {session}");
                return Err(CommitError::Unknown(failure.during(action)));
            }
            _ => {}
        }
        match look(wire, session, &subject, body, place).await {
            Ok(Verdict::Stored(seq)) => return Ok(seq),
            Ok(Verdict::Fenced { tail }) => return Err(CommitError::Fenced { tail }),
            Ok(Verdict::WentBack { tail }) => return Err(CommitError::WentBack { tail }),
            Ok(Verdict::Free) => {}
            Err(Failure::Unreadable { .. }) => return Err(CommitError::Unreadable),
            Err(error) => {
                tracing::debug!(%session, %error, "the log does not say yet whether a commit is stored");
            }
        }
        tracing::debug!(%session, error = %failure, "a commit is tried again");
        sleep(pauses.next()).await;
        wire.up(PATIENCE).await;
    }
}

/// Reads at the leader what stands in the commit's place, and takes out what lies behind the last commit and is none.
async fn look(
    wire: &Wire,
    session: &SessionId,
    subject: &str,
    body: &[u8],
    place: Place,
) -> Result<Verdict, Failure> {
    let (stream, expected) = (log_stream(session), place.after);
    // In this order: what is stored in between is seen as a tail beyond the expected sequence, never as a free place.
    let next = next_commit(wire, session, &stream, subject, expected).await?;
    let tail = match noise::clean(wire, session, &stream, subject).await {
        // That the end cannot be read is what was expected: the place behind it is still free.
        Err(Failure::Unreadable { .. }) if place.is_end_unreadable => expected,
        tail => tail?.map_or(0, |tail| tail.seq),
    };
    let verdict = judge(
        body,
        expected,
        next.as_ref().map(|next| (next.seq, next.body.as_ref())),
        tail,
    );
    // Without a next message a tail beyond `expected` came in between: it may be ours, look again at the next attempt.
    if next.is_none() && tail > expected {
        return Err(Failure::Unknown(
            "the log moved while it was read".to_owned(),
        ));
    }
    Ok(verdict)
}

/// The first commit after a sequence.
async fn next_commit(
    wire: &Wire,
    session: &SessionId,
    stream: &str,
    subject: &str,
    after: u64,
) -> Result<Option<StoredMessage>, Failure> {
    let mut last = after;
    loop {
        let get = Get {
            seq: Some(last.saturating_add(1)),
            next_by_subj: Some(subject),
            ..Get::default()
        };
        match wire.get(stream, &get).await? {
            Some(found) if !noise::is_commit(Some(&found.headers), session) => {
                last = found.seq;
            }
            found => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mesh: each answer of the log has one meaning.
    #[test]
    fn the_log_decides_what_became_of_a_commit() {
        let mine: &[u8] = b"mine";
        for (expected, next, tail, want) in [
            (7, Some((9, mine)), 9, Verdict::Stored(9)),
            (7, Some((9, mine)), 12, Verdict::Stored(9)),
            (
                7,
                Some((9, b"other".as_slice())),
                9,
                Verdict::Fenced { tail: 9 },
            ),
            (7, None, 7, Verdict::Free),
            (0, None, 0, Verdict::Free),
            (7, None, 3, Verdict::WentBack { tail: 3 }),
            (7, None, 0, Verdict::WentBack { tail: 0 }),
            (7, None, 8, Verdict::Fenced { tail: 8 }),
        ] {
            assert_eq!(judge(mine, expected, next, tail), want);
        }
    }
}
