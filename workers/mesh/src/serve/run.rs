//! Serving one request: from a message to its answer.

use std::{sync::Arc, time::Duration};

use async_nats::Message;
use bytes::Bytes;
use teamster_protocol::{Fault, limits};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::JoinHandle,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, field::Empty};

use super::{
    Endpoint, Shared,
    memory::{Entered, Known, Outcome, Pending},
    request::{self, Said},
};
use crate::{Ctx, near::Request, reply::Reply, rfc3339, trace};

/// Takes a request or refuses it; never waits for its handler.
pub(super) async fn accept(shared: &Arc<Shared>, endpoint: &Arc<Endpoint>, request: Request) {
    let slots = Arc::clone(&shared.slots);
    if let Ok(slot) = slots.try_acquire_owned() {
        let work = serve(Arc::clone(shared), Arc::clone(endpoint), request, slot);
        shared.running.spawn(work);
    } else {
        let fault = Fault::busy("mesh.busy", "the worker serves as many calls as it may")
            .retry_after_ms(250);
        endpoint.stats.count(Duration::ZERO, Some(&fault));
        answer(shared, request.message.reply, Reply::Final(Err(fault))).await;
    }
}

async fn serve(
    shared: Arc<Shared>,
    endpoint: Arc<Endpoint>,
    request: Request,
    slot: OwnedSemaphorePermit,
) {
    let began = Instant::now();
    let message = &request.message;
    let reply = message.reply.clone();
    if !is_asked(message) {
        tracing::warn!(subject = %message.subject, "a message that asks for no answer was passed by");
        return;
    }
    let outcome = match request::read(&message.subject, message.headers.as_ref()) {
        Ok(said) => outcome(&shared, &endpoint, request, said, slot).await,
        Err(fault) => Err(fault),
    };
    endpoint
        .stats
        .count(began.elapsed(), outcome.as_ref().err());
    answer(&shared, reply, Reply::Final(outcome)).await;
}

/// Whether somebody asks: a request names an inbox. What the broker sends on by itself (the content of a stream to whatever
/// subject a reader names) does not, so that nobody reaches a function in the name of another by it.
fn is_asked(message: &Message) -> bool {
    let reply = message.reply.as_ref();
    reply.is_some_and(|reply| reply.starts_with("_INBOX."))
}

/// What the request comes to: from memory, from the run that is under way, or from a run of its own.
async fn outcome(
    shared: &Arc<Shared>,
    endpoint: &Arc<Endpoint>,
    request: Request,
    said: Said,
    slot: OwnedSemaphorePermit,
) -> Outcome {
    let message = &request.message;
    if message.payload.len() > limits::PAYLOAD_BYTES_MAX {
        return Err(Fault::caller(
            "mesh.too_large",
            format_args!(
                "the request has {} bytes; {} are allowed",
                message.payload.len(),
                limits::PAYLOAD_BYTES_MAX
            ),
        ));
    }
    let is_late = said
        .not_after_ms
        .is_some_and(|not_after| rfc3339::now_ms() > not_after);
    let cancel = shared.kill.child_token();
    let Some(call) = &said.call else {
        if is_late {
            return Err(too_late(endpoint));
        }
        return run(shared, endpoint, request, said, cancel, slot).await;
    };
    let function = &endpoint.function.contract.id;
    let entered = {
        let mut memory = shared.memory();
        let now = Instant::now();
        if is_late && matches!(memory.ask(call, now), Known::Nothing) {
            return Err(too_late(endpoint));
        }
        memory.enter(call, function, &cancel, now)
    };
    match entered {
        Entered::Ended(outcome) => outcome,
        Entered::Foreign => Err(Fault::caller(
            "mesh.call_id_reused",
            format_args!("the call id {call} belongs to a call of another function"),
        )),
        Entered::Running(pending) => {
            drop(slot);
            join(shared, message.reply.as_ref(), pending).await
        }
        Entered::New => {
            let call = call.clone();
            let outcome = run(shared, endpoint, request, said, cancel, slot).await;
            shared.memory().end(&call, outcome.clone(), Instant::now());
            outcome
        }
    }
}

fn too_late(endpoint: &Endpoint) -> Fault {
    Fault::gone(
        "mesh.too_late",
        format_args!(
            "the call of {} came too late and was not begun",
            endpoint.function.contract.id
        ),
    )
}

/// Runs the handler below a span of its own, which ends with the outcome, whatever that is.
async fn run(
    shared: &Arc<Shared>,
    endpoint: &Arc<Endpoint>,
    request: Request,
    said: Said,
    cancel: CancellationToken,
    slot: OwnedSemaphorePermit,
) -> Outcome {
    let span = tracing::info_span!(
        "serve",
        otel.kind = "server",
        otel.status_code = Empty,
        error.type = Empty,
        function = %endpoint.function.contract.id,
        session = said.session.as_ref().map(tracing::field::display),
        call = said.call,
    );
    trace::extract(request.message.headers.as_ref(), &span);
    let outcome = handle(shared, endpoint, request, said, cancel, slot, span.clone()).await;
    match &outcome {
        Ok(_) => span.record("otel.status_code", "OK"),
        Err(fault) => span
            .record("otel.status_code", "ERROR")
            .record("error.type", fault.code.as_str()),
    };
    let code = outcome.as_ref().err().map(|fault| fault.code.as_str());
    span.in_scope(|| tracing::debug!(code, "a call has ended"));
    outcome
}

