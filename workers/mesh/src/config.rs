//! The live configuration: the bucket `config`, one key a worker, whose value is a JSON object with the keys of that worker's
//! section of `config.yaml`.
//!
//! A worker hears on the key's subject that something was written, and reads it then, in the wrapped form that the broker's
//! permissions leave it (`permission`). What it heard is only a hint: it reads as well after a lost connection and every
//! [`limits::CONFIG_READ_EVERY`], and what it read counts.
//!
//! Never: what a section means. A worker's own crate says that ([`Section`]); layers are laid over each other by the host.

mod live;

use std::{sync::Arc, time::Duration};

use async_nats::{HeaderMap, jetstream};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use teamster_protocol::{id::WorkerName, limits, text};
use tokio::time::{Instant, sleep_until};

use crate::{
    Error,
    connection::{Mesh, Subscription},
    guard,
    topology::CONFIG,
    wire::{Failure, Get, Wire, code},
};

pub use live::{Derived, Live, Problem, Section, Take, parse};

/// Header of a bucket's message that removes its key.
const KV_OPERATION: &str = "KV-Operation";
/// Header that says who wrote a value.
const BY: &str = "Teamster-By";
/// Bytes of that header.
const BY_BYTES_MAX: usize = 128;
/// Looks after a hint: what was announced may not be stored yet.
const LOOKS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
];

/// One revision of a worker's live configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its revision: the bucket's sequence.
    pub revision: u64,
    /// The JSON text; `None` where the key was removed.
    pub body: Option<Bytes>,
    /// When it was written, RFC 3339.
    pub at: String,
    /// Who says to have written it; `None` for other tools.
    pub by: Option<String>,
}

/// The bucket, through one connection.
#[derive(Clone)]
pub struct Configs {
    mesh: Mesh,
}

impl Entry {
    /// Whether it is what the server says about something else. It sends its answers to whatever subject a request names, so that
    /// whoever may ask it anything can have one stored here.
    fn is_answer(&self) -> bool {
        let body = self.body.as_deref().unwrap_or_default();
        let Ok(Value::Object(said)) = serde_json::from_slice(body) else {
            return false;
        };
        let is_api = said
            .get("type")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.starts_with("io.nats."));
        let is_ack = said.contains_key("stream") && said.contains_key("seq");
        self.by.is_none() && (is_api || is_ack || said.contains_key("error"))
    }
}

/// Follows one key. Made by [`Configs::follow`].
pub struct Follow {
    configs: Configs,
    key: WorkerName,
    hints: Option<Subscription>,
    seen: Option<Entry>,
    losses: u64,
}

#[derive(Deserialize)]
struct Got {
    message: Value,
}

impl Configs {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    fn wire(&self) -> &Wire {
        self.mesh.wire()
    }

    /// The newest revision of a key; `None` where there is none, or none any more.
    pub async fn get(&self, key: &WorkerName) -> Result<Option<Entry>, Error> {
        self.look(key)
            .await
            .map_err(|failure| failure.during(format!("reading the live configuration of {key}")))
    }

    async fn look(&self, key: &WorkerName) -> Result<Option<Entry>, Failure> {
        let subject = subject(key);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        match self.fetch(&get).await? {
            Some((_, entry)) if entry.is_answer() => {
                self.before(key, entry.revision).await.map(Some)
            }
            found => Ok(found.map(|(_, entry)| entry)),
        }
    }

    /// What counts where the server's own answer was stored over a key: the newest revision that somebody wrote, under the number of
    /// the newest that is there, so that the next one can follow it. Without one nobody knows what holds.
    async fn before(&self, key: &WorkerName, newest: u64) -> Result<Entry, Failure> {
        tracing::warn!(%key, seq = newest, "an answer of the server was stored over the live configuration and is passed by");
        let kept = self.revisions(key).await?;
        let written = kept.into_iter().rev().find(|entry| !entry.is_answer());
        written
            .map(|entry| Entry {
                revision: newest,
                ..entry
            })
            .ok_or_else(|| {
                Failure::Unknown(format!(
                    "all that is kept under `{key}` are answers of the server that somebody had stored there: write it anew"
                ))
            })
    }

    /// The revisions of a key that are kept, oldest first: at most [`limits::CONFIG_HISTORY_MAX`].
    pub async fn history(&self, key: &WorkerName) -> Result<Vec<Entry>, Error> {
        self.revisions(key).await.map_err(|failure| {
            failure.during(format!(
                "reading the history of the live configuration of {key}"
            ))
        })
    }

    async fn revisions(&self, key: &WorkerName) -> Result<Vec<Entry>, Failure> {
        let subject = subject(key);
        let mut entries: Vec<Entry> = Vec::new();
        // One more than are kept: a revision may be added meanwhile.
        while entries.len() <= limits::CONFIG_HISTORY_MAX {
            let get = Get {
                seq: Some(entries.last().map_or(1, |entry| entry.revision + 1)),
                next_by_subj: Some(&subject),
                ..Get::default()
            };
            match self.fetch(&get).await? {
                Some((_, entry)) => entries.push(entry),
                None => break,
            }
        }
        Ok(entries)
    }

    /// The keys that hold something.
    pub async fn keys(&self) -> Result<Vec<String>, Error> {
        let (prefix, stream) = (format!("$KV.{CONFIG}."), stream());
        let subjects = self
            .wire()
            .subjects(&stream, &format!("{prefix}*"), limits::CONFIG_KEYS_MAX)
            .await
            .map_err(|failure| failure.during("listing the live configuration"))?;
        Ok(subjects
            .into_keys()
            .filter_map(|subject| subject.strip_prefix(&prefix).map(str::to_owned))
            .collect())
    }

