//! What the processes of a worker made of a change: each takes or refuses it by itself, and each is asked.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use teamster_protocol::{registry, text};
use tokio::time::Instant;

use crate::{
    cli::{exit::Exit, failure::Failure},
    client::Client,
    config::{
        explain::{Layer, Refusal, Told},
        section::Kind,
    },
};

/// How long a process may take to say that it has seen a change.
const SEEN_MAX: Duration = Duration::from_secs(5);
/// How long a process may take to answer at all.
const ANSWER: Duration = Duration::from_secs(2);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What one process made of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Made {
    /// It is in force there.
    Taken,
    /// It keeps its last good values.
    Refused(String),
    /// It is registered and does not answer, or has not seen the change in time.
    Silent,
}

/// What all processes of a worker made of a change; the process's incarnation with each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Taken(Vec<(String, Made)>);

/// The part of a STATS answer that is read.
#[derive(Debug, Deserialize)]
struct Stats {
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    name: String,
    #[serde(default)]
    data: Value,
}

/// Waits until each process of the section's worker has said what it made of a revision. Bounded.
pub(super) async fn wait(client: &Client, kind: &Kind, revision: u64) -> Result<Taken, Failure> {
    let until = Instant::now() + SEEN_MAX;
    let catalog = client.catalog().await?;
    let made = processes(&catalog.workers, kind).map(|worker| async move {
        let made = made(client, worker, revision, until).await;
        (worker.incarnation.to_string(), made)
    });
    Ok(Taken(futures::future::join_all(made).await))
}

/// What all processes of the section's worker refused since the last good change.
pub(super) async fn refusals(client: &Client, kind: &Kind) -> Vec<Refusal> {
    let Ok(catalog) = client.catalog().await else {
        return Vec::new();
    };
    let told = processes(&catalog.workers, kind).map(|worker| told(client, worker));
    let told = futures::future::join_all(told).await;
    told.into_iter()
        .flatten()
        .flat_map(|told| told.refusals)
        .collect()
}

fn processes<'a>(
    workers: &'a [Arc<registry::Worker>],
    kind: &'a Kind,
) -> impl Iterator<Item = &'a registry::Worker> {
    workers
        .iter()
        .map(AsRef::as_ref)
        .filter(|worker: &&registry::Worker| worker.name.as_str() == kind.name)
}

