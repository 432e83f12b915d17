//! The streams and buckets, ensured at start.

mod counts;
mod heal;
mod plan;

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    Error,
    connection::Mesh,
    pause::Pauses,
    wire::{Failure, Wire, code},
};

pub use counts::{absent, contradictory, lasting};

pub(crate) use counts::agree;
pub(crate) use plan::{
    BELL, BLOBS, CONFIG, CONTROL, EVENTS, FEED, GENERATIONS, HEADS, LIVE, REGISTRY, SNAP, TURNS,
    log_stream, log_stream_name,
};

/// How long a cluster may take to elect leaders and to place streams.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether streams are gone that may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The oldest server that has message schedules with atomic cancel.
const SERVER_OLDEST: (i64, i64) = (2, 14);

/// What of the topology is configuration.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Replicas of each stream and bucket: 1 on one node, 3 in a cluster.
    pub replicas: usize,
}

/// Why an object of the broker cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("the server is {found}; message schedules need {}.{} or newer: upgrade nats-server", SERVER_OLDEST.0, SERVER_OLDEST.1)]
    OldServer { found: String },
    #[error(
        "JetStream is not enabled: start nats-server with JetStream (`-js`), or enable it for this account"
    )]
    NoJetStream,
    #[error(
        "{object} is gone; restart with a copy of what the server stored, or restart the workers to begin with none"
    )]
    Gone { object: String },
    #[error(
        "{object} exists with {differences}; edit it to match, or remove it if it holds nothing that is needed"
    )]
    Differs { object: String, differences: String },
}

/// Ensures streams, buckets and consumers: creates what is missing, checks what is there, and fails with an error that
/// names the object and the difference where it cannot be used (another subject set, memory storage, an asynchronous
/// persist mode, an older server). Any number of processes may do so at once.
///
/// A single server forgets its streams in memory when it restarts. So the connection is kept, for as long as the process lives,
/// and the same is ensured again each time it was lost.
pub async fn ensure(mesh: &Mesh, topology: &Topology) -> Result<(), Error> {
    ensure_once(mesh.wire(), topology, true).await?;
    if mesh.begins_to_keep() {
        teamster_telemetry::task::spawn("topology", keep(mesh.clone(), topology.clone()));
    }
    Ok(())
}

/// Ensures everything again whenever the connection stands again after a loss, and what was lost of streams that may be lost
/// while it stood.
async fn keep(mesh: Mesh, topology: Topology) {
    let wire = mesh.wire();
    let mut link = wire.link.clone();
    let mut losses = link.borrow_and_update().losses;
    loop {
        let again = async {
            let now = link.wait_for(|link| link.is_up && link.losses != losses);
            now.await.map(|link| link.losses)
        };
        match tokio::time::timeout(LOOK_EVERY, again).await {
            Ok(Ok(now)) => losses = now,
            Ok(Err(_)) => return,
            Err(_) => {
                remake(wire, &topology).await;
                continue;
            }
        }
        // What holds what nothing else does was there: were it made anew, its loss would look as if nothing had been stored.
        if let Err(error) = ensure_once(wire, &topology, false).await {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, source, "what the broker must hold is not ensured after its restart");
        }
    }
}

/// Makes streams anew that hold nothing which cannot be lost, where they are gone. No other: that a log or a queue is gone must
/// not look as if it had been empty.
async fn remake(wire: &Wire, topology: &Topology) {
    for stream in plan::streams(topology.replicas) {
        let object = Object::stream(stream);
        if !plan::MAY_BE_LOST.contains(&object.name()) {
            continue;
        }
        let found = wire.api::<Info>(&object.info, &Value::Null).await;
        if !found.is_err_and(|failure| failure.number() == Some(code::STREAM_NOT_FOUND)) {
            continue;
        }
        let deadline = Instant::now() + teamster_protocol::limits::BROKER_REQUEST;
        match ensure_object(wire, &object, deadline).await {
            Ok(()) => tracing::warn!(
                code = "mesh.stream_lost",
                stream = object.name(),
                "a stream was gone and is made anew; what it held is lost, and its readers are told so"
            ),
            Err(error) => tracing::error!(
                code = "mesh.stream_lost",
                stream = object.name(),
                error = %teamster_telemetry::chain(&error),
                "a stream is gone and cannot be made anew; trying again"
            ),
        }
    }
}

async fn ensure_once(wire: &Wire, topology: &Topology, begins: bool) -> Result<(), Error> {
    let server = wire.client.server_info();
    if !wire
        .client
        .is_server_compatible(SERVER_OLDEST.0, SERVER_OLDEST.1, 0)
    {
        return Err(Error::Request {
            action: "checking the server's version".to_owned(),
            source: Box::new(Unusable::OldServer {
                found: server.version,
            }),
        });
    }
    if !server.jetstream {
        return Err(Error::Request {
            action: "checking that the server keeps streams".to_owned(),
            source: Box::new(Unusable::NoJetStream),
        });
    }
    let deadline = Instant::now() + PATIENCE;
    let lasting = plan::lasting();
    for stream in plan::streams(topology.replicas) {
        let mut object = Object::stream(stream);
        object.may_be_made = begins || !lasting.iter().any(|name| name == object.name());
        ensure_object(wire, &object, deadline).await?;
    }
    heal::heal(wire).await;
    let feeds = (0..teamster_protocol::limits::LOG_STREAMS).map(plan::feed);
    for consumer in plan::bells().into_iter().chain(feeds) {
        ensure_object(wire, &Object::consumer(&consumer), deadline).await?;
    }
    Ok(())
}

