//! Requests to the broker over one connection, and what their answers mean.
//!
//! An answer that did not come is [`Failure::Unknown`], never a refusal. A wait ends at once when the connection breaks,
//! so that nobody waits out a timeout for an answer that is lost.
//!
//! Subjects published to, apart from those in `protocol::subject`: `$JS.API.>` (stream and consumer information, creation,
//! `STREAM.MSG.GET`, `STREAM.MSG.DELETE`, `STREAM.PURGE`, `CONSUMER.MSG.NEXT`, `DIRECT.GET`), `$JS.ACK.>`, `$KV.registry.>`, `$KV.config.*`,
//! `$SRV.>` replies and inboxes `_INBOX.>` of callers. Subscribed to: own inboxes `_INBOX.<worker>.>` and `$SRV.>`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_nats::{Client, HeaderMap, Message, jetstream, jetstream::stream::RawMessage};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use teamster_protocol::{
    id::{Incarnation, WorkerName},
    limits,
};
use tokio::{sync::watch, time::Instant};

use crate::{
    Error,
    denial::{Denials, Denied},
    direct::{self, Directs},
    guard::Looked,
    log::Reported,
    mux::Mux,
    near::{Door, Near},
    permission::{self, Permissions},
};

/// Error numbers of the broker that decisions look at.
pub(crate) mod code {
    /// A stream does not exist.
    pub(crate) const STREAM_NOT_FOUND: u64 = 10059;
    /// A consumer does not exist.
    pub(crate) const CONSUMER_NOT_FOUND: u64 = 10014;
    /// No message fits a request.
    pub(crate) const NO_MESSAGE: u64 = 10037;
    /// Whether a message that was to be removed is not there, or was removed at the same time.
    pub(crate) fn is_gone(number: u64) -> bool {
        matches!(number, NO_MESSAGE | 10043 | 10057)
    }
    /// Another message than the expected one is the last of a subject.
    pub(crate) const WRONG_LAST_SEQUENCE: u64 = 10071;
    /// A write to the subject is in flight; nothing was stored, nothing is known about a fence.
    pub(crate) const WRITE_IN_FLIGHT: u64 = 10164;
    /// The store refused a message: the subject holds as many as it may, or the words say what else.
    pub(crate) const STORE_FAILED: u64 = 10077;
    /// How the store says that a subject holds as many messages as it may.
    pub(crate) const SUBJECT_FULL: &str = "per subject";

    /// Whether there is no room to store: the server's, the account's, or the disk's.
    pub(crate) fn is_no_space(number: u64, words: &str) -> bool {
        matches!(number, 10002 | 10028 | 10047)
            || (number == STORE_FAILED && !words.contains(SUBJECT_FULL))
    }
}

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The broker said no; nothing was done.
    #[error("the broker refused: {description} (error {number})")]
    Refused {
        /// The broker's error number, or 0.
        number: u64,
        /// The broker's words.
        description: String,
    },
    /// Nobody serves the subject now: there is no such stream, or it has no leader.
    #[error("nobody answers on the subject")]
    NoResponders,
    /// No answer; whether something was done is unknown.
    #[error("no answer: {0}")]
    Unknown(String),
    /// The broker does not let these credentials do it. Nothing is said of what was sent before.
    #[error(transparent)]
    Denied(Denied),
    /// The server holds messages on a subject, and cannot hand out the last of them: its stored bytes are damaged. Not the same
    /// as none.
    #[error("the last of {stored} stored messages cannot be read: its stored bytes are damaged")]
    Unreadable {
        /// How many the server holds.
        stored: u64,
    },
}

impl Failure {
    /// The broker's error number.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Refused { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Whether the same request may succeed a little later: no answer, no leader yet, not enough peers yet, a leader that steps
    /// down.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NoResponders | Self::Unknown(_) => true,
            Self::Unreadable { .. } | Self::Denied(_) => false,
            Self::Refused { number, .. } => {
                matches!(number, 10004..=10006 | 10008 | 10009 | 10023 | 10074)
            }
        }
    }

    /// The crate's error for a failed `action`.
    pub(crate) fn during(self, action: impl Into<String>) -> Error {
        let action = action.into();
        match self {
            Self::Refused {
                number,
                description,
            } if code::is_no_space(number, &description) => Error::NoSpace {
                action,
                source: Box::new(Self::Refused {
                    number,
                    description,
                }),
            },
            Self::Refused {
                number: code::STORE_FAILED,
                ..
            } => Error::QueueFull,
            Self::NoResponders => Error::NoResponders { action },
            Self::Unknown(_) => Error::Timeout { action },
            Self::Denied(denied) => Error::Denied {
                action,
                source: Box::new(denied),
            },
            damaged @ Self::Unreadable { .. } => Error::Damaged {
                action,
                source: Box::new(damaged),
            },
            refused @ Self::Refused { .. } => Error::Request {
                action,
                source: Box::new(refused),
            },
        }
    }
}

