//! Messages on their way to the session, in order, one at a time. One whose answer was lost is sent again under its key.

use std::{collections::VecDeque, future::Future, pin::Pin, time::Duration};

use teamster_protocol::function::harness::{SendReply, SendRequest};
use tokio::time::{Instant, sleep_until};

use crate::client::{Client, Error};

/// Messages that may wait to be sent.
const WAITING_MAX: usize = 32;
/// The pause before a message is sent again.
const PAUSE: Duration = Duration::from_secs(1);

type Sending = Pin<Box<dyn Future<Output = Result<SendReply, Error>> + Send>>;

/// What is to be sent.
#[derive(Default)]
pub(super) struct Outgoing {
    waiting: VecDeque<SendRequest>,
    sending: Option<Sending>,
    /// Messages that were not taken since the last one that was.
    refused: usize,
    /// When the first one could not be sent, and when it is tried again.
    failed: Option<(Instant, Instant)>,
}

impl Outgoing {
    /// Whether nothing is to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the message that was not taken last is the first such one in a row.
    pub(super) fn is_first_refusal(&self) -> bool {
        self.refused <= 1
    }

    /// Messages that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a message; `false` if too many wait.
    pub(super) fn push(&mut self, request: SendRequest) -> bool {
        if self.waiting.len() >= WAITING_MAX {
            self.refused += 1;
            return false;
        }
        self.refused = 0;
        self.waiting.push_back(request);
        true
    }

    /// Waits for what became of the first message; for ever where none is to be sent. Cancel-safe.
    pub(super) async fn next(&mut self, client: &Client) -> Result<SendReply, Error> {
        let Some(request) = self.waiting.front() else {
            return std::future::pending().await;
        };
        if self.sending.is_none() {
            if let Some((_, again)) = self.failed {
                sleep_until(again).await;
            }
            let (client, request) = (client.clone(), request.clone());
            self.sending = Some(Box::pin(async move { client.send(request).await }));
        }
        let Some(sending) = &mut self.sending else {
            return std::future::pending().await;
        };
        let result = sending.await;
        self.sending = None;
        result
    }

    /// The first message is settled: accepted, or refused for good.
    pub(super) fn settle(&mut self) -> Option<SendRequest> {
        self.failed = None;
        self.waiting.pop_front()
    }

    /// The first message could not be sent now; it is tried again. How long that goes on already.
    pub(super) fn again(&mut self) -> Duration {
        let now = Instant::now();
        let since = self.failed.map_or(now, |(since, _)| since);
        self.failed = Some((since, now + PAUSE));
        now - since
    }

    /// Begins anew with the first message, over another connection. The key keeps it from being a second one.
    pub(super) fn restart(&mut self) {
        self.sending = None;
        self.failed = None;
    }

    /// Throws away what is not sent; the texts.
    pub(super) fn clear(&mut self) -> Vec<String> {
        self.sending = None;
        self.failed = None;
        self.waiting
            .drain(..)
            .map(|request| request.message)
            .collect()
    }
}
