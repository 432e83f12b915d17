//! Many answers on one inbox: one wildcard subscription a connection, and the waiting requests by token.
//!
//! A request costs no subscription of its own, may get several answers, and is forgotten when its [`Replies`] is dropped.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_nats::{Message, Subscriber};
use futures::StreamExt as _;
use tokio::sync::mpsc;

/// The waiting requests of one connection.
pub(crate) struct Mux {
    /// `_INBOX.<worker>.<incarnation>`.
    prefix: String,
    waiting: Mutex<HashMap<u64, mpsc::Sender<Message>>>,
}

/// The answers to one request.
pub(crate) struct Replies {
    mux: Arc<Mux>,
    token: u64,
    /// Where answers go.
    pub(crate) inbox: String,
    /// The answers as they come.
    pub(crate) messages: mpsc::Receiver<Message>,
}

impl Mux {
    /// The requests whose answers come under `prefix`.
    pub(crate) fn new(prefix: String) -> Self {
        Self {
            prefix,
            waiting: Mutex::new(HashMap::new()),
        }
    }

    /// What to subscribe to.
    pub(crate) fn subject(&self) -> String {
        format!("{}.*", self.prefix)
    }

    /// A place for the answers to a new request. At most `answers_max` of them wait to be taken; more are dropped.
    pub(crate) fn open(self: &Arc<Self>, answers_max: usize) -> Replies {
        // Whoever was asked once knows the prefix; what cannot be guessed is where the next answer is awaited.
        let token = uuid::Uuid::now_v7().as_u64_pair().1;
        let (sender, messages) = mpsc::channel(answers_max);
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token, sender);
        Replies {
            mux: Arc::clone(self),
            token,
            inbox: format!("{}.{token}", self.prefix),
            messages,
        }
    }

    /// Hands answers to whoever waits for them, until the subscription ends.
    pub(crate) async fn run(self: Arc<Self>, mut answers: Subscriber) {
        while let Some(message) = answers.next().await {
            self.take(message);
        }
    }

    /// Hands one answer to whoever waits for it.
    pub(crate) fn take(&self, message: Message) {
        let token = message
            .subject
            .rsplit_once('.')
            .and_then(|(_, token)| token.parse().ok());
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = token.and_then(|token: u64| waiting.get(&token))
            && let Err(mpsc::error::TrySendError::Full(message)) = sender.try_send(message)
        {
            tracing::warn!(subject = %message.subject, "an answer was dropped: nobody takes them");
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.mux
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.token);
    }
}
