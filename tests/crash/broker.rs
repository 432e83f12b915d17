//! Kills of nats-server while a turn is under way. What it acknowledged is there when it is back; everybody goes on.

use teamster_protocol::{Event, event::EndReason, message::ResultKind};

use crate::{
    operator::{LIMIT, session},
    world::{SIBLINGS, World},
};

/// BUS-2, SEC-58: the server is gone while a model streams.
#[tokio::test(flavor = "multi_thread")]
async fn bus_2_a_server_killed_in_mid_stream_costs_time_only() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let _harness = world.worker(&["harness"]).await;
    let id = session("s");
    let gate = world.model.hold("full turn", 0);
    let mut accepted = vec![world.owner.send(&id, "full turn").await];
    gate.reached(LIMIT).await;
    world.nats.lock().await.kill().await;
    gate.open();
    world.nats.lock().await.restart().await;
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    accepted.push(world.owner.send(&id, "read again").await);
    world.owner.finish(&id, 2).await;
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Ok; 4]);
}

/// BUS-2, DUR-8: the server is gone while a call runs that must not run twice, and with it the call's answer. Whoever ran it
/// is asked.
#[tokio::test(flavor = "multi_thread")]
async fn bus_2_a_server_killed_in_mid_call_repeats_nothing() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let _harness = world.worker(&["harness"]).await;
    let id = session("s");
    world.outside.door.shut();
    let mut accepted = vec![world.owner.send(&id, "slow call").await];
    world.outside.door.reached(1, LIMIT).await;
    world.nats.lock().await.kill().await;
    world.nats.lock().await.restart().await;
    world.outside.door.open();
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    accepted.push(world.owner.send(&id, "read again").await);
    world.owner.finish(&id, 2).await;
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Ok; 2]);
    assert_eq!(evidence.effects.len(), 2);
}

/// BUS-2, APPR-1: the server is gone while a decision is pending.
#[tokio::test(flavor = "multi_thread")]
async fn bus_2_a_server_killed_while_a_decision_is_pending_keeps_it() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let _harness = world.worker(&["harness"]).await;
    let id = session("s");
    let accepted = [world.owner.send(&id, "full turn").await];
    let pending = world.owner.pending(&id).await;
    world.nats.lock().await.restart().await;
    assert_eq!(
        world.owner.pending(&id).await.approval_id,
        pending.approval_id
    );
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Ok; 3]);
}

/// BUS-3: a call takes longer than the lease; its doorbell does not come back to life, neither here nor at a replica.
#[tokio::test(flavor = "multi_thread")]
async fn bus_3_a_call_longer_than_the_lease_runs_once() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let _harnesses = [
        world.worker(&["harness"]).await,
        world.worker(&["harness"]).await,
    ];
    let id = session("s");
    let accepted = [world.owner.send(&id, "long call").await];
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Ok]);
    let events = evidence.commits.iter().flat_map(|commit| &commit.events);
    assert_eq!(
        events
            .filter(|event| matches!(event, Event::TookOver { .. }))
            .count(),
        0
    );
}
