//! Calling a function, and asking what became of a call.

use std::{sync::Arc, time::Duration};

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Fault, FunctionId, header, limits, subject};
use tokio::time::{Instant, sleep_until};

use crate::{
    Error,
    connection::Call,
    denial::{Denials, Denied},
    error::OTHER_CREDENTIALS,
    mux::Replies,
    near::{self, Value},
    reply::{Reply, one_line},
    wire::{Failure, Link, Wire, deadline as deadline_of},
};

/// Answers to one call that wait to be taken: signs of life come once a second.
const ANSWERS_MAX: usize = 64;
/// How long workers that do not know a call are given to say so.
const UNKNOWN_AFTER: Duration = Duration::from_millis(300);

/// What is asked of the workers of a namespace about one of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Query {
    /// Answer with the outcome: now, or when the call ends.
    Join,
    /// End the call.
    Cancel,
}

/// The body of a request on `call.<namespace>.<call id>`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct About {
    /// What is asked.
    pub(crate) query: Query,
}

/// Calls a function and waits for the answer. A callee that `is_registered` gives signs of life; any other may be silent.
pub(crate) async fn call(wire: &Wire, call: Call, is_registered: bool) -> Result<Bytes, Fault> {
    let subject = match &call.principal {
        None => subject::function(&call.function),
        Some(principal) => subject::operator(principal.as_str(), &call.function),
    };
    let deadline = deadline_of(call.timeout);
    let headers = headers(&call)?;
    let mut replies = wire.mux.open(ANSWERS_MAX);
    let mut watch = Watch::new(wire, deadline, &subject);
    let body = match call.value {
        Some(value) => Body::Value(value),
        None => Body::Bytes(call.body),
    };
    send(wire, subject, &replies, headers, body, deadline).await?;
    if is_registered {
        watch.expect_a_sign();
    }
    loop {
        match watch.next(&mut replies).await {
            Seen::Reply(Reply::Running) => {}
            Seen::Reply(Reply::Final(outcome)) => return outcome,
            Seen::Reply(Reply::Nobody | Reply::Unknown) => {
                return Err(Fault::gone(
                    "mesh.no_responders",
                    format_args!("no worker serves {} now", call.function),
                ));
            }
            Seen::Silence => {
                return Err(Fault::gone(
                    "mesh.callee_lost",
                    format_args!(
                        "the worker that ran {} is gone; whether the call took effect is unknown",
                        call.function
                    ),
                ));
            }
            Seen::Denied(denied) => return Err(not_allowed(&call.function, &denied)),
            Seen::Deadline => {
                return Err(Fault::busy(
                    "mesh.timeout",
                    format_args!(
                        "{} gave no answer within {} ms",
                        call.function,
                        call.timeout.as_millis()
                    ),
                ));
            }
        }
    }
}

/// Asks the workers of a call's namespace what became of it. `instances` is how many of them are known to live, if that is
/// known.
pub(crate) async fn outcome(
    wire: &Wire,
    function: &FunctionId,
    call: &str,
    timeout: Duration,
    instances: Option<usize>,
) -> Result<Option<Result<Bytes, Fault>>, Error> {
    let deadline = deadline_of(timeout);
    let subject = subject::call(function.namespace(), call);
    let action = || format!("asking for the outcome of a call of {function}");
    let mut replies = wire.mux.open(ANSWERS_MAX);
    let mut watch = Watch::new(wire, deadline.min(Instant::now() + UNKNOWN_AFTER), &subject);
    let body = Body::Bytes(about(Query::Join));
    send(wire, subject, &replies, HeaderMap::new(), body, deadline)
        .await
        .map_err(|fault| Error::Request {
            action: action(),
            source: Box::new(fault),
        })?;
    let mut unknown = 0;
    loop {
        match watch.next(&mut replies).await {
            Seen::Reply(Reply::Running) => watch.deadline = deadline,
            Seen::Reply(Reply::Final(outcome)) => return Ok(Some(outcome)),
            // Silence: whoever ran it is gone, and its memory with it.
            Seen::Reply(Reply::Nobody) | Seen::Silence => return Ok(None),
            Seen::Reply(Reply::Unknown) => {
                unknown += 1;
                if instances.is_some_and(|instances| unknown >= instances.max(1)) {
                    return Ok(None);
                }
            }
            Seen::Denied(denied) => return Err(Failure::Denied(denied).during(action())),
            Seen::Deadline if unknown > 0 => return Ok(None),
            Seen::Deadline if watch.deadline < deadline => watch.deadline = deadline,
            Seen::Deadline => return Err(Error::Timeout { action: action() }),
        }
    }
}

/// Tells whoever runs a call to end it.
pub(crate) async fn cancel(wire: &Wire, function: &FunctionId, call: &str) {
    let subject = subject::call(function.namespace(), call);
    if let Err(error) = wire.tell(subject, None, about(Query::Cancel)).await {
        tracing::warn!(%function, call, %error, "a call could not be cancelled");
    }
}

fn about(query: Query) -> Bytes {
    serde_json::to_vec(&About { query })
        .unwrap_or_default()
        .into()
}

