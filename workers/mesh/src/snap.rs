//! Snapshots: caches of folded state, and the copy of each head outside its log.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Digest, SessionId};

use crate::{Error, connection::Mesh};

/// Where a log was known to stand: a lower bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The commit's number.
    pub n: u64,
    /// Its stream sequence.
    pub seq: u64,
    /// SHA-256 of its stored bytes.
    pub hash: Digest,
}

/// What SNAP holds for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The head when it was written.
    pub mark: Mark,
    /// The folded state at the mark, if it was stored with it.
    pub state: Option<Bytes>,
}

/// All snapshots, through one worker's connection.
#[derive(Clone)]
pub struct Snaps {
    #[expect(dead_code, reason = "skeleton")]
    mesh: Mesh,
}

impl Snaps {
    /// The session's snapshot.
    pub async fn get(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        let _ = session;
        todo!()
    }

    /// Replaces the session's snapshot; does not wait for the acknowledgement.
    pub async fn put(&self, session: &SessionId, snapshot: &Snapshot) -> Result<(), Error> {
        let _ = (session, snapshot);
        todo!()
    }
}
