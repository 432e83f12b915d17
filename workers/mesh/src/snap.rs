//! Snapshots: caches of folded state, and the copy of each head outside its log.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Digest, SessionId, subject};

use crate::{
    Error,
    connection::Mesh,
    guard,
    topology::SNAP,
    wire::{Failure, Get},
};

/// Header of the commit's number.
const N: &str = "Teamster-N";
/// Header of the commit's stream sequence.
const SEQ: &str = "Teamster-Seq";
/// Header of the digest of the commit's stored bytes.
const HASH: &str = "Teamster-Hash";

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
    mesh: Mesh,
}

/// A snapshot whose headers do not say where the log stood.
#[derive(Debug, thiserror::Error)]
#[error("its header {0} is missing or cannot be read")]
struct BadHeader(&'static str);

impl Snaps {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// The session's snapshot. A message without a mark is none: the server stores its answers wherever a request's reply
    /// subject points.
    pub async fn get(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        let subject = subject::snap(session);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        let found = self
            .mesh
            .wire()
            .get(SNAP, &get)
            .await
            .map_err(|failure| failure.during(format!("reading the snapshot of {session}")))?;
        let Some(message) = found else {
            return Ok(None);
        };
        if message.headers.get(N).is_none() {
            tracing::error!(%session, seq = message.seq, code = "session.log_noise", "a message that is no snapshot has taken its place");
            return Ok(None);
        }
        let mark = read_mark(&message.headers).map_err(|error| Error::Malformed {
            what: format!("the snapshot of {session}"),
            source: Box::new(error),
        })?;
        let state = (!message.body.is_empty()).then_some(message.body);
        Ok(Some(Snapshot { mark, state }))
    }

    /// Replaces the session's snapshot; does not wait for the acknowledgement. A snapshot that is too large for the broker is
    /// an error. Over one that cannot be read nothing is written: that session does without.
    pub async fn put(&self, session: &SessionId, snapshot: &Snapshot) -> Result<(), Error> {
        let body = snapshot.state.clone().unwrap_or_default();
        let (wire, name) = (self.mesh.wire(), subject::snap(session));
        match guard::replaceable_once(wire, SNAP, &name).await {
            Err(Failure::Unreadable { .. }) => {
                if wire.reported.is_new(&name, 0) {
                    tracing::error!(%session, code = "mesh.damaged", "the snapshot of a session is damaged and cannot be replaced; its log is read instead");
                }
                return Ok(());
            }
            looked => looked
                .map_err(|failure| failure.during(format!("writing the snapshot of {session}")))?,
        }
        wire.tell(name, Some(write_mark(&snapshot.mark)), body)
            .await
            .map_err(|failure| failure.during(format!("writing the snapshot of {session}")))
    }
}

fn write_mark(mark: &Mark) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(N, mark.n.to_string());
    headers.insert(SEQ, mark.seq.to_string());
    headers.insert(HASH, mark.hash.to_string());
    headers
}

fn read_mark(headers: &HeaderMap) -> Result<Mark, BadHeader> {
    let text = |name: &'static str| {
        let value = headers.get(name).ok_or(BadHeader(name))?;
        Ok(value.as_str().to_owned())
    };
    let number = |name: &'static str| text(name)?.parse().map_err(|_| BadHeader(name));
    Ok(Mark {
        n: number(N)?,
        seq: number(SEQ)?,
        hash: Digest::try_from(text(HASH)?).map_err(|_| BadHeader(HASH))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back() {
        let mark = Mark {
            n: 3,
            seq: u64::MAX,
            hash: Digest::of("x"),
        };
        let mut headers = write_mark(&mark);
        assert_eq!(read_mark(&headers).expect("a mark"), mark);
        headers.insert(HASH, "00");
        assert!(read_mark(&headers).is_err());
        assert!(read_mark(&HeaderMap::new()).is_err());
    }
}
