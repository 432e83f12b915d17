//! The sessions' logs: the truth, and the fence.

mod batch;
mod commit;
mod follow;

use bytes::Bytes;
use teamster_protocol::{SessionId, subject};

use crate::{
    Error,
    connection::Mesh,
    topology::log_stream,
    wire::{Get, StoredMessage},
};

pub use follow::Follow;

/// A stored commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its stream sequence.
    pub seq: u64,
    /// The stored bytes.
    pub body: Bytes,
}

/// Why a commit was not stored.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Another owner committed: let the session go. `tail` is the session's last sequence.
    #[error("another owner has committed (tail {tail})")]
    Fenced {
        /// The session's last sequence.
        tail: u64,
    },
    /// The log is behind what its owner knew: the broker went back in time. An alarm.
    #[error("the log went back to sequence {tail}")]
    WentBack {
        /// The session's last sequence.
        tail: u64,
    },
    /// The broker could not be reached in time; whether the commit is stored is unknown.
    #[error("the commit could not be confirmed")]
    Unknown(#[source] Error),
}

/// Where a reader of many sessions begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// At the first commit that is kept.
    Start,
    /// At the last commit of each session.
    LastOfEach,
    /// At what comes next.
    New,
}

/// The logs of all sessions, through one worker's connection.
#[derive(Clone)]
pub struct Log {
    mesh: Mesh,
}

impl Log {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// Stores a commit if the session's last sequence is still `expected` (0: the session has none). Retries by itself
    /// where nothing can have been stored or where the log shows whether it was; returns the commit's sequence.
    pub async fn commit(
        &self,
        session: &SessionId,
        body: Bytes,
        expected: u64,
    ) -> Result<u64, CommitError> {
        commit::commit(self.mesh.wire(), session, body, expected).await
    }

    /// The session's last commit, read at the stream's leader.
    pub async fn tail(&self, session: &SessionId) -> Result<Option<Stored>, Error> {
        let subject = subject::log(session);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        let found = self
            .mesh
            .wire()
            .get(&log_stream(session), &get)
            .await
            .map_err(|failure| failure.during(format!("reading the last commit of {session}")))?;
        Ok(found.map(Stored::from_message))
    }

    /// The session's commits after sequence `after`, oldest first, up to and including sequence `upto`. Complete, or an
    /// error.
    pub async fn read(
        &self,
        session: &SessionId,
        after: u64,
        upto: u64,
    ) -> Result<Vec<Stored>, Error> {
        batch::read(self.mesh.wire(), session, after, upto).await
    }

    /// Reads all sessions' commits. With `then_live` the reader goes on with new commits, else it ends when it has reached
    /// what was there when it began. Nothing that is stored after the return is missed.
    pub async fn follow(&self, from: From, then_live: bool) -> Result<Follow, Error> {
        Follow::all(&self.mesh, from, then_live).await
    }

    /// Reads one session's commits after sequence `after`, and goes on with new ones.
    pub async fn follow_session(&self, session: &SessionId, after: u64) -> Result<Follow, Error> {
        Follow::session(&self.mesh, session, after).await
    }
}

impl Stored {
    fn from_message(message: StoredMessage) -> Self {
        Self {
            seq: message.seq,
            body: message.body,
        }
    }
}
