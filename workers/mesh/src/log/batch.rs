//! Reading a part of one session's log: batches of direct gets, checked for completeness.
//!
//! A replica that answers a direct get may lag. The reader knows where the part ends, so it sees that and asks again, in the
//! end the leader, message by message. What is no commit is passed by.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::Serialize;
use teamster_protocol::{SessionId, limits, subject};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Stored, noise};
use crate::{
    Error,
    topology::log_stream,
    wire::{Failure, Get, Wire},
};

/// Tries without progress before the leader is asked message by message.
const TRIES: u32 = 4;
/// Bytes of one batch.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A batch of direct gets.
#[derive(Serialize)]
struct Batch<'a> {
    seq: u64,
    #[serde(rename = "batch")]
    messages: usize,
    max_bytes: usize,
    next_by_subj: &'a str,
}

/// A part of a log while it is read.
struct Part<'a> {
    wire: &'a Wire,
    session: &'a SessionId,
    stream: String,
    subject: String,
    upto: u64,
    /// The last message that was read, a commit or not.
    last: u64,
    /// How many were read, commits or not.
    seen: u64,
    commits: Vec<Stored>,
}

/// Everything of a log that can be read.
pub(super) struct All {
    /// The commits, oldest first.
    pub(super) commits: Vec<Stored>,
    /// Messages that were read, commits or not.
    pub(super) seen: u64,
    /// Sequence of the last of them, 0 if there is none.
    pub(super) last: u64,
}

/// Everything of a session's log that can be read now. What the server cannot read is passed by.
pub(super) async fn all(wire: &Wire, session: &SessionId) -> Result<All, Failure> {
    let mut part = Part::new(wire, session, 0, u64::MAX);
    loop {
        let known = part.last;
        part.batch().await?;
        if part.last == known {
            // A replica may lag behind the leader, who has the last word.
            part.one_at_leader().await?;
        }
        if part.last == known {
            return Ok(All {
                commits: part.commits,
                seen: part.seen,
                last: part.last,
            });
        }
    }
}

/// The commits with `after < seq <= upto`, oldest first.
pub(super) async fn read(
    wire: &Wire,
    session: &SessionId,
    after: u64,
    upto: u64,
) -> Result<Vec<Stored>, Error> {
    let mut part = Part::new(wire, session, after, upto);
    let mut tries = 0;
    loop {
        let known = part.last;
        if known >= upto {
            return Ok(part.commits);
        }
        let batch = if tries < TRIES {
            part.batch().await
        } else {
            part.one_at_leader().await
        };
        if part.last > known {
            tries = 0;
            continue;
        }
        tries += 1;
        if tries > 2 * TRIES {
            let failure = batch.err().unwrap_or_else(|| {
                Failure::Unknown(format!("the log ends at {known}, not at {upto}"))
            });
            return Err(failure.during(format!("reading the log of {session}")));
        }
        sleep(Duration::from_millis(2 << tries)).await;
    }
}

/// The last commit before a message that is none, which may be taken out meanwhile. Reads the log from its beginning: the
/// broker cannot be asked for what lies before a message.
pub(super) async fn last_before(
    wire: &Wire,
    session: &SessionId,
    seq: u64,
) -> Result<Option<Stored>, Failure> {
    let mut part = Part::new(wire, session, 0, seq.saturating_sub(1));
    loop {
        let known = part.last;
        part.batch().await?;
        if part.last == known {
            // A replica may lag behind the leader, who has the last word.
            part.one_at_leader().await?;
        }
        if part.last == known || part.last >= part.upto {
            return Ok(part.commits.pop());
        }
        // Only the last one is wanted.
        part.commits.drain(..part.commits.len().saturating_sub(1));
    }
}

impl<'a> Part<'a> {
    fn new(wire: &'a Wire, session: &'a SessionId, after: u64, upto: u64) -> Self {
        Self {
            wire,
            session,
            stream: log_stream(session),
            subject: subject::log(session),
            upto,
            last: after,
            seen: 0,
            commits: Vec::new(),
        }
    }

    /// Takes the next message.
    fn take(&mut self, seq: u64, headers: Option<&HeaderMap>, body: Bytes) {
        self.last = seq;
        self.seen += 1;
        if noise::is_commit(headers, self.session) {
            self.commits.push(Stored { seq, body });
        } else {
            noise::report(self.wire, self.session, &self.stream, seq);
        }
    }

    /// Takes what one batch brings, up to the end of the part, without gaps from the batch's beginning.
    async fn batch(&mut self) -> Result<(), Failure> {
        let after = self.last;
        let request = Batch {
            seq: after.saturating_add(1),
            messages: limits::READ_BATCH,
            max_bytes: BATCH_BYTES_MAX,
            next_by_subj: &self.subject,
        };
        let body = serde_json::to_vec(&request).unwrap_or_default();
        let mut replies = self.wire.mux.open(limits::READ_BATCH + 8);
        self.wire
            .client
            .publish_with_reply(
                format!("$JS.API.DIRECT.GET.{}", self.stream),
                replies.inbox.clone(),
                body.into(),
            )
            .await
            .map_err(|error| Failure::Unknown(error.to_string()))?;
        let deadline = Instant::now() + limits::BROKER_REQUEST;
        loop {
            let message = timeout_at(deadline, replies.messages.recv())
                .await
                .ok()
                .flatten()
                .ok_or_else(|| {
                    Failure::Unknown("a batch was not answered to its end".to_owned())
                })?;
            if let Some(status) = message.status {
                // 204 ends a batch, 404 says that there is nothing; whether that is all is judged by sequence.
                return match status.as_u16() {
                    204 | 404 => Ok(()),
                    503 => Err(Failure::NoResponders),
                    number => Err(Failure::Refused {
                        number: number.into(),
                        description: message.description.unwrap_or_default(),
                    }),
                };
            }
            let header = |name: async_nats::HeaderName| {
                let value = message.headers.as_ref()?.get(name)?;
                value.as_str().parse::<u64>().ok()
            };
            let Some(seq) = header(async_nats::header::NATS_SEQUENCE) else {
                return Err(Failure::Unknown(
                    "a message without its sequence".to_owned(),
                ));
            };
            // Each message names its predecessor in the batch; another one means that a message was lost on the way.
            let before = header(async_nats::header::NATS_LAST_SEQUENCE).unwrap_or(0);
            if before > 0 && before != self.last && before != after {
                return Err(Failure::Unknown("a batch with a gap".to_owned()));
            }
            if seq > self.upto {
                return Ok(());
            }
            if seq > self.last {
                self.take(seq, message.headers.as_ref(), message.payload);
            }
            if seq == self.upto {
                return Ok(());
            }
        }
    }

    async fn one_at_leader(&mut self) -> Result<(), Failure> {
        let get = Get {
            seq: Some(self.last.saturating_add(1)),
            next_by_subj: Some(&self.subject),
            ..Get::default()
        };
        if let Some(message) = self.wire.get(&self.stream, &get).await?
            && message.seq <= self.upto
        {
            self.take(message.seq, Some(&message.headers), message.body);
        }
        Ok(())
    }
}
