//! Reading single messages of streams with one replica: the server that holds the stream answers by itself, without the detour
//! that a request of the `JetStream` API takes.
//!
//! Invariants: a stream with several replicas is read at its leader (`wire::Wire::get`), since a replica may lag; how many it has
//! is asked again every [`KNOWN_FOR`] and whenever the connection broke.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_nats::{HeaderMap, Message, StatusCode};
use serde::Deserialize;
use serde_json::json;
use teamster_protocol::limits;
use tokio::time::Instant;

use crate::{
    permission,
    wire::{Failure, Get, StoredMessage, Wire},
};

/// How long it is believed how many replicas a stream has.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// Header of a direct answer: the message's sequence.
const SEQUENCE: &str = "Nats-Sequence";
/// Header of a direct answer: the message's subject.
const SUBJECT: &str = "Nats-Subject";

/// What is known about the streams that one connection reads.
#[derive(Default)]
pub(crate) struct Directs {
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    is_direct: bool,
    losses: u64,
    until: Instant,
}

/// A direct answer.
pub(crate) struct Found {
    /// The message; `None` if there is none.
    pub(crate) message: Option<StoredMessage>,
}

#[derive(Deserialize)]
struct Info {
    config: Config,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    num_replicas: usize,
    #[serde(default)]
    allow_direct: bool,
}

impl Directs {
    /// Whether a stream may be read directly: it has one replica, and the worker has the right.
    pub(crate) async fn has(&self, wire: &Wire, stream: &str) -> bool {
        let losses = wire.link.borrow().losses;
        let now = Instant::now();
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(stream).copied()
        };
        if let Some(known) = known
            && known.losses == losses
            && known.until > now
        {
            return known.is_direct;
        }
        let is_direct = may_read(wire, stream) && is_single(wire, stream).await;
        let known = Known {
            is_direct,
            losses,
            until: now + KNOWN_FOR,
        };
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(stream.to_owned(), known);
        is_direct
    }
}

/// Whether the worker has the right. Users that are none of the house's ask as they always did.
fn may_read(wire: &Wire, stream: &str) -> bool {
    permission::of(wire.worker.as_str()).is_some_and(|rights| rights.may_publish(&subject(stream)))
}

async fn is_single(wire: &Wire, stream: &str) -> bool {
    let info = wire
        .api::<Info>(&format!("STREAM.INFO.{stream}"), &json!(null))
        .await;
    info.is_ok_and(|Info { config }| config.num_replicas == 1 && config.allow_direct)
}

fn subject(stream: &str) -> String {
    format!("$JS.API.DIRECT.GET.{stream}")
}

/// Asks for a message; `None` if the answer is not one that counts, and the leader must be asked.
pub(crate) async fn get(
    wire: &Wire,
    stream: &str,
    get: &Get<'_>,
) -> Result<Option<Found>, Failure> {
    let Ok(body) = serde_json::to_vec(get) else {
        return Ok(None);
    };
    let asked = wire
        .ask(subject(stream), None, body.into(), limits::BROKER_REQUEST)
        .await;
    match asked {
        Ok(answer) => Ok(read(answer)),
        Err(failure @ Failure::Unknown(_)) => Err(failure),
        Err(_) => Ok(None),
    }
}

/// Reads an answer. Pure.
fn read(answer: Message) -> Option<Found> {
    match answer.status {
        None => {}
        Some(StatusCode::NOT_FOUND) => return Some(Found { message: None }),
        Some(_) => return None,
    }
    let headers = answer.headers?;
    let text = |headers: &HeaderMap, name: &str| headers.get(name).map(|v| v.as_str().to_owned());
    let seq = text(&headers, SEQUENCE)?.parse().ok()?;
    let subject = text(&headers, SUBJECT)?;
    let message = StoredMessage {
        subject,
        seq,
        headers,
        body: answer.payload,
    };
    Some(Found {
        message: Some(message),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(status: Option<u16>, headers: &[(&str, &str)]) -> Message {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, *value);
        }
        Message {
            subject: "i".into(),
            reply: None,
            payload: Bytes::from_static(b"x"),
            headers: Some(map),
            status: status.map(|code| StatusCode::try_from(code).expect("a status")),
            description: None,
            length: 1,
        }
    }

    #[test]
    fn answers_are_read_and_strange_ones_do_not_count() {
        let whole = [(SEQUENCE, "7"), (SUBJECT, "log.00.a")];
        let found = read(answer(None, &whole)).expect("an answer");
        let message = found.message.expect("a message");
        assert_eq!((message.seq, message.subject.as_str()), (7, "log.00.a"));
        let none = read(answer(Some(404), &[])).expect("an answer");
        assert!(none.message.is_none());
        assert!(read(answer(Some(408), &whole)).is_none());
        assert!(read(answer(None, &[(SUBJECT, "log.00.a")])).is_none());
        assert!(read(answer(None, &[(SEQUENCE, "x"), (SUBJECT, "a")])).is_none());
    }
}
