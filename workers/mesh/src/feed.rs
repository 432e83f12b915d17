//! The commits of one log stream, one at a time, shared by all who make notices of them.
//!
//! The consumer is durable and made once. A commit that was taken and not acknowledged comes back after its lease, to whoever asks
//! next; until it is acknowledged nothing behind it is handed out.

use std::time::Duration;

use async_nats::jetstream;
use teamster_protocol::{SessionId, limits, subject};
use tokio::time::{Instant, sleep};

use crate::{
    Mesh,
    log::{Stored, is_commit},
    pause::Pauses,
    pull::{Pull, Pulled},
    topology::{FEED, ensure_feed, log_stream_name},
};

/// Deliveries asked for with one request. One is outstanding at a time all the same.
const ASKED: usize = 64;
/// Pause before a lost consumer is looked for.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause before a lost consumer is looked for again.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The feed of one log stream.
pub struct Feed {
    mesh: Mesh,
    stream: u8,
    pull: Pull,
    pauses: Pauses,
}

/// What is to be dealt with, under a lease.
pub struct Fed {
    /// The commit; `None` for what is none.
    pub commit: Option<(SessionId, Stored)>,
    /// Until when nobody else has it.
    pub until: Instant,
    reply: String,
    mesh: Mesh,
}

impl Fed {
    /// Says that it is dealt with; does not wait. If that is lost, it comes again.
    pub async fn ack(self) {
        self.say("+ACK".to_owned()).await;
    }

    /// Gives it back, to be handed out again after `delay`; does not wait.
    pub async fn nak(self, delay: Duration) {
        self.say(format!("-NAK {{\"delay\":{}}}", delay.as_nanos()))
            .await;
    }

    async fn say(&self, words: String) {
        if let Err(failure) = self
            .mesh
            .wire()
            .tell(self.reply.clone(), None, words.into())
            .await
        {
            tracing::debug!(error = %failure, "a fed commit could not be answered; it comes again");
        }
    }
}

impl Feed {
    /// The feed of log stream `stream`. Nothing is asked for yet.
    pub fn open(mesh: &Mesh, stream: u8) -> Self {
        Self {
            mesh: mesh.clone(),
            stream,
            pull: Pull::new(mesh.wire(), &log_stream_name(stream), FEED),
            pauses: Pauses::new(PAUSE_MIN, PAUSE_MAX),
        }
    }

    /// The next one. Survives restarts of the broker and the loss of the consumer, which is then made anew and begins at the
    /// beginning of the log. Cancel-safe.
    pub async fn next(&mut self) -> Fed {
        loop {
            self.pull.ask(ASKED).await;
            match self.pull.next().await {
                Pulled::Delivery(delivery) => {
                    self.pauses.reset();
                    if let Some(fed) = self.read(&delivery) {
                        return fed;
                    }
                }
                Pulled::Expired => {}
                Pulled::Broken(why) => {
                    tracing::debug!(stream = self.stream, reason = why, "a feed is asked anew");
                    self.repair().await;
                }
            }
        }
    }

    async fn repair(&mut self) {
        sleep(self.pauses.next()).await;
        let wire = self.mesh.wire();
        wire.up(PAUSE_MAX).await;
        if let Err(error) = ensure_feed(wire, self.stream).await {
            tracing::warn!(
                stream = self.stream,
                error = %teamster_telemetry::chain(&error),
                "no notices of this log stream: its consumer cannot be ensured; trying again"
            );
        }
    }

    fn read(&self, delivery: &jetstream::Message) -> Option<Fed> {
        let message = &delivery.message;
        let seq = match delivery.info() {
            Ok(info) => info.stream_sequence,
            Err(error) => {
                tracing::error!(subject = %message.subject, %error, "a delivery does not say what it is");
                return None;
            }
        };
        let commit = subject::parse_log(&message.subject)
            .filter(|session| is_commit(message.headers.as_ref(), session))
            .map(|session| {
                let body = message.payload.clone();
                (session, Stored { seq, body })
            });
        Some(Fed {
            commit,
            until: Instant::now() + limits::FEED_WAIT / 2,
            reply: message.reply.as_ref()?.to_string(),
            mesh: self.mesh.clone(),
        })
    }
}
