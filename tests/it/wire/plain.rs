//! Plain NATS tools find and inspect the workers of a mesh: nats-py asks, and knows nothing of us.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use teamster::client::Client;
use teamster_mesh::Connect;

use super::python::script;
use crate::cli::place::{LIMIT, Place};

#[tokio::test(flavor = "multi_thread")]
async fn plain_nats_lists_and_inspects_every_worker_of_a_mesh() {
    let place = Place::new();
    let _up = place.up().await;
    let data = teamster_mesh::broker::DataDir::open(&place.data()).expect("a data directory");
    let url = teamster_mesh::broker::running(&data).expect("a server").url;
    let client = Client::connect(&Connect {
        url: url.clone(),
        credentials: Some(data.credentials()),
    })
    .await
    .expect("connects");
    client
        .wait_for_workers(&teamster::host::WORKERS, LIMIT)
        .await
        .expect("a registry");
    let catalog = client.catalog().await.expect("a registry");

    let mut command = script("inspect_mesh.py", &url).await;
    command.env(
        "TEAMSTER_CREDS",
        teamster_mesh::credential::file(&data.credentials(), "operator"),
    );
    let output = command.output().expect("python3 runs");
    let said: BTreeMap<String, Vec<Value>> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));

    let want: BTreeSet<(String, String)> = catalog
        .workers
        .iter()
        .map(|worker| (worker.name.to_string(), worker.incarnation.to_string()))
        .collect();
    assert!(want.len() >= teamster::host::WORKERS.len(), "{want:?}");
    for (verb, answers) in &said {
        let found: BTreeSet<(String, String)> = answers
            .iter()
            .map(|one| (text(one, "name"), text(one, "id")))
            .collect();
        assert_eq!(found, want, "{verb}");
        let kind = format!("io.nats.micro.v1.{}_response", verb.to_lowercase());
        assert!(answers.iter().all(|one| text(one, "type") == kind));
    }
    for worker in &catalog.workers {
        let served: BTreeSet<String> = worker
            .functions
            .iter()
            .map(|contract| contract.id.to_string())
            .collect();
        for (verb, pointer) in [("INFO", "/metadata/id"), ("STATS", "/name")] {
            let answer = said[verb]
                .iter()
                .find(|one| text(one, "name") == worker.name.as_str())
                .expect("an answer");
            let endpoints = answer["endpoints"].as_array().expect("endpoints");
            let found: BTreeSet<String> = endpoints
                .iter()
                .map(|one| {
                    one.pointer(pointer)
                        .and_then(Value::as_str)
                        .expect("a text")
                })
                .map(str::to_owned)
                .collect();
            let want: BTreeSet<String> = match verb {
                "STATS" => served.iter().map(|id| id.replace("::", "-")).collect(),
                _ => served.clone(),
            };
            assert_eq!(found, want, "{verb} {}", worker.name);
        }
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}