/// How the connection stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// How often it was lost.
    pub(crate) losses: u64,
    /// Whether it stands.
    pub(crate) is_up: bool,
    /// What the broker has denied over it so far.
    pub(crate) denials: u64,
}

/// The broker's word that a message is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct PubAck {
    /// Its stream sequence.
    pub(crate) seq: u64,
    /// Whether it was stored before.
    #[serde(default)]
    pub(crate) duplicate: bool,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct MaybeRefusal {
    error: Option<Refusal>,
}

/// Which message of a stream is wanted, read at the stream's leader.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Get<'a> {
    /// The first sequence that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    /// The next message on this subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_by_subj: Option<&'a str>,
    /// The last message on this subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_by_subj: Option<&'a str>,
}

#[derive(Deserialize)]
struct Got {
    message: RawMessage,
}

/// A stored message.
pub(crate) struct StoredMessage {
    pub(crate) subject: String,
    pub(crate) seq: u64,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// When `timeout` from now is over; one that no clock can hold is taken as a day.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_hours(24))
}

/// One connection: a cheap handle.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) client: Client,
    /// Only for reading what a delivery says about itself.
    pub(crate) context: jetstream::Context,
    pub(crate) link: watch::Receiver<Link>,
    pub(crate) worker: WorkerName,
    pub(crate) incarnation: Incarnation,
    pub(crate) mux: Arc<Mux>,
    /// What the broker does not let this connection do.
    pub(crate) denials: Arc<Denials>,
    /// The workers of the same process.
    pub(crate) vicinity: Option<Vicinity>,
    /// The streams that may be read without asking their leader.
    pub(crate) directs: Arc<Directs>,
    /// What of the logs was reported as no commit.
    pub(crate) reported: Arc<Reported>,
    /// Subjects whose stored messages are known to be readable.
    pub(crate) looked: Arc<Looked>,
}

/// The workers of the same process, and what may be asked of them.
#[derive(Clone)]
pub(crate) struct Vicinity {
    pub(crate) near: Arc<Near>,
    rights: Arc<Permissions>,
}

impl Vicinity {
    /// What `worker` reaches the short way; nothing if it is none of the house's workers, whose rights are known.
    pub(crate) fn new(near: Arc<Near>, worker: &str) -> Option<Self> {
        let rights = Arc::new(permission::of(worker)?);
        Some(Self { near, rights })
    }

    /// The short way to a subject that the worker may publish to.
    pub(crate) fn door(&self, subject: &str) -> Option<Door> {
        let door = self.near.door(subject)?;
        self.rights.may_publish(subject).then_some(door)
    }
}

impl Wire {
    /// Sends a request and waits for its one answer.
    pub(crate) async fn ask(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Message, Failure> {
        let mut request = async_nats::Request::new()
            .payload(body)
            .timeout(Some(timeout.min(Duration::from_hours(24))));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let mut link = self.link.clone();
        let began = *link.borrow_and_update();
        if began.denials > 0 && self.denials.is_deaf() {
            return Err(Failure::Denied(Denied::Answers));
        }
        tokio::select! {
            answer = self.client.send_request(subject.clone(), request) => answer.map_err(|error| failure(&error)),
            failure = self.given_up(&mut link, began, &subject) => Err(failure),
        }
    }

    /// Waits for a reason not to wait for the answer any longer: the connection broke, or the request was denied.
    async fn given_up(
        &self,
        link: &mut watch::Receiver<Link>,
        began: Link,
        subject: &str,
    ) -> Failure {
        let mut seen = began.denials;
        loop {
            let changed = link.wait_for(|link| link.losses != began.losses || link.denials != seen);
            match changed.await.map(|link| *link) {
                Ok(now) if now.losses == began.losses => seen = now.denials,
                Ok(_) | Err(_) => return Failure::Unknown("the connection broke".to_owned()),
            }
            if let Some(denied) = self.denials.of(subject, began.denials) {
                return Failure::Denied(denied);
            }
        }
    }

    /// Sends a request of the JetStream API.
    pub(crate) async fn api<Answer: DeserializeOwned>(
        &self,
        subject: &str,
        body: &impl Serialize,
    ) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(body)
            .map_err(|error| refused(0, format!("the request cannot be written: {error}")))?;
        // Some questions, such as a consumer's state, are refused unless their body is empty.
        let body = if body == b"null" { Vec::new() } else { body };
        let answer = self
            .ask(
                format!("$JS.API.{subject}"),
                None,
                body.into(),
                limits::BROKER_REQUEST,
            )
            .await?;
        read_answer(&answer.payload)
    }