async fn made(client: &Client, worker: &registry::Worker, revision: u64, until: Instant) -> Made {
    loop {
        let Some(told) = told(client, worker).await else {
            return Made::Silent;
        };
        if told.seen.is_some_and(|seen| seen >= revision) {
            let of = |refusal: &Refusal| matches!(&refusal.layer, Layer::Live(layer) if layer.revision == revision);
            let refusal = told.refusals.into_iter().find(of);
            return refusal.map_or(Made::Taken, |refusal| Made::Refused(refusal.problem));
        }
        if Instant::now() >= until {
            return Made::Silent;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a process says of its section; `None` where it does not answer.
async fn told(client: &Client, worker: &registry::Worker) -> Option<Told> {
    let subject = format!("$SRV.STATS.{}.{}", worker.name, worker.incarnation);
    let answer = client.mesh().request(subject, Bytes::new(), ANSWER).await;
    read(&answer.ok()?, worker.name.as_str())
}

fn read(answer: &[u8], worker: &str) -> Option<Told> {
    let stats: Stats = serde_json::from_slice(answer).ok()?;
    let name = format!("{worker}-config");
    let mut endpoints = stats.endpoints.into_iter();
    let endpoint = endpoints.find(|endpoint| endpoint.name == name)?;
    serde_json::from_value(endpoint.data).ok()
}

impl Taken {
    /// Whether the change is in force somewhere.
    pub(super) fn is_in_force(&self) -> bool {
        self.0.iter().any(|(_, made)| *made == Made::Taken)
    }

    /// A refusal is a failure. `key` is what to take away then.
    pub(super) fn or_refused(self, worker: &str, key: &str) -> Result<Self, Failure> {
        let refused: Vec<&str> = self
            .0
            .iter()
            .filter_map(|(_, made)| match made {
                Made::Refused(problem) => Some(problem.as_str()),
                Made::Taken | Made::Silent => None,
            })
            .collect();
        let Some(first) = refused.first() else {
            return Ok(self);
        };
        let whose = if refused.len() == self.0.len() {
            String::new()
        } else {
            format!(" in {} of {} processes", refused.len(), self.0.len())
        };
        let key = text::operand(key);
        let section = text::operand(worker);
        Err(Failure::new(
            Exit::Failed,
            "config.not_taken",
            format_args!("{worker} keeps its last good values{whose}: {first}"),
        )
        .hint(format_args!(
            "set another value, or `teamster config unset {key}`; `teamster config explain {section}` shows what is in force"
        )))
    }

    /// What is to be said of processes that do not answer.
    pub(super) fn note(&self, worker: &str) -> Option<String> {
        let silent = self.0.iter().filter(|(_, made)| *made == Made::Silent);
        match (self.is_in_force(), silent.count()) {
            (true, 0) => None,
            (true, silent) => Some(format!(
                "{silent} of {} processes of {worker} did not answer: they take it when they do, or have ended",
                self.0.len()
            )),
            (false, _) => Some(format!(
                "no {worker} answers now; it takes the value when it starts"
            )),
        }
    }

    /// Each process and what it made of the change.
    pub(super) fn document(&self) -> Value {
        let state = |made: &Made| match made {
            Made::Taken => "taken",
            Made::Refused(_) => "refused",
            Made::Silent => "silent",
        };
        self.0
            .iter()
            .map(|(process, made)| json!({ "process": process, "state": state(made) }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_counts_and_one_refusal_is_told() {
        let taken = |made: &[Made]| {
            let made = made.iter().cloned();
            Taken(made.map(|made| ("p".to_owned(), made)).collect())
        };
        let refused = Made::Refused("x: no".to_owned());
        for (made, in_force, says) in [
            (vec![], false, Some("no gate answers now")),
            (vec![Made::Taken], true, None),
            (vec![Made::Silent], false, Some("no gate answers now")),
            (
                vec![Made::Taken, Made::Silent],
                true,
                Some("1 of 2 processes"),
            ),
        ] {
            let taken = taken(&made)
                .or_refused("gate", "gate.x")
                .expect("no refusal");
            assert_eq!(taken.is_in_force(), in_force, "{made:?}");
            let note = taken.note("gate");
            assert_eq!(note.is_some(), says.is_some(), "{made:?}");
            let note = note.unwrap_or_default();
            assert!(note.contains(says.unwrap_or_default()), "{note}");
        }
        for (made, says) in [
            (vec![refused.clone()], "values: x: no"),
            (
                vec![Made::Taken, refused],
                "values in 1 of 2 processes: x: no",
            ),
        ] {
            let failure = taken(&made)
                .or_refused("gate", "gate.x")
                .expect_err("a refusal");
            assert_eq!(failure.code, "config.not_taken");
            assert!(failure.message.contains(says), "{}", failure.message);
        }
    }

    #[test]
    fn what_a_process_says_is_read_from_its_figures() {
        let answer = br#"{"endpoints":[{"name":"router-chat","num_requests":1},{"name":"router-config","data":{"seen":7,
            "refusals":[{"at_ms":1,"layer":"live","revision":7,"at":"","problem":"p"}]}}]}"#;
        let told = read(answer, "router").expect("read");
        assert_eq!((told.seen, told.refusals.len()), (Some(7), 1));
        assert_eq!(read(answer, "harness"), None);
        assert_eq!(
            read(br#"{"endpoints":[{"name":"router-config"}]}"#, "router"),
            None
        );
    }
}