    /// Writes a revision and answers its number. With `expected` only where that is still the newest revision (0: none);
    /// `Ok(None)` where it is not.
    pub async fn put(
        &self,
        key: &WorkerName,
        body: Bytes,
        by: &str,
        expected: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        self.write(key, body, HeaderMap::new(), by, expected).await
    }

    /// Removes a key, so that the file counts alone. Its history stays.
    pub async fn remove(
        &self,
        key: &WorkerName,
        by: &str,
        expected: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(KV_OPERATION, "DEL");
        self.write(key, Bytes::new(), headers, by, expected).await
    }

    async fn write(
        &self,
        key: &WorkerName,
        body: Bytes,
        mut headers: HeaderMap,
        by: &str,
        expected: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        // A header is one line of ASCII.
        let by: String = by.chars().filter(char::is_ascii_graphic).collect();
        headers.insert(BY, text::head(&by, BY_BYTES_MAX));
        if let Some(expected) = expected {
            headers.insert(
                async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
                expected.to_string(),
            );
        }
        let about =
            |failure: Failure| failure.during(format!("writing the live configuration of {key}"));
        guard::replaceable(self.wire(), &stream(), &subject(key))
            .await
            .map_err(about)?;
        match self.wire().store(subject(key), Some(headers), body).await {
            Ok(ack) => Ok(Some(ack.seq)),
            Err(failure) if failure.number() == Some(code::WRONG_LAST_SEQUENCE) => Ok(None),
            Err(failure) => Err(about(failure)),
        }
    }

    async fn fetch(&self, get: &Get<'_>) -> Result<Option<(String, Entry)>, Failure> {
        let asked = format!("STREAM.MSG.GET.{}", stream());
        let got: Got = match self.wire().api(&asked, get).await {
            Ok(got) => got,
            Err(failure) if failure.number() == Some(code::NO_MESSAGE) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let unreadable = |error: String| Failure::Unknown(format!("an unreadable answer: {error}"));
        let at = got.message.get("time").and_then(Value::as_str);
        let at = at.unwrap_or_default().to_owned();
        let raw: jetstream::stream::RawMessage =
            serde_json::from_value(got.message).map_err(|error| unreadable(error.to_string()))?;
        let message = jetstream::message::StreamMessage::try_from(raw)
            .map_err(|error| unreadable(error.to_string()))?;
        let headers = &message.headers;
        let is_removal = headers.get(KV_OPERATION).is_some()
            || headers
                .get(async_nats::header::NATS_MARKER_REASON)
                .is_some();
        let entry = Entry {
            revision: message.sequence,
            body: (!is_removal).then_some(message.payload),
            at,
            by: headers.get(BY).map(|by| by.as_str().to_owned()),
        };
        Ok(Some((message.subject.to_string(), entry)))
    }

    /// Follows a key: what it holds now, and then each change. Reading it the first time is tried for
    /// [`limits::BROKER_REQUEST`]; a broker that has no leader yet is given that long.
    pub async fn follow(&self, key: WorkerName) -> Result<Follow, Error> {
        // Before the first look, so that no change falls between the two.
        let hints = self.mesh.subscribe(subject(&key)).await.ok();
        let losses = self.wire().link.borrow().losses;
        let deadline = Instant::now() + limits::BROKER_REQUEST;
        let seen = loop {
            match self.look(&key).await {
                Ok(entry) => break entry,
                Err(failure) if failure.is_passing() && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(failure) => {
                    return Err(failure.during(format!("reading the live configuration of {key}")));
                }
            }
        };
        Ok(Follow {
            configs: self.clone(),
            key,
            hints,
            seen,
            losses,
        })
    }
}

impl Follow {
    /// What the key holds, as last read; `None` where there is nothing. An entry without a body was removed.
    pub fn now(&self) -> Option<&Entry> {
        self.seen.as_ref()
    }

    /// Waits until the key holds something else than [`Follow::now`]. Changes that came together are one. Cancel-safe.
    pub async fn changed(&mut self) -> Option<&Entry> {
        let mut looks = LOOKS.iter();
        loop {
            let next = match looks.next() {
                Some(pause) => *pause,
                None => limits::CONFIG_READ_EVERY,
            };
            if self.hint(next).await {
                looks = LOOKS.iter();
                continue;
            }
            match self.configs.look(&self.key).await {
                Ok(found) if found != self.seen => {
                    self.seen = found;
                    return self.seen.as_ref();
                }
                Ok(_) => {}
                Err(failure) => {
                    tracing::warn!(key = %self.key, error = %failure, "the live configuration cannot be read now");
                }
            }
        }
    }

    /// Waits for a hint that something may have changed, at most `limit`; whether there was one.
    async fn hint(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut link = self.configs.wire().link.clone();
        let losses = self.losses;
        let hints = &mut self.hints;
        let told = async {
            match hints {
                // A subscription that ended tells nothing more.
                Some(subscription) => match subscription.next().await {
                    Some(_) => {}
                    None => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        let back = async {
            let up = link.wait_for(|link| link.is_up && link.losses != losses);
            match up.await.map(|link| link.losses) {
                Ok(losses) => losses,
                // The connection is closed for good.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = told => true,
            losses = back => {
                self.losses = losses;
                true
            }
            () = sleep_until(until) => false,
        }
    }
}

/// A section that a host may replace.
pub type Taker = Arc<dyn Take>;

fn stream() -> String {
    format!("KV_{CONFIG}")
}

fn subject(key: &WorkerName) -> String {
    format!("$KV.{CONFIG}.{key}")
}
