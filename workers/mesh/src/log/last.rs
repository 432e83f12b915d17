//! The last message of a session's log: told apart from none, and from one that the server holds and cannot read.
//!
//! The server answers a question for a message whose stored bytes are damaged as if there were none: by its sequence, and as the
//! last of its subject; a question for the next one on a subject passes it by. Only its counts show that it is there.

use crate::wire::{Failure, Get, StoredMessage, Wire};

/// The last message on a subject; `None` where the server holds none, and [`Failure::Unreadable`] where it holds some and cannot hand
/// out the last.
pub(super) async fn last(
    wire: &Wire,
    stream: &str,
    subject: &str,
) -> Result<Option<StoredMessage>, Failure> {
    let get = Get {
        last_by_subj: Some(subject),
        ..Get::default()
    };
    if let Some(found) = wire.get(stream, &get).await? {
        return Ok(Some(found));
    }
    if count(wire, stream, subject).await? == 0 {
        return Ok(None);
    }
    // It may have been stored between the two questions.
    if let Some(found) = wire.get(stream, &get).await? {
        return Ok(Some(found));
    }
    match count(wire, stream, subject).await? {
        0 => Ok(None),
        stored => Err(Failure::Unreadable { stored }),
    }
}

/// How many messages the server holds on one subject, those that it cannot read included.
pub(super) async fn count(wire: &Wire, stream: &str, subject: &str) -> Result<u64, Failure> {
    let counts = wire.subjects(stream, subject, 1).await?;
    Ok(counts.values().sum())
}
