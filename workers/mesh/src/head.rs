//! The second copy of each session's head, kept by the session worker: where a log was known to stand. It only ever rises, so that a
//! log that went back is noticed by it.

use async_nats::{HeaderMap, header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE};
use serde::{Deserialize, Serialize};
use teamster_protocol::{Digest, SessionId, subject};

use crate::{
    Error, Mesh, guard,
    topology::HEADS,
    wire::{Failure, Get, code},
};

/// Where a log was known to stand: a lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The commit's number.
    pub n: u64,
    /// Its stream sequence.
    pub seq: u64,
    /// SHA-256 of its stored bytes.
    pub hash: Digest,
    /// When it was made, in milliseconds since 1970.
    pub at_ms: u64,
}

/// The bucket `heads`, through one worker's connection.
#[derive(Clone)]
pub struct Heads {
    mesh: Mesh,
}

impl Heads {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// The head of a session; `None` if none is kept. What lies there and is none is passed by.
    pub async fn get(&self, session: &SessionId) -> Result<Option<Head>, Error> {
        Ok(self.find(session).await?.1)
    }

    /// The sessions whose head is kept, `sessions_max` or some more at most.
    pub async fn sessions(&self, sessions_max: usize) -> Result<Vec<SessionId>, Error> {
        let stream = format!("KV_{HEADS}");
        let listed = self
            .mesh
            .wire()
            .subjects(&stream, &subject::head_pattern(), sessions_max)
            .await
            .map_err(|failure| failure.during("listing the heads that are kept"))?;
        let sessions = listed.keys().filter_map(|name| subject::read_head(name));
        Ok(sessions.collect())
    }

    /// Replaces a session's head by one with a larger number. `false`: the one that is kept says as much, or somebody else writes.
    pub async fn raise(&self, session: &SessionId, head: &Head) -> Result<bool, Error> {
        let (seq, kept) = self.find(session).await?;
        if kept.is_some_and(|kept| kept.n >= head.n) {
            return Ok(false);
        }
        let body = serde_json::to_vec(head).map_err(|error| Error::Malformed {
            what: "a head".to_owned(),
            source: Box::new(error),
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, seq.to_string());
        let wire = self.mesh.wire();
        if seq == 0 {
            let (stream, name) = (format!("KV_{HEADS}"), subject::head(session));
            match guard::replaceable(wire, &stream, &name).await {
                Err(Failure::Unreadable { .. }) => {
                    if wire.reported.is_new(&name, 0) {
                        tracing::error!(%session, code = "mesh.damaged", "the second copy of a head is damaged and cannot be replaced");
                    }
                    return Ok(false);
                }
                looked => looked
                    .map_err(|failure| failure.during(format!("keeping the head of {session}")))?,
            }
        }
        match wire
            .store(subject::head(session), Some(headers), body.into())
            .await
        {
            Ok(_) => Ok(true),
            Err(failure) if failure.number() == Some(code::WRONG_LAST_SEQUENCE) => Ok(false),
            Err(failure) => Err(failure.during(format!("keeping the head of {session}"))),
        }
    }

    /// The sequence of what lies in a head's place (0: nothing), and the head, if that is one.
    async fn find(&self, session: &SessionId) -> Result<(u64, Option<Head>), Error> {
        let subject = subject::head(session);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        let found = self.mesh.wire().get(&format!("KV_{HEADS}"), &get).await;
        let found =
            found.map_err(|failure| failure.during(format!("reading the head of {session}")))?;
        Ok(found.map_or((0, None), |message| {
            let head = serde_json::from_slice(&message.body).ok();
            if head.is_none() && !message.body.is_empty() {
                tracing::error!(%session, seq = message.seq, code = "session.log_noise", "what lies in the place of a head is none");
            }
            (message.seq, head)
        }))
    }
}
