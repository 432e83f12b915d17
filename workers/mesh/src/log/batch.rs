//! Reading a part of one session's log: batches of direct gets, checked for completeness.
//!
//! A replica that answers a direct get may lag. The reader knows where the part ends, so it sees that and asks again, in the
//! end the leader, message by message.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use teamster_protocol::{SessionId, limits, subject};
use tokio::time::{Instant, sleep, timeout_at};

use super::Stored;
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

/// The commits with `after < seq <= upto`, oldest first.
pub(super) async fn read(
    wire: &Wire,
    session: &SessionId,
    after: u64,
    upto: u64,
) -> Result<Vec<Stored>, Error> {
    let action = || format!("reading the log of {session}");
    let (stream, subject) = (log_stream(session), subject::log(session));
    let mut all: Vec<Stored> = Vec::new();
    let mut tries = 0;
    loop {
        let last = all.last().map_or(after, |stored| stored.seq);
        if last >= upto {
            return Ok(all);
        }
        let known = all.len();
        let batch = if tries < TRIES {
            batch(wire, &stream, &subject, last, upto, &mut all).await
        } else {
            one_at_leader(wire, &stream, &subject, last, upto, &mut all).await
        };
        if all.len() > known {
            tries = 0;
            continue;
        }
        tries += 1;
        if tries > 2 * TRIES {
            let failure = batch.err().unwrap_or_else(|| {
                Failure::Unknown(format!("the log ends at {last}, not at {upto}"))
            });
            return Err(failure.during(action()));
        }
        sleep(Duration::from_millis(2 << tries)).await;
    }
}

/// Appends what one batch brings, up to `upto`, without gaps from the batch's beginning.
async fn batch(
    wire: &Wire,
    stream: &str,
    subject: &str,
    after: u64,
    upto: u64,
    all: &mut Vec<Stored>,
) -> Result<(), Failure> {
    let request = Batch {
        seq: after.saturating_add(1),
        messages: limits::READ_BATCH,
        max_bytes: BATCH_BYTES_MAX,
        next_by_subj: subject,
    };
    let body = serde_json::to_vec(&request).unwrap_or_default();
    let mut replies = wire.mux.open(limits::READ_BATCH + 8);
    wire.client
        .publish_with_reply(
            format!("$JS.API.DIRECT.GET.{stream}"),
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
            .ok_or_else(|| Failure::Unknown("a batch was not answered to its end".to_owned()))?;
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
        let expected = all.last().map_or(after, |stored| stored.seq);
        if before > 0 && before != expected && before != after {
            return Err(Failure::Unknown("a batch with a gap".to_owned()));
        }
        if seq > upto {
            return Ok(());
        }
        if seq > expected {
            all.push(Stored {
                seq,
                body: message.payload,
            });
        }
        if seq == upto {
            return Ok(());
        }
    }
}

async fn one_at_leader(
    wire: &Wire,
    stream: &str,
    subject: &str,
    after: u64,
    upto: u64,
    all: &mut Vec<Stored>,
) -> Result<(), Failure> {
    let get = Get {
        seq: Some(after.saturating_add(1)),
        next_by_subj: Some(subject),
        ..Get::default()
    };
    if let Some(message) = wire.get(stream, &get).await?
        && message.seq <= upto
    {
        all.push(Stored {
            seq: message.seq,
            body: Bytes::clone(&message.body),
        });
    }
    Ok(())
}