/// Ensures the consumer of log stream `k` from which notices are made.
pub(crate) async fn ensure_feed(wire: &Wire, k: u8) -> Result<(), Error> {
    let deadline = Instant::now() + teamster_protocol::limits::BROKER_REQUEST;
    ensure_object(wire, &Object::consumer(&plan::feed(k)), deadline).await
}

/// Ensures the doorbell consumer of one stream.
pub(crate) async fn ensure_bell(wire: &Wire, stream: &str) -> Result<(), Error> {
    let deadline = Instant::now() + teamster_protocol::limits::BROKER_REQUEST;
    for consumer in plan::bells() {
        if consumer.stream == stream {
            ensure_object(wire, &Object::consumer(&consumer), deadline).await?;
        }
    }
    Ok(())
}

/// A stream or a consumer, and how it is asked for.
struct Object {
    /// For people: `stream TURNS`.
    what: String,
    info: String,
    create: String,
    request: Value,
    /// The configuration that must be there.
    config: Value,
    /// Whether it is made where it is missing.
    may_be_made: bool,
}

/// The broker's answer about a stream or a consumer.
#[derive(Deserialize)]
struct Info {
    config: Value,
}

impl Object {
    /// The name of a stream.
    fn name(&self) -> &str {
        self.config
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn stream(config: Value) -> Self {
        let name = config
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        Self {
            what: format!("stream {name}"),
            info: format!("STREAM.INFO.{name}"),
            create: format!("STREAM.CREATE.{name}"),
            request: config.clone(),
            config,
            may_be_made: true,
        }
    }

    fn consumer(consumer: &plan::Durable) -> Self {
        let (stream, name) = (&consumer.stream, consumer.name);
        Self {
            what: format!("consumer {name} of stream {stream}"),
            info: format!("CONSUMER.INFO.{stream}.{name}"),
            create: format!("CONSUMER.CREATE.{stream}.{name}"),
            request: serde_json::json!({
                "stream_name": stream,
                "config": consumer.config.clone(),
                "action": "create",
            }),
            config: consumer.config.clone(),
            may_be_made: true,
        }
    }
}

/// Looks, creates what is missing, and looks again when somebody else was faster, until `deadline`.
async fn ensure_object(wire: &Wire, object: &Object, deadline: Instant) -> Result<(), Error> {
    let mut pauses = Pauses::new(Duration::from_millis(50), Duration::from_secs(1));
    loop {
        let failure = match try_ensure(wire, object).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(unusable)) => {
                return Err(Error::Request {
                    action: format!("checking the {}", object.what),
                    source: Box::new(unusable),
                });
            }
            Err(failure) => failure,
        };
        let pause = pauses.next();
        if !failure.is_passing() || Instant::now() + pause >= deadline {
            return Err(failure.during(format!("ensuring the {}", object.what)));
        }
        tracing::debug!(object = %object.what, error = %failure, "not yet");
        sleep(pause).await;
    }
}

async fn try_ensure(wire: &Wire, object: &Object) -> Result<Result<(), Unusable>, Failure> {
    match wire.api::<Info>(&object.info, &Value::Null).await {
        Ok(found) => match check(object, &found.config) {
            Err(_) if plan::CHANGED.contains(&object.name()) => {
                return change(wire, object, found.config).await;
            }
            checked => return Ok(checked),
        },
        Err(failure)
            if matches!(
                failure.number(),
                Some(code::STREAM_NOT_FOUND | code::CONSUMER_NOT_FOUND)
            ) => {}
        Err(failure) => return Err(failure),
    }
    if !object.may_be_made {
        return Ok(Err(Unusable::Gone {
            object: object.what.clone(),
        }));
    }
    match wire.api::<Info>(&object.create, &object.request).await {
        Ok(created) => Ok(check(object, &created.config)),
        // Somebody else created it in between: look again.
        Err(failure) if failure.number().is_some_and(plan::exists_already) => {
            Err(Failure::Unknown("somebody else creates it".to_owned()))
        }
        Err(failure) => Err(failure),
    }
}

/// Changes a stream that an earlier version made to what this one needs; what is the operator's business stays.
async fn change(
    wire: &Wire,
    object: &Object,
    found: Value,
) -> Result<Result<(), Unusable>, Failure> {
    let wanted = plan::changed(&object.config, found);
    let update = format!("STREAM.UPDATE.{}", object.name());
    let changed = wire.api::<Info>(&update, &wanted).await?;
    tracing::info!(object = %object.what, "a stream of an earlier version was changed");
    Ok(check(object, &changed.config))
}

fn check(object: &Object, found: &Value) -> Result<(), Unusable> {
    let differences = plan::differences(&object.config, found);
    if differences.is_empty() {
        Ok(())
    } else {
        Err(Unusable::Differs {
            object: object.what.clone(),
            differences: differences.join(", "),
        })
    }
}
