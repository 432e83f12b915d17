//! The topology: made once by any number of processes, checked where it is there.

use teamster_mesh::{
    Error, Mesh, Worker,
    topology::{Topology, ensure},
};
use teamster_testkit::{Nats, wait};

use crate::fixture::{LIMIT, chain, join, mesh, message, session};

const ONE: Topology = Topology { replicas: 1 };

async fn jetstream(nats: &Nats) -> async_nats::jetstream::Context {
    async_nats::jetstream::new(async_nats::connect(nats.url()).await.expect("connected"))
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_ensure_the_topology_at_once() {
    let nats = Nats::start().await;
    let mut meshes: Vec<Mesh> = Vec::new();
    for _ in 0..4 {
        meshes.push(join(&nats, "harness").await);
    }
    let ensured = futures::future::join_all(meshes.iter().map(|mesh| ensure(mesh, &ONE))).await;
    for result in ensured {
        result.unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    ensure(&meshes[0], &ONE).await.expect("there already");
    let jetstream = jetstream(&nats).await;
    for name in [
        "TURNS",
        "CONTROL",
        "LOG_0",
        "LOG_7",
        "SNAP",
        "GENERATIONS",
        "LIVE",
    ] {
        jetstream.get_stream(name).await.expect(name);
    }
    for bucket in ["registry", "config", "heads"] {
        jetstream.get_key_value(bucket).await.expect(bucket);
    }
}

/// A registry that took rollups is there wherever an earlier version ran.
#[tokio::test(flavor = "multi_thread")]
async fn the_registry_of_an_earlier_version_is_changed_and_keeps_its_entries() {
    let nats = Nats::start().await;
    let plain = async_nats::connect(nats.url()).await.expect("connected");
    let earlier = serde_json::json!({
        "name": "KV_registry", "subjects": ["$KV.registry.>"], "storage": "file", "max_msgs_per_subject": 1, "discard": "new",
        "allow_rollup_hdrs": true, "deny_delete": true, "allow_direct": true, "allow_msg_ttl": true,
        "subject_delete_marker_ttl": 60_000_000_000_u64, "duplicate_window": 120_000_000_000_u64, "max_age": 0,
    });
    let create = "$JS.API.STREAM.CREATE.KV_registry";
    plain
        .request(create, earlier.to_string().into())
        .await
        .expect("created");
    let hooks = serde_json::json!({"name": "gate", "bindings": [{"point": "pre-trigger", "function": "gate::judge"}]});
    plain
        .request("$KV.registry.hooks.gate", hooks.to_string().into())
        .await
        .expect("stored");
    let mesh = join(&nats, "harness").await;
    ensure(&mesh, &ONE)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let mut stream = jetstream(&nats)
        .await
        .get_stream("KV_registry")
        .await
        .expect("there");
    assert!(!stream.info().await.expect("told").config.allow_rollup);
    let registry = mesh.registry().await.expect("a registry");
    assert_eq!(registry.catalog().hooks.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_be_used_is_named() {
    let nats = Nats::start().await;
    let mesh = join(&nats, "harness").await;
    let stream = async_nats::jetstream::stream::Config {
        name: "TURNS".to_owned(),
        subjects: vec!["turn.in.*.*".to_owned()],
        storage: async_nats::jetstream::stream::StorageType::Memory,
        ..Default::default()
    };
    jetstream(&nats)
        .await
        .create_stream(stream)
        .await
        .expect("created");
    let error = ensure(&mesh, &ONE).await.expect_err("not usable");
    let text = chain(&error);
    assert!(text.contains("stream TURNS"), "{text}");
    assert!(
        text.contains("`storage` \"memory\" instead of \"file\""),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_to_a_router_is_no_generation() {
    let (nats, _mesh) = mesh().await;
    let jetstream = jetstream(&nats).await;
    let generations = jetstream.get_stream("GENERATIONS").await.expect("there");
    let subjects = &generations.cached_info().config.subjects;
    assert_eq!(subjects, &["gen.*.*.*"]);
    let request = teamster_protocol::RequestId::of(&crate::fixture::session("s"), 3, 1);
    let tokens = |subject: String| subject.split('.').count();
    assert_eq!(tokens(teamster_protocol::subject::generation(&request)), 4);
    assert_eq!(
        tokens(teamster_protocol::subject::generation_run(&request)),
        5
    );
}

/// BUS-5: what goes to a stream that is not there is an error for the sender, never lost in silence.
#[tokio::test(flavor = "multi_thread")]
async fn bus_5_without_its_streams_nothing_is_accepted() {
    let nats = Nats::start().await;
    let mesh = join(&nats, "harness").await;
    let sent = mesh
        .lanes()
        .send(&session("s"), &message("1"), bytes::Bytes::new())
        .await;
    assert!(matches!(sent, Err(Error::NoResponders { .. })), "{sent:?}");
    let worker = Worker::new(crate::fixture::name("one"), "A worker of a test.");
    let served = teamster_mesh::serve::serve(mesh.clone(), worker).await;
    let error = served.err().expect("no registry");
    assert!(
        chain(&error).contains("registering the worker one"),
        "{}",
        chain(&error)
    );
    assert!(mesh.registry().await.is_err());
    // Once it is there everything works, through the same connection.
    ensure(&mesh, &ONE).await.expect("made");
    mesh.lanes()
        .send(&session("s"), &message("1"), bytes::Bytes::new())
        .await
        .expect("stored");
    mesh.registry().await.expect("a registry");
}

/// A single server forgets its streams in memory; whoever ensured them brings them back.
#[tokio::test(flavor = "multi_thread")]
async fn streams_in_memory_come_back_after_a_restart() {
    let (mut nats, _mesh) = mesh().await;
    nats.restart().await;
    let jetstream = jetstream(&nats).await;
    for name in ["LIVE", "GENERATIONS"] {
        wait::until(LIMIT, name, || async {
            jetstream.get_stream(name).await.is_ok()
        })
        .await;
    }
}
