//! Running a request on the mesh: looked up, joined, or generated; answered to whoever asks for it.
//!
//! Owns: the order of the steps. What others keep or run is asked first; who streams listens on `gen.run.<request id>`;
//! the completion is put into GENERATIONS before anybody hears it.
//!
//! Never: what a provider says.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use teamster_mesh::{
    Ctx, Mesh,
    config::Derived,
    connection::{Plain, Subscription},
};
use teamster_protocol::{
    Fault, RequestId, SessionId,
    function::router::{AbortReply, ChatRequest, Completion, Delta, DeltaKind, RunQuery},
    limits, subject,
};
use teamster_telemetry::task;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    config::Config,
    engine::{Engine, Stop},
    flight::{Entered, Flight, Flights, Takeoff},
    provider::Sink,
};

/// Joins of one request that are answered late at once; further ones hear a sign of life at once.
const JOINS_MAX: usize = 256;

/// The router's state: shared by all of its functions.
#[derive(Debug)]
pub(crate) struct Router {
    /// Made anew when the configuration changes; a generation that runs keeps the one that it began with.
    pub(crate) engine: Derived<Config, Engine>,
    pub(crate) flights: Arc<Flights>,
}

/// Ends a flight when its caller has cancelled the call, even if the call's future is dropped.
struct LeaveOnCancel {
    stop: Stop,
    cancel: CancellationToken,
}

impl Drop for LeaveOnCancel {
    fn drop(&mut self) {
        if self.cancel.is_cancelled() {
            self.stop.leave.cancel();
        }
    }
}

impl Router {
    /// Answers a request for a generation.
    pub(crate) async fn answer(
        self: Arc<Self>,
        ctx: Ctx,
        request: ChatRequest,
    ) -> Result<Completion, Fault> {
        let gone = || {
            Fault::internal(
                "router.lost",
                "the generation was lost inside of the router",
            )
        };
        let (mut flight, is_mine) = match self.flights.enter(&request.request_id) {
            Entered::Finished(completion) => return Ok(Arc::unwrap_or_clone(completion)),
            Entered::Running(flight) => (flight, false),
            Entered::New(takeoff) => {
                let flight = takeoff.flight().clone();
                let span = tracing::info_span!(
                    "generate",
                    otel.status_code = Empty,
                    error.type = Empty,
                    gen_ai.provider.name = request.model.split('/').next(),
                    gen_ai.request.model = request.model,
                    gen_ai.response.model = Empty,
                    teamster.provider.attempts = Empty,
                    session = request.session_id.as_ref().map(tracing::field::display),
                    request = %request.request_id,
                );
                task::spawn(
                    "generation",
                    fly(Arc::clone(&self), ctx.mesh.clone(), request, takeoff).instrument(span),
                );
                (flight, true)
            }
        };
        if !is_mine {
            return tokio::select! {
                landed = flight.landed() => landed.map(Arc::unwrap_or_clone).ok_or_else(gone),
                () = ctx.cancel.cancelled() => Err(Fault::busy("router.cancelled", "the call was cancelled")),
            };
        }
        let guard = LeaveOnCancel {
            stop: flight.stop().clone(),
            cancel: ctx.cancel.clone(),
        };
        let landed = tokio::select! {
            landed = flight.landed() => landed,
            () = ctx.cancel.cancelled() => {
                drop(guard);
                flight.landed().await
            }
        };
        landed.map(Arc::unwrap_or_clone).ok_or_else(gone)
    }

