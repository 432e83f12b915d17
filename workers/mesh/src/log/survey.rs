//! What of one session's log can be read, and how much cannot: for whoever must go on where the server cannot read everything.

use teamster_protocol::{Commit, SessionId, subject};

use super::{Stored, batch, last};
use crate::{
    Error,
    topology::log_stream,
    wire::{Failure, Wire},
};

/// How often a log that grows meanwhile is read again.
const TRIES: u32 = 5;

/// A session's whole log, as far as the server can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The commits that can be read, oldest first.
    pub commits: Vec<Stored>,
    /// Messages of the log that the server holds.
    pub stored: u64,
    /// Those of them that it cannot hand out, because their stored bytes are damaged.
    pub unreadable: u64,
    /// Whether the last message is one of them. Then the log is longer than what was read shows.
    pub is_end_unreadable: bool,
    /// Sequence of the last message that can be read, 0 if none can.
    pub last: u64,
}

impl Survey {
    /// The error of a log whose end cannot be read.
    pub(super) fn error(&self, session: &SessionId) -> Error {
        let tail = self.commits.last();
        let read = tail.and_then(|tail| Commit::decode(&tail.body).ok());
        Error::Unreadable {
            session: session.clone(),
            stored: self.stored,
            unreadable: self.unreadable.max(1),
            after: read.map_or(0, |commit| commit.n),
            last: tail.map_or(0, |tail| tail.seq),
        }
    }
}

/// Reads everything that can be read, and counts what cannot.
pub(super) async fn survey(wire: &Wire, session: &SessionId) -> Result<Survey, Failure> {
    let (stream, subject) = (log_stream(session), subject::log(session));
    let mut tries = 0;
    loop {
        let all = batch::all(wire, session).await?;
        let stored = last::count(wire, &stream, &subject).await?;
        // Last: whatever came since the first of these three shows in it.
        let (end, is_end_unreadable) = match last::last(wire, &stream, &subject).await {
            Ok(end) => (end.map_or(0, |end| end.seq), false),
            Err(Failure::Unreadable { .. }) => (0, true),
            Err(failure) => return Err(failure),
        };
        tries += 1;
        // Something came or went meanwhile: what was counted is not what was read.
        let has_moved = all.seen > stored || (!is_end_unreadable && all.last != end);
        if has_moved && tries < TRIES {
            continue;
        }
        // A log that grows faster than it is read has an owner who reads it: it is not called damaged by a count that is older.
        let unreadable = if has_moved {
            0
        } else {
            stored.saturating_sub(all.seen)
        };
        return Ok(Survey {
            commits: all.commits,
            stored,
            unreadable,
            is_end_unreadable,
            last: all.last,
        });
    }
}
