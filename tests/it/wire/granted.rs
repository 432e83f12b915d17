//! A worker in another language with credentials of its own, on the mesh that `teamster up` guards: from the grant to the
//! approved call, with the commands that a user types.

use std::collections::BTreeMap;

use serde_json::Value;
use teamster::client::Client;
use teamster_mesh::Connect;
use teamster_protocol::{Event, SessionId, message::ResultKind};
use teamster_testkit::{Collector, Process, collector::Span, wait};

use super::python::{script, traced};
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

/// A place with a script and a policy.
fn place(rules: &str) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.data()).expect("a folder");
    std::fs::write(place.file("rules.yaml"), rules).expect("a script");
    let config = format!(
        "router: {{providers: {{scripted: {{scripts: {{wx: {}}}}}}}}}\n",
        place.file("rules.yaml").display()
    );
    std::fs::write(place.data().join("config.yaml"), config).expect("a configuration");
    let policy = "version: 1\nlayers:\n  - name: house\n    rules:\n      - { effect: deny, function: \"weather::calibrate\" }\n";
    std::fs::write(place.data().join("policy.yaml"), policy).expect("a policy");
    place
}

/// The granted worker, once it is listed, and the address that it was told.
async fn granted(place: &Place) -> (Process, String) {
    let (status, granted) = told(place, &["workers", "grant", "weather"]).await;
    assert_eq!(status, 0, "{granted}");
    let (url, creds) = (text(&granted, "nats"), text(&granted, "creds"));
    let mut command = script("weather.py", &url).await;
    command
        .env("TEAMSTER_CREDS", &creds)
        .env("WEATHER_JOURNAL", place.file("journal"));
    let worker = Process::spawn(command, &place.file("weather.out"));
    wait::until(LIMIT, "the function is listed", || async {
        let listed = told(place, &["functions", "ls"]).await.1;
        listed.to_string().contains("weather::alarm")
    })
    .await;
    (worker, url)
}

/// OBS-1: the calls that a model makes of a worker in another language stand below that model's turn, each below the span that the
/// harness tells of it.
#[tokio::test(flavor = "multi_thread")]
async fn obs_1_the_trace_of_a_turn_leads_into_a_python_worker() {
    let place = place(
        "rules:
  - when: {last_role: user}
    say: I call.
    calls:
      - {function: weather::current, arguments: {city: Lisbon}}
      - {function: weather::current, arguments: {city: Oslo}}
  - when: {last_role: result}
    say: done
",
    );
    let collector = Collector::start();
    let mut command = place.command(&["up"]);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
        .env("OTEL_METRICS_EXPORTER", "none");
    let up = Process::spawn(command, &place.file("up.out"));
    wait::until(LIMIT, "up says where it listens", || async {
        up.output().contains("stop       ")
    })
    .await;
    let (worker, _) = granted(&place).await;
    let ask = [
        "run",
        "--model",
        "scripted/wx",
        "--allow",
        "weather::*",
        "go",
    ];
    let (status, done) = told(&place, &ask).await;
    assert_eq!(status, 0, "{done}");
    let session = text(&done, "session");
    let spans = wait::some(LIMIT, "the turn is told", || async {
        let spans = collector.spans();
        let is_told = spans.iter().any(|span| span.name == "invoke_agent");
        is_told.then_some(spans)
    })
    .await;
    let is_ours = |name: &str, value: &str| {
        let (name, value) = (name.to_owned(), value.to_owned());
        move |span: &&Span| span.attributes.get(&name) == Some(&value)
    };
    let turn = spans
        .iter()
        .filter(|span| span.name == "invoke_agent")
        .find(is_ours("session", &session))
        .expect("the turn's span");
    let served = traced(&worker.output());
    assert_eq!(served.len(), 2, "{served:?}");
    for call in &served {
        assert_eq!(call.trace, turn.trace_id, "{call:?}");
        let told = spans
            .iter()
            .filter(|span| span.name.starts_with("execute_tool"))
            .find(is_ours("call", &call.call))
            .unwrap_or_else(|| panic!("no span of {call:?}: {spans:#?}"));
        assert_eq!(call.parent, told.span_id, "{call:?}");
        assert_eq!(told.parent, turn.span_id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_python_worker_serves_a_guarded_mesh_and_is_judged() {
    let place = place(RULES);
    let _up = place.up().await;
    let (worker, url) = granted(&place).await;

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
            ResultKind::Ok, // what it calls in turn is its own
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
    assert!(texts[&1].contains("Lisbon"), "{texts:?}");
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
