//! The registry: entries, leases, conflicts, and a watch that outlives its broker.

use std::time::Duration;

use teamster_mesh::{Worker, serve::serve};
use teamster_protocol::{
    hook::{Binding, Point, Stage},
    limits,
};
use teamster_testkit::wait;

use crate::fixture::{LIMIT, Reply, function, join, mesh, name, open, served};

fn echo(id: &str) -> teamster_mesh::Function {
    open(
        id,
        |_, request| async move { Ok(Reply { text: request.text }) },
    )
}

fn binding() -> Binding {
    Binding {
        point: Point::PreTrigger,
        function: function("gate::judge"),
        priority: 0,
        stage: Stage::Judge,
        functions: Vec::new(),
        timeout_ms: None,
        on_error: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_come_and_go_and_their_hooks_stay_until_an_operator_removes_them() {
    let (nats, mesh) = mesh().await;
    let registry = mesh.registry().await.expect("a registry");
    assert_eq!(
        *registry.catalog(),
        teamster_mesh::registry::Catalog::default()
    );
    let gate = join(&nats, "gate").await;
    let worker = Worker::new(name("gate"), "Judges.")
        .function(echo("gate::judge"))
        .hook(binding());
    let serving = serve(gate.clone(), worker).await.expect("served");
    let catalog = registry
        .wait(LIMIT, |catalog| {
            !catalog.functions.is_empty() && !catalog.hooks.is_empty()
        })
        .await;
    assert_eq!(catalog.workers[0].incarnation, *gate.incarnation());
    assert_eq!(catalog.functions[&function("gate::judge")].1, "gate");
    assert_eq!(catalog.hooks, [(binding(), "gate".to_owned())]);
    serving.drain().await;
    let catalog = registry
        .wait(LIMIT, |catalog| catalog.workers.is_empty())
        .await;
    assert!(catalog.functions.is_empty());
    assert_eq!(catalog.hooks.len(), 1, "a binding outlives its worker");
    registry.unbind("gate").await.expect("unbound");
    let catalog = registry
        .wait(LIMIT, |catalog| catalog.hooks.is_empty())
        .await;
    assert!(catalog.hooks.is_empty());
    let unchanged = registry
        .wait(Duration::from_millis(50), |catalog| {
            !catalog.workers.is_empty()
        })
        .await;
    assert!(
        unchanged.workers.is_empty(),
        "a wait that is over answers what there is"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_lease_ends_disappears() {
    let (nats, mesh) = mesh().await;
    let registry = mesh.registry().await.expect("a registry");
    // A worker that dies at once: an entry that nobody renews, with a lease of one second.
    let plain = async_nats::connect(nats.url()).await.expect("connected");
    let entry = serde_json::json!({
        "name": "dead", "incarnation": "1", "version": "1.0.0", "description": "", "functions": [],
    });
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-TTL", "1s");
    plain
        .request_with_headers(
            "$KV.registry.worker.dead.1",
            headers,
            entry.to_string().into(),
        )
        .await
        .expect("stored");
    let there = registry
        .wait(LIMIT, |catalog| catalog.workers.len() == 1)
        .await;
    assert_eq!(there.workers.len(), 1);
    let gone = registry
        .wait(LIMIT, |catalog| catalog.workers.is_empty())
        .await;
    assert!(gone.workers.is_empty());
    assert!(limits::REGISTRATION_EVERY * 2 < limits::REGISTRATION_TTL);
}

/// Who lives must say so again and again; an entry that says it once and for ever is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_without_a_lease_is_left_out() {
    let (nats, mesh) = mesh().await;
    let registry = mesh.registry().await.expect("a registry");
    let plain = async_nats::connect(nats.url()).await.expect("connected");
    for (incarnation, ttl) in [
        ("1", None),
        ("2", Some("never")),
        ("3", Some("31s")),
        ("4", Some("30s")),
    ] {
        let entry = serde_json::json!({
            "name": "some", "incarnation": incarnation, "version": "1.0.0", "description": "", "functions": [],
        });
        let mut headers = async_nats::HeaderMap::new();
        if let Some(ttl) = ttl {
            headers.insert("Nats-TTL", ttl);
        }
        let subject = format!("$KV.registry.worker.some.{incarnation}");
        plain
            .request_with_headers(subject, headers, entry.to_string().into())
            .await
            .expect("stored");
    }
    let catalog = registry
        .wait(LIMIT, |catalog| !catalog.workers.is_empty())
        .await;
    let living: Vec<&str> = catalog
        .workers
        .iter()
        .map(|one| one.incarnation.as_str())
        .collect();
    assert_eq!(living, ["4"]);
}

/// BUS-1: a watch that hangs after the broker restarted shows an outdated world. Ours is made anew, and workers register again.
#[tokio::test(flavor = "multi_thread")]
async fn bus_1_the_registry_survives_restarts_of_the_broker() {
    let (mut nats, mesh) = mesh().await;
    let registry = mesh.registry().await.expect("a registry");
    let first = join(&nats, "one").await;
    let _first = served(&first, "one", vec![echo("one::do")]).await;
    registry
        .wait(LIMIT, |catalog| catalog.workers.len() == 1)
        .await;
    for round in 2..4 {
        nats.restart().await;
        let worker = join(&nats, "more").await;
        let id = format!("more::do{round}");
        // Kept running: each round adds one.
        std::mem::forget(served(&worker, "more", vec![echo(&id)]).await);
        let catalog = registry
            .wait(LIMIT, |catalog| catalog.workers.len() == round)
            .await;
        assert_eq!(catalog.workers.len(), round);
        assert!(catalog.functions.contains_key(&function(&id)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_entry_was_lost_registers_again_when_it_reconnects() {
    let (mut nats, mesh) = mesh().await;
    let registry = mesh.registry().await.expect("a registry");
    let worker = join(&nats, "one").await;
    let _serving = served(&worker, "one", vec![echo("one::do")]).await;
    registry
        .wait(LIMIT, |catalog| catalog.workers.len() == 1)
        .await;
    let plain = async_nats::connect(nats.url()).await.expect("connected");
    let jetstream = async_nats::jetstream::new(plain);
    let bucket = jetstream.get_key_value("registry").await.expect("a bucket");
    let key = format!("worker.one.{}", worker.incarnation());
    bucket.delete(key.as_str()).await.expect("removed");
    registry
        .wait(LIMIT, |catalog| catalog.workers.is_empty())
        .await;
    nats.restart().await;
    wait::until(LIMIT, "the worker is back", || async {
        registry.catalog().workers.len() == 1
    })
    .await;
}