/// Runs the handler in a task of its own, so that neither its panic nor its blocking reaches anybody else, and says meanwhile
/// that it runs.
async fn handle(
    shared: &Arc<Shared>,
    endpoint: &Arc<Endpoint>,
    request: Request,
    said: Said,
    cancel: CancellationToken,
    slot: OwnedSemaphorePermit,
    span: Span,
) -> Outcome {
    let contract = &endpoint.function.contract;
    let allowed = contract.timeout();
    let timeout = said.timeout.map_or(allowed, |timeout| timeout.min(allowed));
    let deadline = Instant::now() + timeout;
    let ctx = Ctx {
        mesh: shared.mesh.clone(),
        function: contract.id.clone(),
        call: said.call,
        session: said.session,
        workspace: said.workspace,
        principal: said.principal,
        functions: said.functions,
        deadline,
        cancel: cancel.clone(),
    };
    let Request { message, value } = request;
    let answer = match (value, &endpoint.function.near) {
        (Some(value), Some(near)) => (near.handler)(ctx, value),
        _ => (endpoint.function.handler)(ctx, message.payload),
    };
    let mut handling = teamster_telemetry::task::spawn("call", answer.instrument(span));
    let mut signs = signs_of_life();
    loop {
        tokio::select! {
            biased;
            ended = &mut handling => return fitting(shared, endpoint, ended),
            () = sleep_until(deadline) => {
                cancel.cancel();
                shared.running.spawn(give_up_after_grace(handling, slot));
                return Err(Fault::busy("mesh.timeout", format_args!(
                    "{} did not end within {} ms", contract.id, timeout.as_millis()
                )));
            }
            () = cancel.cancelled() => break,
            _ = signs.tick() => sign(shared, message.reply.as_ref()).await,
        }
    }
    // Cancelled: what the handler says of itself within the grace counts.
    let grace = tokio::time::timeout(limits::CALL_CANCEL_GRACE, &mut handling);
    if let Ok(ended) = grace.await {
        return fitting(shared, endpoint, ended);
    }
    handling.abort();
    Err(Fault::gone(
        "mesh.cancelled",
        format_args!("the call of {} was cancelled", contract.id),
    ))
}

/// A handler that goes on after its time keeps its slot until it ends, at most for the grace.
async fn give_up_after_grace(mut handling: JoinHandle<Outcome>, slot: OwnedSemaphorePermit) {
    if tokio::time::timeout(limits::CALL_CANCEL_GRACE, &mut handling)
        .await
        .is_err()
    {
        handling.abort();
    }
    drop(slot);
}

/// The handler's outcome, if it can be sent; a panic is the fault `mesh.panic`.
fn fitting(
    shared: &Shared,
    endpoint: &Endpoint,
    ended: Result<Outcome, tokio::task::JoinError>,
) -> Outcome {
    let id = &endpoint.function.contract.id;
    match ended {
        Ok(Ok(body)) => {
            let client = &shared.mesh.wire().client;
            let bytes_max = client.max_payload().min(limits::PAYLOAD_BYTES_MAX);
            if body.len() <= bytes_max {
                return Ok(body);
            }
            Err(Fault::internal(
                "mesh.reply_too_large",
                format_args!(
                    "the reply of {id} has {} bytes; {bytes_max} are allowed",
                    body.len()
                ),
            ))
        }
        Ok(Err(fault)) => Err(fault),
        Err(error) if error.is_panic() => {
            tracing::error!(function = %id, "a handler panicked");
            Err(Fault::internal(
                "mesh.panic",
                format_args!("{id} failed unexpectedly"),
            ))
        }
        Err(_) => Err(Fault::gone(
            "mesh.cancelled",
            format_args!("the call of {id} was cancelled"),
        )),
    }
}

/// Waits for the outcome of a call that runs, and says meanwhile that it does.
pub(super) async fn join(
    shared: &Shared,
    reply: Option<&async_nats::Subject>,
    mut pending: Pending,
) -> Outcome {
    let mut signs = signs_of_life();
    loop {
        if let Some(outcome) = pending.borrow_and_update().clone() {
            return outcome;
        }
        tokio::select! {
            changed = pending.changed() => if changed.is_err() {
                return Err(Fault::gone("mesh.callee_lost", "the call ended without an outcome"));
            },
            _ = signs.tick() => sign(shared, reply).await,
        }
    }
}

fn signs_of_life() -> Interval {
    let every = limits::CALL_PROGRESS_EVERY;
    let mut signs = interval_at(Instant::now() + every, every);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    signs
}

async fn sign(shared: &Shared, reply: Option<&async_nats::Subject>) {
    answer(shared, reply.cloned(), Reply::Running).await;
}

pub(super) async fn answer(shared: &Shared, to: Option<async_nats::Subject>, reply: Reply) {
    let Some(to) = to else { return };
    let (headers, body): (_, Bytes) = reply.write();
    let wire = shared.mesh.wire();
    let left = match &wire.vicinity {
        Some(vicinity) => vicinity.near.answer(&to, headers, body),
        None => Err((headers, body)),
    };
    let Err((headers, body)) = left else { return };
    if let Err(failure) = wire.tell(to.to_string(), headers, body).await {
        tracing::warn!(error = %failure, "an answer could not be sent");
    }
}
