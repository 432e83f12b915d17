//! A worker in another language with credentials of its own, on the mesh that `teamster up` guards: from the grant to the
//! approved call, with the commands that a user types.

use std::collections::BTreeMap;

use serde_json::Value;
use teamster::client::Client;
use teamster_mesh::Connect;
use teamster_protocol::{Event, SessionId, message::ResultKind};
use teamster_testkit::{Process, wait};

use super::python::script;
use crate::{
    cli::place::{LIMIT, Place, code, document},
    scene::outcomes,
};

const RULES: &str = "
rules:
  - when: {last_role: user}
    say: I call.
    calls: [{function: weather::current, arguments: {city: Lisbon}}]
  - when: {last_role: result, results: 1}
    say: I call.
    calls: [{function: weather::compare, arguments: {one: Lisbon, other: Oslo}}]
  - when: {last_role: result, results: 2}
    say: I call.
    calls: [{function: weather::calibrate, arguments: {city: Oslo}}]
  - when: {last_role: result, results: 3}
    say: I call.
    calls: [{function: weather::alarm, arguments: {city: Oslo}}]
  - when: {last_role: result, results: 4}
    say: done
";

/// What `teamster ... --json` answers.
async fn told(place: &Place, arguments: &[&str]) -> (i32, Value) {
    let output = place.run(&[arguments, &["--json"]].concat()).await;
    (code(&output), document(&output))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_python_worker_serves_a_guarded_mesh_and_is_judged() {
    let place = Place::new();
    std::fs::create_dir_all(place.data()).expect("a folder");
    std::fs::write(place.file("rules.yaml"), RULES).expect("a script");
    let config = format!(
        "router: {{providers: {{scripted: {{scripts: {{wx: {}}}}}}}}}\n",
        place.file("rules.yaml").display()
    );
    std::fs::write(place.data().join("config.yaml"), config).expect("a configuration");
    let policy = "version: 1\nlayers:\n  - name: house\n    rules:\n      - { effect: deny, function: \"weather::calibrate\" }\n";
    std::fs::write(place.data().join("policy.yaml"), policy).expect("a policy");
    let _up = place.up().await;

    let (status, granted) = told(&place, &["workers", "grant", "weather"]).await;
    assert_eq!(status, 0, "{granted}");
    let (url, creds) = (text(&granted, "nats"), text(&granted, "creds"));
    let mut command = script("weather.py", &url).await;
    command
        .env("TEAMSTER_CREDS", &creds)
        .env("WEATHER_JOURNAL", place.file("journal"));
    let worker = Process::spawn(command, &place.file("weather.out"));
    wait::until(LIMIT, "the function is listed", || async {
        let listed = told(&place, &["functions", "ls"]).await.1;
        listed.to_string().contains("weather::alarm")
    })
    .await;

    let ask = [
        "run",
        "--model",
        "scripted/wx",
        "--allow",
        "weather::*",
        "go",
    ];
    let (status, waits) = told(&place, &ask).await;
    assert_eq!(status, 3, "a person must decide: {waits}");
    let session = SessionId::parse(text(&waits, "session")).expect("a session");
    let (_, pending) = told(&place, &["approvals", "ls"]).await;
    let pending = pending.to_string();
    let (_, rest) = pending.split_once("\"apr_").expect("an approval");
    let approval = format!("apr_{}", rest.split('"').next().expect("its end"));
    let (status, decided) = told(&place, &["approvals", "approve", &approval, "--yes"]).await;
    assert_eq!(status, 0, "{decided}");

    let data = teamster_mesh::broker::DataDir::open(&place.data()).expect("a data directory");
    let client = Client::connect(&Connect {
        url,
        credentials: Some(data.credentials()),
    })
    .await
    .expect("connects");
    let events = wait::some(LIMIT, "the turn's end", || async {
        let commits = client.commits(&session).await.ok()?;
        let events: Vec<Event> = commits.into_iter().flat_map(|(_, c)| c.events).collect();
        let is_over = |event: &Event| matches!(event, Event::TurnEnded { .. });
        events.iter().any(is_over).then_some(events)
    })
    .await;
    assert_eq!(
        outcomes(&events),
        [
            ResultKind::Ok,
            ResultKind::Error, // a worker from outside calls nobody
            ResultKind::DeniedByPolicy,
            ResultKind::Ok
        ],
        "{}",
        worker.output()
    );
    let texts: BTreeMap<usize, String> = events
        .iter()
        .filter_map(|event| match event {
            Event::CallFinished { text, .. } => Some(text.clone()),
            _ => None,
        })
        .enumerate()
        .collect();
    assert!(texts[&0].contains("24"), "{texts:?}");
    assert!(texts[&1].contains("mesh.denied"), "{texts:?}");
    assert!(texts[&2].contains("warned"), "{texts:?}");
    assert!(
        !place.file("journal").exists(),
        "what was denied did not run"
    );
}

fn text(value: &Value, key: &str) -> String {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("no {key}: {value}"))
        .to_owned()
}
