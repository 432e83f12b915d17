//! The short way between workers of one process: the same subject, the same headers and the same request as over the bus, without
//! the bus, and where both sides know its type, without being written and read on the way.
//!
//! Invariants: only what the caller may publish over the bus goes the short way, and only functions of `fn.`; operator's
//! functions are reached through the broker alone, which knows the principal. A worker that ends is left to the bus first.
//!
//! Never: another contract than the bus. A caller cannot tell which way its call took.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, Weak},
};

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;

use crate::mux::Mux;

/// A request that needs no writing and reading where its callee lives in the same process. A cheap handle.
#[derive(Clone)]
pub struct Value {
    carried: Arc<dyn Carried>,
    bytes_max: usize,
}

trait Carried: Any + Send + Sync {
    fn encode(&self) -> serde_json::Result<Vec<u8>>;
}

impl<T: Serialize + Any + Send + Sync> Carried for T {
    fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

impl Value {
    /// A request whose JSON has at most `bytes_max`: what could be too large for the bus goes as JSON and is refused where it is.
    pub fn new(request: impl Serialize + Any + Send + Sync, bytes_max: usize) -> Self {
        Self {
            carried: Arc::new(request),
            bytes_max,
        }
    }

    /// As it goes over the bus.
    pub(crate) fn encode(&self) -> serde_json::Result<Bytes> {
        self.carried.encode().map(Bytes::from)
    }

    /// Whether it may be sent over a bus that takes `payload_max` bytes, for certain.
    pub(crate) fn surely_fits(&self, payload_max: usize) -> bool {
        self.bytes_max <= payload_max
    }

    pub(crate) fn is(&self, id: TypeId) -> bool {
        (*self.carried).type_id() == id
    }

    /// The request, if it is of this type.
    pub(crate) fn open<T: Any + Send + Sync + Clone>(self) -> Option<T> {
        let any: Arc<dyn Any + Send + Sync> = self.carried;
        any.downcast().ok().map(Arc::unwrap_or_clone)
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Value").finish_non_exhaustive()
    }
}

/// A request: a message, and what it says as a value where its body is left empty.
pub(crate) struct Request {
    pub(crate) message: Message,
    pub(crate) value: Option<Value>,
}

impl From<Message> for Request {
    fn from(message: Message) -> Self {
        Self {
            message,
            value: None,
        }
    }
}

/// Takes a request as if it had come over the bus.
pub(crate) type Take = Arc<dyn Fn(Request) -> BoxFuture<'static, ()> + Send + Sync>;

/// The short way to one function.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) take: Take,
    /// The type whose values it takes.
    pub(crate) takes: Option<TypeId>,
}

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
