//! `workers`: who serves, and credentials for workers from outside.

use serde_json::Value;
use teamster_mesh::{Connect, Mesh};
use teamster_protocol::id::WorkerName;

use super::{
    check_failure,
    place::{Place, code, document},
};

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Whether a server takes the credentials of a file.
async fn is_accepted(nats: &str, name: &str, creds: &str) -> bool {
    let connect = Connect {
        url: nats.to_owned(),
        credentials: Some(creds.into()),
    };
    let name = WorkerName::parse(name).expect("a name");
    Mesh::connect_within(&connect, name, std::time::Duration::ZERO)
        .await
        .is_ok()
}

/// Workers are listed with what they did; a worker from outside gets in while `up` runs, and out again.
#[tokio::test]
async fn workers_are_listed_and_one_from_outside_comes_and_goes() {
    let place = Place::new();
    let never = ["workers", "ls", "--json"];
    check_failure(&never, &place.run(&never).await, (69, "mesh.not_running"));
    let mut up = place.up().await;

    let listed = document(&place.run(&["workers", "ls", "--json"]).await);
    let workers = listed["workers"].as_array().expect("a list");
    let names: Vec<&str> = workers.iter().map(|worker| text(&worker["name"])).collect();
    for name in teamster::host::WORKERS {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    for worker in workers {
        let process = &worker["processes"][0];
        assert!(process["ping_ms"].as_f64().expect("it answers") >= 0.0);
    }
    let shown = place.run(&["workers", "ls"]).await;
    assert!(String::from_utf8_lossy(&shown.stdout).contains("approval-gate"));

    let info = document(&place.run(&["workers", "info", "sandbox", "--json"]).await);
    let functions = info["functions"].as_array().expect("a list");
    let read = functions
        .iter()
        .find(|function| function["contract"]["id"] == "fs::read")
        .expect("fs::read");
    assert_eq!(read["figures"]["requests"], 0);
    assert!(read["contract"]["request"].is_object(), "its schema");
    let gate = place.run(&["workers", "info", "approval-gate"]).await;
    assert!(String::from_utf8_lossy(&gate.stdout).contains("hook       "));
    let unknown = ["workers", "info", "nobody", "--json"];
    check_failure(&unknown, &place.run(&unknown).await, (1, "worker.unknown"));

    let grant = [
        "workers",
        "grant",
        "weather",
        "--namespace",
        "sky",
        "--json",
    ];
    let granted = document(&place.run(&grant).await);
    let (nats, creds) = (text(&granted["nats"]), text(&granted["creds"]));
    assert_eq!(granted["namespaces"], serde_json::json!(["sky"]));
    assert!(is_accepted(nats, "weather", creds).await, "at once");
    let again = document(&place.run(&grant).await);
    assert_eq!(again["public_key"], granted["public_key"], "the same key");
    let lines = place.run(&["workers", "grant", "weather"]).await;
    let lines = String::from_utf8(lines.stdout).expect("text");
    for want in [
        format!(
            "nc = await nats.connect({nats:?}, nkeys_seed={creds:?}, inbox_prefix=\"_INBOX.weather\")"
        ),
        format!("nats --server {nats} --nkey {creds} --inbox-prefix _INBOX.weather"),
    ] {
        assert!(lines.contains(&want), "{lines}");
    }
    for (name, namespace) in [
        ("router", "router"),
        ("stocks", "fs"),
        ("stocks", "weather"),
    ] {
        let taken = ["workers", "grant", name, "--namespace", namespace, "--json"];
        check_failure(&taken, &place.run(&taken).await, (2, "worker.name_taken"));
    }

    let unsure = ["workers", "revoke", "weather", "--json"];
    check_failure(&unsure, &place.run(&unsure).await, (2, "cli.unconfirmed"));
    assert!(is_accepted(nats, "weather", creds).await, "still");
    let kept = place.file("kept.creds");
    std::fs::copy(creds, &kept).expect("a copy");
    assert_eq!(
        code(&place.run(&["workers", "revoke", "weather", "--yes"]).await),
        0
    );
    assert!(!is_accepted(nats, "weather", kept.to_str().expect("text")).await);
    let unbound = ["workers", "unbind", "weather", "--yes", "--json"];
    check_failure(&unbound, &place.run(&unbound).await, (1, "worker.no_hooks"));
    let unsure = ["workers", "unbind", "approval-gate", "--json"];
    check_failure(&unsure, &place.run(&unsure).await, (2, "cli.unconfirmed"));
    let sure = ["workers", "unbind", "approval-gate", "--yes", "--json"];
    let unbound = place.run(&sure).await;
    assert_eq!(document(&unbound)["unbound"], true);
    check_failure(&sure, &place.run(&sure).await, (1, "worker.no_hooks"));
    let gone = ["workers", "revoke", "weather", "--yes", "--json"];
    check_failure(&gone, &place.run(&gone).await, (1, "worker.unknown"));
    up.interrupt();
    up.ended(std::time::Duration::from_mins(1)).await;
}

/// For a server of somebody else the block for its configuration is printed, and nothing of it is touched.
#[tokio::test]
async fn a_grant_for_a_foreign_server_is_a_block_of_its_configuration() {
    let place = Place::new();
    let arguments = [
        "workers",
        "grant",
        "weather",
        "--nats",
        "nats://broker.example:4222",
    ];
    let output = place.run(&arguments).await;
    assert_eq!(code(&output), 0);
    let block = String::from_utf8(output.stdout).expect("text");
    for want in [
        "{ nkey: U",
        "\"fn.weather.>\"",
        "\"_INBOX.weather.>\"",
        "allow_responses",
    ] {
        assert!(block.contains(want), "{block}");
    }
    assert!(!place.data().join("grants.json").exists());
    let damaged = ["workers", "grant", "rain", "--json"];
    std::fs::write(place.data().join("grants.json"), "[").expect("written");
    check_failure(&damaged, &place.run(&damaged).await, (69, "host.broker"));
}