    /// Ends a generation wherever it runs; says whether it ran.
    pub(crate) async fn abort(&self, mesh: &Mesh, id: &RequestId) -> Result<AbortReply, Fault> {
        if let Some(flight) = self.flights.running(id) {
            flight.stop().abort.cancel();
            return Ok(AbortReply { aborted: true });
        }
        match mesh
            .request(
                subject::generation_run(id),
                query(RunQuery::Abort),
                limits::BROKER_REQUEST,
            )
            .await
        {
            Ok(body) => serde_json::from_slice(&body)
                .map_err(|error| Fault::internal("router.bad_answer", error)),
            Err(teamster_mesh::Error::NoResponders { .. }) => Ok(AbortReply { aborted: false }),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs a new request to its end.
async fn fly(router: Arc<Router>, mesh: Mesh, request: ChatRequest, takeoff: Takeoff) {
    let id = request.request_id.clone();
    if !request.is_first
        && let Some(completion) = elsewhere(&mesh, &id, takeoff.flight().stop()).await
    {
        takeoff.land(completion, true);
        return;
    }
    match mesh.subscribe(subject::generation_run(&id)).await {
        Ok(subscription) => {
            // A request that was made before may be asked about at any moment: whoever asks must find this router listening.
            if !request.is_first
                && let Err(error) = mesh.flush().await
            {
                tracing::debug!(%error, "who asks about a generation may not find it yet");
            }
            task::spawn(
                "answers about a generation",
                attend(mesh.clone(), subscription, takeoff.flight().clone()),
            );
        }
        // Without it the request cannot be joined from elsewhere, which costs money and not truth.
        Err(error) => tracing::warn!(%error, "a generation cannot be joined by others"),
    }
    let stop = takeoff.flight().stop().clone();
    let session = request.session_id.clone();
    let mut live = Live {
        mesh: mesh.clone(),
        session,
        request: id.clone(),
        index: 0,
    };
    let completion = router
        .engine
        .load()
        .generate(&request, &stop, &mut live)
        .await;
    record(&completion);
    tracing::info!(
        request = %id,
        model = completion.model,
        stop = ?completion.stop,
        tokens = completion.usage.total(),
        attempts = completion.attempts,
        "a generation is over"
    );
    // Who left did not end the request: it may be made again.
    let is_for_good = !stop.leave.is_cancelled() || stop.abort.is_cancelled();
    if is_for_good && let Err(error) = mesh.generations().put(&id, &completion).await {
        tracing::warn!(%error, "a completion could not be kept");
    }
    takeoff.land(completion, is_for_good);
}

/// What came of a generation, on its span.
fn record(completion: &Completion) {
    let span = Span::current();
    span.record("gen_ai.response.model", completion.model.as_str())
        .record("teamster.provider.attempts", completion.attempts);
    match &completion.error {
        None => span.record("otel.status_code", "OK"),
        Some(error) => span
            .record("otel.status_code", "ERROR")
            .record("error.type", error.kind.as_str()),
    };
}

/// What another router has made of a request, or is making of it.
async fn elsewhere(mesh: &Mesh, id: &RequestId, stop: &Stop) -> Option<Completion> {
    let deadline = Instant::now() + limits::GENERATION_MAX;
    let generations = mesh.generations();
    let ask = || {
        mesh.request(
            subject::generation_run(id),
            query(RunQuery::Join),
            limits::CALL_SILENCE_MAX,
        )
    };
    // Who streams it puts the answer before it stops listening: so a lookup after "nobody listens" misses nothing. At
    // first both are asked at once, since nearly always there is neither.
    let (kept, mut running) = tokio::join!(generations.get(id), ask());
    if let Ok(Some(completion)) = kept {
        return Some(completion);
    }
    let mut was_running = false;
    while Instant::now() < deadline {
        match running {
            Ok(body) if body.is_empty() => was_running = true,
            Ok(body) => return serde_json::from_slice(&body).ok(),
            Err(_) if was_running => return generations.get(id).await.ok().flatten(),
            Err(_) => return None,
        }
        running = tokio::select! {
            running = ask() => running,
            () = stop.leave.cancelled() => return None,
            () = stop.abort.cancelled() => {
                let _ = mesh.request(subject::generation_run(id), query(RunQuery::Abort), limits::BROKER_REQUEST).await;
                ask().await
            }
        };
    }
    None
}

/// Answers who asks about a running request, until it has landed.
async fn attend(mesh: Mesh, mut subscription: Subscription, mut flight: Flight) {
    let mut joins = JoinSet::new();
    loop {
        let flight_of_joins = flight.clone();
        tokio::select! {
            _ = flight.landed() => break,
            Some(_) = joins.join_next() => {}
            asked = subscription.next() => match asked {
                Some(plain) => attend_one(&mesh, &flight_of_joins, plain, &mut joins),
                None => break,
            },
        }
    }
    // What had arrived before the end still hears it.
    while let Some(Some(plain)) = subscription.next().now_or_never() {
        attend_one(&mesh, &flight, plain, &mut joins);
    }
    drop(subscription);
    while joins.join_next().await.is_some() {}
}

fn attend_one(mesh: &Mesh, flight: &Flight, plain: Plain, joins: &mut JoinSet<()>) {
    let Some(reply) = plain.reply else { return };
    let (mesh, mut flight) = (mesh.clone(), flight.clone());
    match serde_json::from_slice(&plain.body) {
        Ok(RunQuery::Abort) => {
            flight.stop().abort.cancel();
            joins.spawn(async move {
                let body = serde_json::to_vec(&AbortReply { aborted: true }).unwrap_or_default();
                publish(&mesh, reply, Bytes::from(body)).await;
            });
        }
        Ok(RunQuery::Join) => {
            let patience = if joins.len() < JOINS_MAX {
                limits::JOIN_SIGN
            } else {
                std::time::Duration::ZERO
            };
            joins.spawn(async move {
                let landed = timeout(patience, flight.landed()).await.ok().flatten();
                let body = landed.and_then(|completion| serde_json::to_vec(&*completion).ok());
                publish(&mesh, reply, Bytes::from(body.unwrap_or_default())).await;
            });
        }
        Err(error) => tracing::debug!(%error, "a question about a generation cannot be read"),
    }
}

async fn publish(mesh: &Mesh, reply: String, body: Bytes) {
    if let Err(error) = mesh.publish(reply, body).await {
        tracing::debug!(%error, "an answer about a generation was not sent");
    }
}

fn query(query: RunQuery) -> Bytes {
    // A unit variant is its quoted name.
    serde_json::to_vec(&query)
        .map(Bytes::from)
        .unwrap_or_default()
}

/// Publishes deltas on a session's LIVE subject, numbered from 0.
struct Live {
    mesh: Mesh,
    session: Option<SessionId>,
    request: RequestId,
    index: u64,
}

impl Sink for Live {
    async fn send(&mut self, delta: DeltaKind) {
        let Some(session) = &self.session else { return };
        let frame = Delta {
            request: self.request.clone(),
            index: self.index,
            delta,
        };
        self.index += 1;
        if let Err(error) = self.mesh.live().publish(session, &frame).await {
            tracing::debug!(%error, "a delta was not sent");
        }
    }
}
