//! The mesh under the product's own permissions: what each worker does, it may do.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use teamster_mesh::{
    Connect, Mesh,
    bell::Bells,
    serve::serve,
    snap::{Mark, Snapshot},
    topology::{Topology, ensure},
};
use teamster_protocol::{
    ApprovalId, Digest, Fault, Lane, Principal, Visibility, input::ControlKind,
};
use teamster_testkit::{Secured, wait, wait::within};

use crate::fixture::{LIMIT, Reply, call, chain, function, message, name, open, session, text};

pub(crate) async fn join(secured: &Secured, worker: &str) -> Mesh {
    let options = Connect {
        url: secured.url(),
        credentials: Some(secured.credentials()),
    };
    Mesh::connect(&options, name(worker))
        .await
        .unwrap_or_else(|error| panic!("{worker}: {}", chain(&error)))
}

pub(crate) async fn secured() -> Secured {
    let secured = Secured::start().await;
    let topology = join(&secured, "topology").await;
    ensure(&topology, &Topology { replicas: 1 })
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    topology.flush().await.expect("flushed");
    secured
}

#[tokio::test(flavor = "multi_thread")]
async fn the_harness_may_do_all_that_its_loop_needs() {
    let secured = secured().await;
    let mesh = join(&secured, "harness").await;
    let (session, approval) = (session("s"), ApprovalId::parse("apr_1").expect("an id"));
    let mut bells = Bells::open(&mesh, 8).await.expect("bells");
    let lanes = mesh.lanes();
    let sent = lanes
        .send(&session, &message("1"), Bytes::from("x"))
        .await
        .expect("stored");
    let ring = within(LIMIT, "a doorbell", bells.next())
        .await
        .expect("a ring");
    assert_eq!(ring.seq, sent.seq);
    let next = lanes.next(&session, Lane::In, 0).await.expect("read");
    assert_eq!(next.expect("an input").seq, sent.seq);
    assert_eq!(
        lanes.next(&session, Lane::Ctl, 0).await.expect("read"),
        None
    );
    let log = mesh.log();
    let first = log
        .commit(&session, Bytes::from("1"), 0)
        .await
        .expect("stored");
    let last = log
        .commit(&session, Bytes::from("2"), first)
        .await
        .expect("stored");
    assert_eq!(log.read(&session, 0, last).await.expect("read").len(), 2);
    assert_eq!(
        log.tail(&session).await.expect("read").expect("a tail").seq,
        last
    );
    let mut follow = log.follow_session(&session, 0).await.expect("a reader");
    within(LIMIT, "a commit", follow.next())
        .await
        .expect("one")
        .expect("readable");
    let snapshot = Snapshot {
        mark: Mark {
            n: 2,
            seq: last,
            hash: Digest::of("2"),
        },
        state: None,
    };
    mesh.snaps().put(&session, &snapshot).await.expect("sent");
    wait::until(LIMIT, "the snapshot", || async {
        mesh.snaps().get(&session).await.expect("read").is_some()
    })
    .await;
    lanes
        .set_timer(
            &session,
            &approval,
            u64::from(u32::MAX) * 1000,
            Bytes::from("t"),
        )
        .await
        .expect("set");
    lanes
        .cancel_timer(&session, &approval)
        .await
        .expect("cancelled");
    lanes.kick(&session, "x").await.expect("rung");
    let listed = lanes.sessions().await.expect("listed");
    assert_eq!(listed, std::slice::from_ref(&session));
    assert_eq!(lanes.waiting(&session).await.expect("counted"), 1);
    ring.ack().await;
    lanes.remove(Lane::In, ring.seq).await;
    wait::until(LIMIT, "the input is removed", || async {
        lanes.waiting(&session).await.expect("counted") == 0
    })
    .await;
    mesh.registry().await.expect("a registry");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_serve_register_and_are_called() {
    let secured = secured().await;
    let (harness, sandbox) = (
        join(&secured, "harness").await,
        join(&secured, "sandbox").await,
    );
    let operator = join(&secured, "operator").await;
    let slow = open("fs::read", |_, request| async move {
        wait::work(std::time::Duration::from_millis(1300)).await;
        Ok(Reply { text: request.text })
    });
    let mut desk = open("sandbox::desk", |ctx, _| async move {
        let text = ctx
            .principal
            .map_or_else(String::new, |who| who.to_string());
        Ok(Reply { text })
    });
    Arc::make_mut(&mut desk.contract).visibility = Visibility::Operator;
    let worker = teamster_mesh::Worker::new(name("sandbox"), "Files.")
        .function(slow)
        .function(desk);
    let serving = serve(sandbox, worker)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    for mesh in [&harness, &operator] {
        let registry = mesh.registry().await.expect("a registry");
        let catalog = registry
            .wait(LIMIT, |catalog| catalog.functions.len() == 2)
            .await;
        assert_eq!(catalog.functions.len(), 2);
    }
    let mut read = call("fs::read", "x");
    read.call = Some("c1".to_owned());
    let calling = tokio::spawn({
        let harness = harness.clone();
        async move { harness.call(read).await }
    });
    // While it runs its outcome is waited for by somebody else.
    let outcome = wait::some(LIMIT, "the outcome", || async {
        let asked = operator
            .call_outcome(&function("fs::read"), "c1", LIMIT)
            .await;
        asked.expect("asked")
    })
    .await;
    assert_eq!(text(&outcome.expect("a reply")), "x");
    let reply = within(LIMIT, "the answer", calling).await.expect("ran");
    assert_eq!(text(&reply.expect("answered")), "x");
    let mut as_owner = call("sandbox::desk", "");
    as_owner.principal = Principal::parse("owner").ok();
    assert_eq!(
        text(&operator.call(as_owner).await.expect("answered")),
        "owner"
    );
    operator
        .lanes()
        .control(
            &session("s"),
            ControlKind::Stop,
            &message("c"),
            Bytes::new(),
        )
        .await
        .expect("stored");
    serving.drain().await;
    let registry = harness.registry().await.expect("a registry");
    let catalog = registry
        .wait(LIMIT, |catalog| catalog.workers.is_empty())
        .await;
    assert!(catalog.workers.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_credentials_is_refused_at_once() {
    let secured = secured().await;
    let nobody = Connect {
        url: secured.url(),
        credentials: None,
    };
    let refused = within(LIMIT, "a refusal", Mesh::connect(&nobody, name("harness"))).await;
    assert!(refused.is_err());
    let unknown = Connect {
        url: secured.url(),
        credentials: Some(secured.credentials()),
    };
    let error = Mesh::connect(&unknown, name("stranger"))
        .await
        .err()
        .expect("no file");
    assert!(
        chain(&error).contains("stranger.creds"),
        "{}",
        chain(&error)
    );
}

/// Whoever comes with another user's credentials hears that at once, and not nothing until the time is over; so does who asks for
/// what its own do not allow.
#[tokio::test]
async fn what_credentials_do_not_allow_is_told_at_once() {
    let secured = secured().await;
    let wrong = Connect {
        url: secured.url(),
        credentials: Some(secured.credentials().join("router.creds")),
    };
    let stranger = Mesh::connect(&wrong, name("operator"))
        .await
        .expect("connected");
    let router = join(&secured, "router").await;
    for (mesh, principal) in [(&stranger, Some("owner")), (&router, None)] {
        let mut call = call("session::list", "");
        call.principal = principal.map(|name| Principal::parse(name).expect("valid"));
        call.timeout = Duration::from_mins(30);
        let fault = within(
            LIMIT,
            "a fault long before the time is over",
            mesh.call(call),
        )
        .await
        .expect_err("not allowed");
        assert_eq!(fault.code, "mesh.credentials", "{fault}");
        assert!(fault.message.contains("session::list"), "{fault}");
        assert!(
            fault
                .hint
                .is_some_and(|hint| hint.contains("operator.creds"))
        );
    }
    assert!(stranger.deaf().is_some());
    assert!(router.deaf().is_none(), "it hears what it may ask");
    let error = stranger.log().tail(&session("s")).await.expect_err("deaf");
    assert_eq!(Fault::from(error).code, "mesh.credentials");
}
