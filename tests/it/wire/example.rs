//! The examples of the repository do what they say, in a mesh of their own.

use serde_json::json;
use teamster::client::Client;
use teamster_mesh::Connect;
use teamster_protocol::{
    Visibility,
    event::EndReason,
    function::engine::{ListReply, ListRequest},
    input::TurnOptions,
    message::ResultKind,
    policy::FunctionPolicy,
};
use teamster_testkit::wait;

use crate::scene::{LIMIT, Parts, Scene, calls, id, outcomes, results, says, session};

#[path = "../../../examples/weather.rs"]
#[expect(
    dead_code,
    reason = "its `main` connects to a mesh by address; here the worker is served"
)]
mod weather;

#[path = "../../../examples/embed.rs"]
#[expect(dead_code, reason = "its `main` reads arguments")]
mod embed;

pub(super) fn allow(globs: &[&str]) -> TurnOptions {
    TurnOptions {
        functions: Some(FunctionPolicy {
            allow: globs.iter().map(|glob| (*glob).to_owned()).collect(),
            ..FunctionPolicy::default()
        }),
        ..TurnOptions::default()
    }
}

/// Waits until the harness lists these functions of a worker, and no others: what it lists it offers to models.
pub(super) async fn is_listed(scene: &Scene, worker: &str, functions: &[&str]) {
    wait::until(
        LIMIT,
        "the harness lists the worker's functions",
        || async { listed(scene, worker).await == functions },
    )
    .await;
}

/// What `engine::functions::list` tells a caller that is no model.
async fn listed(scene: &Scene, worker: &str) -> Vec<String> {
    let request = ListRequest {
        worker: Some(worker.to_owned()),
        ..ListRequest::default()
    };
    let call = teamster_mesh::connection::Call::new(
        id("engine::functions::list"),
        serde_json::to_vec(&request).expect("encodes"),
    );
    let reply = scene.operator.call(call).await.expect("a list");
    let reply: ListReply = serde_json::from_slice(&reply).expect("a list");
    let ids = reply
        .functions
        .iter()
        .map(|entry| entry.function_id.to_string());
    ids.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_an_outsider_is_found_and_called() {
    let mut parts = Parts::new(|request| match results(request).as_slice() {
        [] => calls(&[("weather::current", json!({"city": "Lisbon"}))]),
        [_] => calls(&[("weather::current", json!({"city": "Atlantis"}))]),
        [_, _] => calls(&[("weather::current", json!({"town": "Oslo"}))]),
        _ => says("done"),
    });
    parts
        .workers
        .push(weather::worker().expect("names that are valid"));
    let scene = Scene::start(parts).await;
    is_listed(&scene, "weather", &["weather::current"]).await;
    let registry = scene.operator.registry().await.expect("a registry");
    let catalog = registry
        .wait(LIMIT, |catalog| {
            catalog.functions.contains_key(&id("weather::current"))
        })
        .await;
    let (contract, _) = &catalog.functions[&id("weather::current")];
    assert_eq!(contract.visibility, Visibility::Agent);

    let session = session("s");
    let options = allow(&["weather::*"]);
    scene
        .send_options(&session, "is it warm in Lisbon?", options)
        .await;
    assert_eq!(scene.ended(&session, 1).await, [EndReason::Completed]);
    let kinds = outcomes(&scene.events(&session).await);
    assert_eq!(
        kinds,
        [ResultKind::Ok, ResultKind::Error, ResultKind::Invalid]
    );
    let requests = scene.requests.lock().expect("lock").clone();
    let read = results(requests.last().expect("requests"));
    assert!(read[0].contains(r#""celsius":24"#), "{read:?}");
    assert!(read[1].contains("weather.unknown_city"), "{read:?}");
    assert!(read[2].contains(r#""city" is missing"#), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_embeds_it_gets_the_answer_from_the_log() {
    let scene = Scene::start(Parts::new(|request| {
        if results(request).is_empty() {
            calls(&[("t::read", json!({}))])
        } else {
            says("the answer")
        }
    }))
    .await;
    let client = Client::connect(&Connect {
        url: scene.nats.url(),
        credentials: None,
    })
    .await
    .expect("connects");
    let (reason, answer) = embed::ask(&client, "ask").await.expect("an end");
    assert_eq!(
        (reason, answer.as_str()),
        (EndReason::Completed, "the answer")
    );
}
