//! Reading all log streams with a place in each: for a reader that keeps how far it is, and must know when a stream is not what
//! it was.

use std::{collections::BTreeSet, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use teamster_protocol::{Digest, SessionId, limits, subject};
use tokio::time::timeout;

use super::{Stored, noise};
use crate::{
    Error, Mesh,
    reader::{Read, Reader, Reads, Spec, Start, channel},
    topology::log_stream_name,
    wire::{Failure, Get, StoredMessage},
};

/// Log streams.
const STREAMS: usize = limits::LOG_STREAMS as usize;
/// The subjects of all logs.
const ALL: &str = "log.>";

/// What was read of a log stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scanned {
    /// A commit.
    Commit {
        /// The stream.
        stream: u8,
        /// Whose.
        session: SessionId,
        /// Its place and its bytes.
        stored: Stored,
    },
    /// Something that is no commit.
    Passed {
        /// The stream.
        stream: u8,
        /// Its place.
        seq: u64,
    },
    /// The reading of a stream broke off and begins again: it may not be the stream that it was.
    Resumed {
        /// The stream.
        stream: u8,
    },
}

impl Scanned {
    fn bytes(&self) -> usize {
        match self {
            Self::Commit { stored, .. } => stored.body.len(),
            Self::Passed { .. } | Self::Resumed { .. } => 0,
        }
    }
}

/// Where a log stream ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When the stream was made, as the broker writes it: another text means another stream.
    pub created: String,
    /// Its last sequence, whether or not something is left there.
    pub last: u64,
}

/// A reader of all log streams.
pub struct Scan {
    reads: Reads<u8>,
    /// The streams whose reading has begun.
    begun: BTreeSet<u8>,
    _readers: Vec<Reader>,
    mesh: Mesh,
}

impl Scan {
    pub(super) async fn open(mesh: &Mesh, after: &[u64; STREAMS]) -> Result<Self, Error> {
        let (sink, reads) = channel();
        let mut readers: Vec<Reader> = (0..limits::LOG_STREAMS)
            .zip(after)
            .map(|(stream, after)| {
                let spec = Spec {
                    stream: log_stream_name(stream),
                    filters: Vec::new(),
                    start: Start::At(after.saturating_add(1)),
                    is_restarting: false,
                    is_headers_only: false,
                };
                Reader::spawn(mesh.wire(), spec, stream, sink.clone())
            })
            .collect();
        for reader in &mut readers {
            let opened = reader.opened().await;
            opened.map_err(|failure| failure.during("beginning to read the logs"))?;
        }
        Ok(Self {
            reads,
            begun: BTreeSet::new(),
            _readers: readers,
            mesh: mesh.clone(),
        })
    }

    /// Waits for something and takes it with what else is there already, in the order of each stream: at most `count`, and no
    /// more once `bytes_max` bytes came together. `None` once the connection is closed for good. Cancel-safe.
    pub async fn next(&mut self, count: usize, bytes_max: usize) -> Option<Vec<Scanned>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        loop {
            let read = if batch.is_empty() {
                self.reads.recv().await?
            } else {
                match self.reads.try_recv() {
                    Ok(read) => read,
                    Err(_) => return Some(batch),
                }
            };
            if let Some(scanned) = self.take(read) {
                bytes += scanned.bytes();
                batch.push(scanned);
            }
            if batch.len() >= count || bytes >= bytes_max {
                return Some(batch);
            }
        }
    }

    fn take(&mut self, (stream, read): (u8, Read)) -> Option<Scanned> {
        match read {
            Read::Message(message) => Some(self.read(stream, message)),
            // What was removed at a stream's beginning belonged to sessions that were deleted; else their chains are broken.
            Read::Began { wanted, begun } if begun >= wanted && self.begun.insert(stream) => None,
            Read::Began { .. } => Some(Scanned::Resumed { stream }),
            Read::CaughtUp | Read::Restarted => None,
            Read::Failed(failure) => {
                tracing::warn!(stream, error = %failure, "a log stream cannot be read now");
                None
            }
        }
    }

    fn read(&self, stream: u8, message: StoredMessage) -> Scanned {
        let seq = message.seq;
        // Markers of removed subjects are no commits.
        let session = subject::parse_log(&message.subject).filter(|_| !message.body.is_empty());
        match session {
            Some(session) if noise::is_commit(Some(&message.headers), &session) => {
                Scanned::Commit {
                    stream,
                    session,
                    stored: Stored::from_message(message),
                }
            }
            Some(session) => {
                noise::report(self.mesh.wire(), &session, &log_stream_name(stream), seq);
                Scanned::Passed { stream, seq }
            }
            None => Scanned::Passed { stream, seq },
        }
    }
}

/// The log stream of a session.
pub(super) fn stream_of(session: &SessionId) -> u8 {
    subject::log_stream_of(subject::partition(&session.token()))
}

/// Where a log stream ends.
pub(super) async fn end(mesh: &Mesh, stream: u8) -> Result<End, Error> {
    #[derive(Deserialize)]
    struct Info {
        #[serde(default)]
        created: String,
        state: State,
    }
    #[derive(Deserialize)]
    struct State {
        last_seq: u64,
    }
    let name = log_stream_name(stream);
    let info: Info = mesh
        .wire()
        .api(&format!("STREAM.INFO.{name}"), &Value::Null)
        .await
        .map_err(|failure| failure.during(format!("asking where {name} ends")))?;
    Ok(End {
        created: info.created,
        last: info.state.last_seq,
    })
}

/// Where all log streams end.
pub(super) async fn ends(mesh: &Mesh) -> Result<[End; STREAMS], Error> {
    let all = futures::future::try_join_all((0..limits::LOG_STREAMS).map(|k| end(mesh, k))).await?;
    all.try_into().map_err(|_| Error::Timeout {
        action: "asking where the logs end".to_owned(),
    })
}

/// What lies at a place, and whether something lies behind it.
pub(super) async fn look_at(
    mesh: &Mesh,
    stream: u8,
    seq: u64,
) -> Result<(Option<Digest>, bool), Error> {
    let name = log_stream_name(stream);
    let at = Get {
        seq: Some(seq),
        ..Get::default()
    };
    let behind = Get {
        seq: Some(seq.saturating_add(1)),
        next_by_subj: Some(ALL),
        ..Get::default()
    };
    let looked = async {
        let found = match seq {
            0 => None,
            _ => mesh.wire().get(&name, &at).await?,
        };
        let next = mesh.wire().get(&name, &behind).await?;
        let digest = found.map(|found| Digest::of(&found.body));
        Ok::<_, Failure>((digest, next.is_some()))
    };
    timeout(LOOK_PATIENCE, looked)
        .await
        .unwrap_or_else(|_| Err(Failure::Unknown("the log is silent".to_owned())))
        .map_err(|failure| failure.during(format!("looking at sequence {seq} of {name}")))
}

/// How long looking at a place may take.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::log_stream;

    #[test]
    fn a_session_lies_in_the_stream_of_its_partition() {
        for name in ["a", "chat/42 é", "foobar"] {
            let session = SessionId::parse(name).expect("valid");
            assert_eq!(log_stream_name(stream_of(&session)), log_stream(&session));
        }
    }
}