fn headers(call: &Call) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(header::TIMEOUT_MS, call.timeout.as_millis().to_string());
    if let Some(ms) = call.not_after_ms {
        headers.insert(header::NOT_AFTER_MS, ms.to_string());
    }
    if let Some(id) = &call.call {
        headers.insert(header::CALL, one_line(id));
    }
    if let Some(session) = &call.session {
        headers.insert(header::SESSION, session.token());
    }
    if let Some(workspace) = &call.workspace {
        if workspace.contains(char::is_control) {
            return Err(Fault::caller(
                "mesh.bad_request",
                "the workspace's path holds control characters",
            ));
        }
        headers.insert(header::WORKSPACE, workspace.as_str());
    }
    if let Some(functions) = &call.functions {
        let json = serde_json::to_string(functions)
            .map_err(|error| Fault::internal("mesh.bad_request", error))?;
        headers.insert(header::FUNCTIONS, json);
    }
    crate::trace::inject(&mut headers, call.trace.as_deref());
    Ok(headers)
}

/// What a request says.
enum Body {
    Bytes(Bytes),
    Value(Value),
}

async fn send(
    wire: &Wire,
    subject: String,
    replies: &Replies,
    headers: HeaderMap,
    body: Body,
    deadline: Instant,
) -> Result<(), Fault> {
    let payload_max = wire.client.max_payload().min(limits::PAYLOAD_BYTES_MAX);
    let inbox = replies.inbox.clone();
    let door = wire
        .vicinity
        .as_ref()
        .and_then(|vicinity| vicinity.door(&subject));
    let body = match (body, &door) {
        (Body::Bytes(body), _) => body,
        (Body::Value(value), Some(door))
            if value.surely_fits(payload_max) && door.takes.is_some_and(|id| value.is(id)) =>
        {
            let message = near::message(&subject, Some(&inbox), Some(headers), Bytes::new());
            (door.take)(near::Request {
                message,
                value: Some(value),
            })
            .await;
            return Ok(());
        }
        (Body::Value(value), _) => value
            .encode()
            .map_err(|error| Fault::caller("mesh.bad_request", error))?,
    };
    if body.len() > payload_max {
        return Err(Fault::caller(
            "mesh.too_large",
            format_args!(
                "the request has {} bytes; {payload_max} are allowed",
                body.len()
            ),
        ));
    }
    if let Some(door) = door {
        let message = near::message(&subject, Some(&inbox), Some(headers), body);
        (door.take)(message.into()).await;
        return Ok(());
    }
    let send = wire
        .client
        .publish_with_reply_and_headers(subject, inbox, headers, body);
    match tokio::time::timeout_at(deadline, send).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Fault::caller("mesh.unsendable", error)),
        Err(_) => Err(Fault::busy("mesh.timeout", "the broker cannot be reached")),
    }
}

fn not_allowed(function: &FunctionId, denied: &Denied) -> Fault {
    let message = format!("calling {function} is not allowed: {denied}");
    Fault::internal("mesh.credentials", message).hint(OTHER_CREDENTIALS)
}

/// What a caller sees next.
enum Seen {
    Reply(Reply),
    /// A callee that had shown life shows none any more.
    Silence,
    /// The broker does not let this connection ask, or hear the answer.
    Denied(Denied),
    /// The time is over.
    Deadline,
}

/// Watches over the answers to one request: a callee that was heard, or whose answer may have been lost with the connection,
/// must be heard again within `CALL_SILENCE_MAX`. So must one that is registered, from the request on: it may have died
/// before its first sign. One that is not (a plain NATS worker) has until the deadline.
struct Watch {
    denials: Arc<Denials>,
    /// What is asked, and what was denied before.
    subject: String,
    denied_before: u64,
    link: tokio::sync::watch::Receiver<Link>,
    /// Losses of the connection before the request was sent.
    losses: u64,
    silence: Option<Instant>,
    deadline: Instant,
}

impl Watch {
    fn new(wire: &Wire, deadline: Instant, subject: &str) -> Self {
        let mut link = wire.link.clone();
        let Link {
            losses, denials, ..
        } = *link.borrow_and_update();
        Self {
            denials: Arc::clone(&wire.denials),
            subject: subject.to_owned(),
            denied_before: denials,
            link,
            losses,
            silence: None,
            deadline,
        }
    }

    fn expect_a_sign(&mut self) {
        self.silence = Some(Instant::now() + limits::CALL_SILENCE_MAX);
    }

    async fn next(&mut self, replies: &mut Replies) -> Seen {
        loop {
            if self.link.borrow().denials > 0
                && let Some(denied) = self.denials.of(&self.subject, self.denied_before)
            {
                return Seen::Denied(denied);
            }
            let until = self
                .silence
                .map_or(self.deadline, |silence| silence.min(self.deadline));
            tokio::select! {
                biased;
                Some(message) = replies.messages.recv() => {
                    let reply = Reply::read(message);
                    if reply == Reply::Running {
                        self.expect_a_sign();
                    }
                    return Seen::Reply(reply);
                }
                Ok(()) = self.link.changed() => {
                    let link = *self.link.borrow_and_update();
                    if link.losses != self.losses {
                        self.silence = link.is_up.then(|| Instant::now() + limits::CALL_SILENCE_MAX);
                    }
                }
                () = sleep_until(until) => {
                    return if until >= self.deadline { Seen::Deadline } else { Seen::Silence };
                }
            }
        }
    }
}