    /// Publishes into a stream and waits for the broker's word that the message is stored.
    pub(crate) async fn store(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        body: Bytes,
    ) -> Result<PubAck, Failure> {
        let answer = self
            .ask(subject, headers, body, limits::BROKER_REQUEST)
            .await?;
        read_answer(&answer.payload)
    }

    /// Publishes without waiting for anything but room in the connection's buffer.
    pub(crate) async fn tell(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        body: Bytes,
    ) -> Result<(), Failure> {
        let send = async {
            match headers {
                Some(headers) => {
                    self.client
                        .publish_with_headers(subject, headers, body)
                        .await
                }
                None => self.client.publish(subject, body).await,
            }
        };
        match tokio::time::timeout(limits::BROKER_REQUEST, send).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(refused(0, error.to_string())),
            Err(_) => Err(Failure::Unknown("the connection takes nothing".to_owned())),
        }
    }

    /// A stored message, as the stream's leader has it; `None` if there is none. A stream of one replica has no other reader
    /// than its leader, and is asked the short way.
    pub(crate) async fn get(
        &self,
        stream: &str,
        get: &Get<'_>,
    ) -> Result<Option<StoredMessage>, Failure> {
        if self.directs.has(self, stream).await
            && let Some(found) = direct::get(self, stream, get).await?
        {
            return Ok(found.message);
        }
        let got: Got = match self.api(&format!("STREAM.MSG.GET.{stream}"), get).await {
            Ok(got) => got,
            Err(failure) if failure.number() == Some(code::NO_MESSAGE) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let message = jetstream::message::StreamMessage::try_from(got.message)
            .map_err(|error| Failure::Unknown(format!("an unreadable answer: {error}")))?;
        Ok(Some(StoredMessage {
            subject: message.subject.to_string(),
            seq: message.sequence,
            headers: message.headers,
            body: message.payload,
        }))
    }

    /// Removes a message without overwriting its bytes; does not wait.
    pub(crate) async fn delete(&self, stream: &str, seq: u64) -> Result<(), Failure> {
        let body = serde_json::json!({"seq": seq, "no_erase": true}).to_string();
        self.tell(
            format!("$JS.API.STREAM.MSG.DELETE.{stream}"),
            None,
            body.into(),
        )
        .await
    }

    /// Removes a message without overwriting its bytes, and waits until it is gone.
    pub(crate) async fn take_out(&self, stream: &str, seq: u64) -> Result<(), Failure> {
        let body = serde_json::json!({"seq": seq, "no_erase": true});
        self.api::<serde::de::IgnoredAny>(&format!("STREAM.MSG.DELETE.{stream}"), &body)
            .await?;
        Ok(())
    }

    /// Overwrites a message's bytes and removes it; waits until it is gone. One that is not there is no failure.
    pub(crate) async fn erase(&self, stream: &str, seq: u64) -> Result<(), Failure> {
        let body = serde_json::json!({ "seq": seq });
        let gone = self
            .api::<serde::de::IgnoredAny>(&format!("STREAM.MSG.DELETE.{stream}"), &body)
            .await;
        match gone {
            Err(failure) if failure.number().is_some_and(code::is_gone) => Ok(()),
            gone => gone.map(drop),
        }
    }

    /// Removes all messages of a subject.
    pub(crate) async fn purge(&self, stream: &str, subject: &str) -> Result<(), Failure> {
        let body = serde_json::json!({"filter": subject});
        self.api::<serde::de::IgnoredAny>(&format!("STREAM.PURGE.{stream}"), &body)
            .await?;
        Ok(())
    }

    /// How many messages each subject that `filter` matches holds, at most `subjects_max` subjects.
    pub(crate) async fn subjects(
        &self,
        stream: &str,
        filter: &str,
        subjects_max: usize,
    ) -> Result<BTreeMap<String, u64>, Failure> {
        #[derive(Deserialize)]
        struct Info {
            state: State,
            #[serde(default)]
            total: usize,
        }
        #[derive(Deserialize)]
        struct State {
            #[serde(default)]
            subjects: Option<BTreeMap<String, u64>>,
        }
        let mut all = BTreeMap::new();
        let mut offset = 0;
        loop {
            let body = serde_json::json!({"subjects_filter": filter, "offset": offset});
            let info: Info = self.api(&format!("STREAM.INFO.{stream}"), &body).await?;
            let page = info.state.subjects.unwrap_or_default();
            offset += page.len();
            let is_last = page.is_empty() || offset >= info.total || all.len() >= subjects_max;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Sends what is buffered and waits until the server has read it: it reads what a connection sends in order, and answers
    /// a question that every user may ask.
    pub(crate) async fn flush(&self) -> Result<(), Failure> {
        let asked = self
            .ask(
                format!("$JS.API.STREAM.INFO.KV_{}", crate::topology::REGISTRY),
                None,
                Bytes::new(),
                limits::BROKER_REQUEST,
            )
            .await;
        match asked {
            Ok(_) | Err(Failure::NoResponders) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Waits until the connection stands, at most `limit`.
    pub(crate) async fn up(&self, limit: Duration) -> bool {
        let mut link = self.link.clone();
        tokio::time::timeout(limit, link.wait_for(|link| link.is_up))
            .await
            .is_ok_and(|waited| waited.is_ok())
    }
}

/// Reads an answer that is either an error or what was asked for.
fn read_answer<Answer: DeserializeOwned>(body: &[u8]) -> Result<Answer, Failure> {
    // An error stands at the beginning; large answers are not read twice for it.
    let head = body.get(..256).unwrap_or(body);
    if head.windows(7).any(|bytes| bytes == b"\"error\"")
        && let Ok(MaybeRefusal { error: Some(error) }) = serde_json::from_slice(body)
    {
        return Err(refused(error.err_code, error.description));
    }
    serde_json::from_slice(body)
        .map_err(|error| Failure::Unknown(format!("an unreadable answer: {error}")))
}

fn refused(number: u64, description: String) -> Failure {
    Failure::Refused {
        number,
        description,
    }
}

fn failure(error: &async_nats::RequestError) -> Failure {
    use async_nats::RequestErrorKind as Kind;
    match error.kind() {
        Kind::NoResponders => Failure::NoResponders,
        Kind::InvalidSubject | Kind::MaxPayloadExceeded => refused(0, error.to_string()),
        Kind::TimedOut | Kind::Other => Failure::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let ack: PubAck =
            read_answer(br#"{"stream":"S","seq":7,"duplicate":true}"#).expect("an ack");
        assert_eq!(
            ack,
            PubAck {
                seq: 7,
                duplicate: true
            }
        );
        let error = read_answer::<PubAck>(
            br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"},"stream":"S","seq":0}"#,
        )
        .expect_err("a refusal");
        assert_eq!(error.number(), Some(code::WRONG_LAST_SEQUENCE));
        assert!(matches!(
            read_answer::<PubAck>(b"{"),
            Err(Failure::Unknown(_))
        ));
    }

    #[test]
    fn a_full_subject_is_a_full_queue() {
        let words = "maximum messages per subject exceeded".to_owned();
        let error = refused(code::STORE_FAILED, words).during("x");
        assert!(matches!(error, Error::QueueFull));
        for (number, words) in [
            (10047, "insufficient storage resources available"),
            (code::STORE_FAILED, "write 1.blk: no space left on device"),
        ] {
            let error = refused(number, words.to_owned()).during("x");
            assert!(matches!(error, Error::NoSpace { .. }), "{number}");
        }
    }
}
