//! The answers of a NATS micro service (ADR-32), so that plain NATS tools find and inspect workers.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, Subscriber};
use futures::{StreamExt as _, stream::select_all};
use serde::Serialize;
use teamster_protocol::{Contract, Fault};

/// The queue group in which the instances of a worker share their requests.
pub(super) const QUEUE: &str = "q";

/// What one endpoint has done.
#[derive(Default)]
pub(super) struct Stats {
    requests: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
    last_error: Mutex<String>,
}

impl Stats {
    /// Counts one request that was answered.
    pub(super) fn count(&self, took: Duration, fault: Option<&Fault>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(fault) = fault {
            self.errors.fetch_add(1, Ordering::Relaxed);
            *self
                .last_error
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = fault.to_string();
        }
    }
}

/// A worker as a micro service.
pub(super) struct Service {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) version: String,
    pub(super) description: String,
    /// RFC 3339.
    pub(super) started: String,
    pub(super) endpoints: Vec<std::sync::Arc<super::Endpoint>>,
}

#[derive(Serialize)]
struct Answer<'a> {
    r#type: &'static str,
    name: &'a str,
    id: &'a str,
    version: &'a str,
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoints: Option<Vec<serde_json::Value>>,
}

impl Service {
    /// The answer to a verb: `PING`, `INFO` or `STATS`.
    pub(super) fn answer(&self, verb: &str) -> Option<Vec<u8>> {
        let mut answer = Answer {
            r#type: "io.nats.micro.v1.ping_response",
            name: &self.name,
            id: &self.id,
            version: &self.version,
            metadata: BTreeMap::from([("harness".to_owned(), "teamster".to_owned())]),
            description: None,
            started: None,
            endpoints: None,
        };
        match verb {
            "PING" => {}
            "INFO" => {
                answer.r#type = "io.nats.micro.v1.info_response";
                answer.description = Some(&self.description);
                answer.endpoints = Some(self.endpoints.iter().map(|e| info(e)).collect());
            }
            "STATS" => {
                answer.r#type = "io.nats.micro.v1.stats_response";
                answer.started = Some(&self.started);
                answer.endpoints = Some(self.endpoints.iter().map(|e| stats(e)).collect());
            }
            _ => return None,
        }
        serde_json::to_vec(&answer).ok()
    }

    /// The subjects to answer on.
    pub(super) fn subjects(&self) -> Vec<String> {
        ["PING", "INFO", "STATS"]
            .into_iter()
            .flat_map(|verb| {
                [
                    format!("$SRV.{verb}"),
                    format!("$SRV.{verb}.{}", self.name),
                    format!("$SRV.{verb}.{}.{}", self.name, self.id),
                ]
            })
            .collect()
    }

    /// Answers until the subscriptions end.
    pub(super) async fn run(self, client: Client, questions: Vec<Subscriber>) {
        let mut questions = select_all(questions);
        while let Some(question) = questions.next().await {
            let verb = question.subject.split('.').nth(1).unwrap_or_default();
            if let (Some(reply), Some(answer)) = (question.reply.clone(), self.answer(verb))
                && let Err(error) = client.publish(reply, answer.into()).await
            {
                tracing::debug!(%error, "a question about this service stays unanswered");
            }
        }
    }
}

/// A function id as an endpoint's name, which has no colons.
fn endpoint_name(contract: &Contract) -> String {
    contract.id.as_str().replace("::", "-")
}

fn info(endpoint: &super::Endpoint) -> serde_json::Value {
    serde_json::json!({
        "name": endpoint_name(&endpoint.function.contract),
        "subject": endpoint.subject,
        "queue_group": QUEUE,
        "metadata": metadata(&endpoint.function.contract),
    })
}

fn stats(endpoint: &super::Endpoint) -> serde_json::Value {
    let stats = &endpoint.stats;
    let requests = stats.requests.load(Ordering::Relaxed);
    let nanos = stats.nanos.load(Ordering::Relaxed);
    let last_error = stats
        .last_error
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let mut figures = serde_json::json!({
        "name": endpoint_name(&endpoint.function.contract),
        "subject": endpoint.subject,
        "queue_group": QUEUE,
        "num_requests": requests,
        "num_errors": stats.errors.load(Ordering::Relaxed),
        "last_error": last_error,
        "processing_time": nanos,
        "average_processing_time": nanos.checked_div(requests).unwrap_or(0),
    });
    if let (Some(tell), Some(figures)) = (&endpoint.tell, figures.as_object_mut()) {
        figures.insert("data".to_owned(), tell());
    }
    figures
}

/// A contract's fields as texts; the schemas as JSON.
fn metadata(contract: &Contract) -> BTreeMap<String, String> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(contract) else {
        return BTreeMap::new();
    };
    fields
        .into_iter()
        .map(|(name, value)| match value {
            serde_json::Value::String(text) => (name, text),
            other => (name, other.to_string()),
        })
        .collect()
}
