//! The short way between workers of one process: the same subject, the same headers and the same bytes as over the bus, without
//! the bus.
//!
//! Invariants: only what the caller may publish over the bus goes the short way, and only functions of `fn.`; operator's
//! functions are reached through the broker alone, which knows the principal. A worker that ends is left to the bus first.
//!
//! Never: another contract than the bus. A caller cannot tell which way its call took.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, Weak},
};

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::mux::Mux;

/// Takes a request as if it had come over the bus.
pub(crate) type Door = Arc<dyn Fn(Message) -> BoxFuture<'static, ()> + Send + Sync>;

/// The workers of one process that reach each other without the bus. One a host.
#[derive(Default)]
pub struct Near {
    doors: RwLock<HashMap<String, Door>>,
    inboxes: RwLock<HashMap<String, Weak<Mux>>>,
}

impl Near {
    /// Opens the short way to a function's subject.
    pub(crate) fn open(&self, subject: &str, door: Door) {
        if subject.starts_with("fn.") {
            write(&self.doors).insert(subject.to_owned(), door);
        }
    }

    /// Closes the short way to a function's subject; calls take the bus from now on.
    pub(crate) fn close(&self, subject: &str) {
        write(&self.doors).remove(subject);
    }

    /// The short way to a subject, if there is one.
    pub(crate) fn door(&self, subject: &str) -> Option<Door> {
        let doors = self.doors.read().unwrap_or_else(PoisonError::into_inner);
        doors.get(subject).cloned()
    }

    /// Makes the inboxes under `prefix` reachable, for as long as their connection lives.
    pub(crate) fn receive(&self, prefix: &str, mux: &Arc<Mux>) {
        let mut inboxes = write(&self.inboxes);
        inboxes.retain(|_, mux| mux.strong_count() > 0);
        inboxes.insert(prefix.to_owned(), Arc::downgrade(mux));
    }

    /// Hands an answer over if its inbox belongs to this process; gives it back if not.
    pub(crate) fn answer(
        &self,
        inbox: &str,
        headers: Option<HeaderMap>,
        body: Bytes,
    ) -> Result<(), (Option<HeaderMap>, Bytes)> {
        let mux = inbox.rsplit_once('.').and_then(|(prefix, _)| {
            let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
            inboxes.get(prefix).and_then(Weak::upgrade)
        });
        let Some(mux) = mux else {
            return Err((headers, body));
        };
        mux.take(message(inbox, None, headers, body));
        Ok(())
    }
}

/// A message as it would come over the bus.
pub(crate) fn message(
    subject: &str,
    reply: Option<&str>,
    headers: Option<HeaderMap>,
    body: Bytes,
) -> Message {
    Message {
        length: body.len(),
        subject: subject.into(),
        reply: reply.map(Into::into),
        payload: body,
        headers,
        status: None,
        description: None,
    }
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
