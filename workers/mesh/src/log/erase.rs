//! Erasing the part of a session's log that lies before its deletion.

use teamster_protocol::{SessionId, subject};

use crate::{
    topology::log_stream,
    wire::{Failure, Get, StoredMessage, Wire},
};

/// Erases the session's messages before `seq`. Each is looked for at the stream's leader, so that none is left out. Where the
/// session has no message of that sequence, nothing is erased: the log is another one than the caller knew.
pub(super) async fn before(wire: &Wire, session: &SessionId, seq: u64) -> Result<u64, Failure> {
    let (stream, subject) = (log_stream(session), subject::log(session));
    let kept = first(wire, &stream, &subject, seq).await?;
    if kept.is_none_or(|message| message.seq != seq) {
        return Err(Failure::Unknown(format!(
            "the log has no message {seq}, before which it was to be erased"
        )));
    }
    let mut erased = 0;
    let mut found = first(wire, &stream, &subject, 1).await?;
    while let Some(message) = found.filter(|message| message.seq < seq) {
        let (erasing, next) = tokio::join!(
            wire.erase(&stream, message.seq),
            first(wire, &stream, &subject, message.seq + 1),
        );
        erasing?;
        erased += 1;
        found = next?;
    }
    Ok(erased)
}

async fn first(
    wire: &Wire,
    stream: &str,
    subject: &str,
    from: u64,
) -> Result<Option<StoredMessage>, Failure> {
    let get = Get {
        seq: Some(from),
        next_by_subj: Some(subject),
        ..Get::default()
    };
    wire.get(stream, &get).await
}
