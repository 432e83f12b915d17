//! Streams that hold nothing which cannot be lost, and in which something is damaged: they are emptied.
//!
//! They keep one message of a subject, so that storing one removes another. The server (2.15.1 at least) does not get over a stored
//! message whose bytes are damaged when it does that: sooner or later it holds the lock of the whole stream and tries for ever, and
//! a single damaged snapshot stops those of all sessions. It cannot remove such a message by itself either; only emptying the
//! stream does. What was in it comes back: snapshots are folded anew, heads follow when their sessions move, workers register.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::timeout;

use super::plan::{HEADS, REGISTRY, SNAP};
use crate::{
    guard,
    reader::{Read, Reader, Spec, Start, channel},
    wire::{Failure, Wire},
};

/// Subjects of a stream that are looked at.
const SUBJECTS_MAX: usize = 200_000;
/// How long nothing may come while a stream is read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Empties those of the streams in which something cannot be read. What cannot be told now is left as it is.
pub(super) async fn heal(wire: &Wire) {
    for stream in [
        SNAP.to_owned(),
        format!("KV_{HEADS}"),
        format!("KV_{REGISTRY}"),
    ] {
        match heal_one(wire, &stream).await {
            Ok(None) => {}
            Ok(Some(subject)) => tracing::error!(
                code = "mesh.damaged",
                stream,
                subject,
                "a stream held what cannot be read, and was emptied, because the server would stop at it; what was in it is made anew"
            ),
            Err(failure) => {
                tracing::debug!(stream, error = %failure, "whether a stream is whole is not known");
            }
        }
    }
}

/// Returns a subject that cannot be read, once the stream is emptied.
async fn heal_one(wire: &Wire, stream: &str) -> Result<Option<String>, Failure> {
    let mut listed = wire.subjects(stream, ">", SUBJECTS_MAX).await?;
    if listed.is_empty() {
        return Ok(None);
    }
    for subject in readable(wire, stream).await? {
        listed.remove(&subject);
    }
    for subject in listed.into_keys() {
        match guard::replaceable(wire, stream, &subject).await {
            Err(Failure::Unreadable { .. }) => {
                wire.api::<serde::de::IgnoredAny>(
                    &format!("STREAM.PURGE.{stream}"),
                    &serde_json::json!({}),
                )
                .await?;
                return Ok(Some(subject));
            }
            looked => looked?,
        }
    }
    Ok(None)
}

/// The subjects of which something can be read.
async fn readable(wire: &Wire, stream: &str) -> Result<BTreeSet<String>, Failure> {
    let (sink, mut reads) = channel();
    let spec = Spec {
        stream: stream.to_owned(),
        filters: Vec::new(),
        start: Start::All,
        is_restarting: false,
        is_headers_only: true,
    };
    let mut reader = Reader::spawn(wire, spec, (), sink);
    reader.opened().await?;
    let mut subjects = BTreeSet::new();
    loop {
        match timeout(PATIENCE, reads.recv()).await {
            Ok(Some(((), Read::Message(message)))) => {
                subjects.insert(message.subject);
            }
            Ok(Some(((), Read::CaughtUp))) => return Ok(subjects),
            Ok(Some(((), Read::Failed(failure)))) => return Err(failure),
            Ok(Some(((), Read::Restarted | Read::Began { .. }))) => {}
            Ok(None) | Err(_) => return Err(Failure::Unknown("the stream is silent".to_owned())),
        }
    }
}
