//! Logs that are changed behind the product's back: found when the session is loaded, and nothing of it runs.

use serde_json::{Value, json};
use teamster::client::Error;
use teamster_mesh::log::Stored;
use teamster_protocol::{Commit, Digest, SessionId, event::EndReason, subject};
use teamster_testkit::wait;

use crate::{
    operator::{LIMIT, session},
    world::{SIBLINGS, World},
};

/// A session with a turn behind it, at rest, its head copied, and nobody alive who remembers it.
async fn session_at_rest(world: &World) -> (SessionId, Vec<Stored>) {
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    let accepted = [world.owner.send(&id, "full turn").await];
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    let last = evidence.stored.last().expect("a commit").seq;
    let snaps = world.owner.client.mesh().snaps();
    wait::until(LIMIT, "the head is copied", || async {
        snaps
            .get(&id)
            .await
            .is_ok_and(|snapshot| snapshot.is_some_and(|snapshot| snapshot.mark.seq == last))
    })
    .await;
    harness.kill().await;
    (id, evidence.stored)
}

/// Asks the server itself for something about the log that holds the session.
async fn administer(world: &World, id: &SessionId, verb: &str, request: Value) {
    let stream = format!(
        "LOG_{}",
        subject::log_stream_of(subject::partition(&id.token()))
    );
    let subject = format!("$JS.API.STREAM.{verb}.{stream}");
    let mesh = world.owner.client.mesh();
    let reply = mesh
        .request(subject, request.to_string().into(), LIMIT)
        .await
        .expect("an answer");
    let reply: Value = serde_json::from_slice(&reply).expect("JSON");
    assert_eq!(reply["success"], true, "{reply}");
}

/// A new harness says that the log is damaged, takes messages, and runs nothing of the session; others are served.
async fn is_stopped(world: &World, id: &SessionId) {
    let requests = world.model.count();
    let effects = world.outside.effects();
    let commits = world.owner.count(id).await;
    let harness = world.worker(&["harness"]).await;
    let said = world
        .owner
        .client
        .status(id)
        .await
        .map(|status| status.status);
    let is_named = match &said {
        Ok(status) => status == "damaged",
        Err(Error::Fault(fault)) => fault.code == "session.log_damaged",
        Err(_) => false,
    };
    assert!(is_named, "{said:?}");
    // Its doorbell is rung, and looked at.
    world
        .owner
        .client
        .mesh()
        .lanes()
        .kick(id, "look")
        .await
        .expect("rung");
    wait::until(LIMIT, "the harness names the damage", || async {
        harness.log(world).contains("session.log_damaged")
    })
    .await;
    let other = session("other");
    let accepted = [world.owner.send(&other, "read it").await];
    assert_eq!(world.owner.finish(&other, 1).await, [EndReason::Completed]);
    world.verify(&other, &accepted).await;
    assert_eq!(world.owner.count(id).await, commits);
    assert_eq!(
        world.model.count(),
        requests + 2,
        "the other session's two requests"
    );
    assert_eq!(world.outside.effects().len(), effects.len() + 1);
}

/// SEC-55: the last commit is taken out of the log, as a restored backup would: the copied head knows of it.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_log_that_lost_its_end_stops_the_session() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let (id, stored) = session_at_rest(&world).await;
    let last = stored.last().expect("a commit").seq;
    administer(&world, &id, "MSG.DELETE", json!({"seq": last})).await;
    assert_eq!(world.owner.count(&id).await, stored.len() - 1);
    is_stopped(&world, &id).await;
}

/// SEC-55: the whole log of a session is gone.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_log_that_is_gone_stops_the_session() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let (id, _) = session_at_rest(&world).await;
    administer(&world, &id, "PURGE", json!({"filter": subject::log(&id)})).await;
    assert_eq!(world.owner.count(&id).await, 0);
    is_stopped(&world, &id).await;
}

/// SEC-56: the log is written anew with one commit changed, each of them valid, and chained as before or anew.
#[tokio::test(flavor = "multi_thread")]
async fn sec_56_a_log_written_anew_stops_the_session() {
    for is_chained_anew in [false, true] {
        let world = World::start().await;
        let _siblings = world.worker(&SIBLINGS).await;
        let (id, stored) = session_at_rest(&world).await;
        administer(&world, &id, "PURGE", json!({"filter": subject::log(&id)})).await;
        let (mut previous, mut last) = (Digest::ZERO, 0);
        for (index, stored) in stored.iter().enumerate() {
            let mut commit = Commit::decode(&stored.body).expect("a commit");
            if index == 1 {
                commit.at_ms += 1;
            }
            if is_chained_anew {
                commit.prev = previous;
            }
            let body = commit.encode().expect("encodes");
            previous = Digest::of(&body);
            let log = world.owner.client.mesh().log();
            last = log.commit(&id, body.into(), last).await.expect("stored");
        }
        assert_eq!(world.owner.count(&id).await, stored.len());
        is_stopped(&world, &id).await;
    }
}
