//! What a worker's process says of itself as a NATS micro service (ADR-32): whether it answers, how fast, and its figures.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use teamster_mesh::Mesh;
use teamster_protocol::registry;
use tokio::time::Instant;

/// How long a process may take to answer before it counts as silent.
const ANSWER: Duration = Duration::from_secs(2);

/// How one process is.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Health {
    /// Which life of the worker it is.
    pub(in crate::cli) incarnation: String,
    /// How long its answer took, in milliseconds; none where it does not answer.
    pub(in crate::cli) ping_ms: Option<f64>,
    /// When it began, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) started: Option<String>,
    /// Calls that it answered.
    pub(in crate::cli) requests: u64,
    /// Calls among them that ended in a fault.
    pub(in crate::cli) errors: u64,
    /// Its endpoints' figures, by name.
    pub(in crate::cli) endpoints: BTreeMap<String, Figures>,
}

/// What one endpoint did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in crate::cli) struct Figures {
    /// Calls that it answered.
    pub(in crate::cli) requests: u64,
    /// Calls among them that ended in a fault.
    pub(in crate::cli) errors: u64,
    /// Time that they took together, in nanoseconds.
    pub(in crate::cli) nanos: u64,
    /// The last fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) last_error: Option<String>,
}

/// The part of a STATS answer that is read.
#[derive(Debug, Deserialize)]
struct Stats {
    started: Option<String>,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    name: String,
    #[serde(default)]
    num_requests: u64,
    #[serde(default)]
    num_errors: u64,
    #[serde(default)]
    processing_time: u64,
    #[serde(default)]
    last_error: Option<String>,
}

impl Health {
    /// The time of the answer in words.
    pub(in crate::cli) fn ping(&self) -> String {
        self.ping_ms
            .map_or_else(|| "late".to_owned(), |ms| format!("{ms:.1} ms"))
    }

    /// Milliseconds that a call took on average.
    pub(in crate::cli) fn average_ms(&self) -> Option<f64> {
        let mut sum = Figures::default();
        self.endpoints.values().for_each(|figures| sum.add(figures));
        sum.average_ms()
    }
}

impl Figures {
    /// Adds what another did.
    pub(in crate::cli) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.nanos = self.nanos.saturating_add(other.nanos);
        if other.last_error.is_some() {
            self.last_error.clone_from(&other.last_error);
        }
    }

    /// Milliseconds that a call took on average; none without calls.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a figure for people; two decimals of it are shown"
    )]
    pub(in crate::cli) fn average_ms(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.nanos as f64 / self.requests as f64 / 1e6)
    }
}

/// Asks all of a worker's processes at once.
pub(in crate::cli) async fn health(mesh: &Mesh, processes: &[&registry::Worker]) -> Vec<Health> {
    futures::future::join_all(processes.iter().map(|worker| ask(mesh, worker))).await
}

async fn ask(mesh: &Mesh, worker: &registry::Worker) -> Health {
    let subject = |verb: &str| format!("$SRV.{verb}.{}.{}", worker.name, worker.incarnation);
    let began = Instant::now();
    let ping = mesh.request(subject("PING"), Bytes::new(), ANSWER).await;
    let ping_ms = ping.is_ok().then(|| began.elapsed().as_secs_f64() * 1e3);
    let stats = if ping_ms.is_some() {
        mesh.request(subject("STATS"), Bytes::new(), ANSWER)
            .await
            .ok()
            .and_then(|body| serde_json::from_slice::<Stats>(&body).ok())
    } else {
        None
    };
    let (started, endpoints) =
        stats.map_or((None, Vec::new()), |stats| (stats.started, stats.endpoints));
    let endpoints: BTreeMap<String, Figures> = endpoints.into_iter().map(figures).collect();
    Health {
        incarnation: worker.incarnation.to_string(),
        ping_ms,
        started,
        requests: endpoints.values().map(|figures| figures.requests).sum(),
        errors: endpoints.values().map(|figures| figures.errors).sum(),
        endpoints,
    }
}

fn figures(endpoint: Endpoint) -> (String, Figures) {
    let figures = Figures {
        requests: endpoint.num_requests,
        errors: endpoint.num_errors,
        nanos: endpoint.processing_time,
        last_error: endpoint.last_error.filter(|error| !error.is_empty()),
    };
    (endpoint.name, figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_library_is_read() {
        // As nats-py sends it: floats nowhere, fields that are not ours, no last error.
        let stats: Stats = serde_json::from_str(
            r#"{"type":"io.nats.micro.v1.stats_response","name":"weather","id":"X","version":"1.0.0","metadata":{},
               "started":"2026-01-01T00:00:00Z","endpoints":[{"name":"weather-today","subject":"fn.weather.today",
               "queue_group":"q","num_requests":4,"num_errors":1,"last_error":"","processing_time":8000000,
               "average_processing_time":2000000,"data":{}}]}"#,
        )
        .expect("read");
        let (name, figures) = stats
            .endpoints
            .into_iter()
            .map(figures)
            .next()
            .expect("one");
        assert_eq!(name, "weather-today");
        assert_eq!(figures.last_error, None);
        let average = figures.average_ms().expect("calls");
        assert!((average - 2.0).abs() < 1e-9);
        assert_eq!(Figures::default().average_ms(), None);
    }
}
