//! Owners that sleep (SIGSTOP) until others have taken their sessions, and wake up.

use teamster_protocol::{Event, SessionId, event::EndReason, message::ResultKind};
use teamster_testkit::wait;

use crate::{
    operator::{LIMIT, session},
    steps::Steps,
    world::{SIBLINGS, Worker, World},
};

/// Wakes an owner that lost its session, leaves it alone on the mesh, and waits until it has done a turn of another one: what
/// it still wanted to do for the lost one is over then.
async fn wake(world: &World, sleeper: &Worker, successor: &mut Worker) {
    sleeper.process.resume();
    successor.kill().await;
    let other = session("after");
    let accepted = [world.owner.send(&other, "full turn").await];
    assert_eq!(world.owner.finish(&other, 1).await, [EndReason::Completed]);
    world.verify(&other, &accepted).await;
}

async fn is_taken_over(world: &World, id: &SessionId) {
    let is_takeover = |event: &Event| matches!(event, Event::TookOver { .. });
    world
        .owner
        .until(id, "is taken over", |events| events.iter().any(is_takeover))
        .await;
}

/// SEC-57: an owner sleeps in mid-generation; its session moves within seconds, and its own commit is refused.
#[tokio::test(flavor = "multi_thread")]
async fn sec_57_an_owner_that_slept_through_a_generation_cannot_commit() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let sleeper = world.worker(&["harness"]).await;
    let id = session("s");
    let gate = world.model.hold("talk", 0);
    let accepted = [world.owner.send(&id, "talk").await];
    gate.reached(LIMIT).await;
    let mut successor = world.worker(&["harness"]).await;
    sleeper.pause().await;
    is_taken_over(&world, &id).await;
    gate.open();
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let commits = world.owner.count(&id).await;
    wake(&world, &sleeper, &mut successor).await;
    wait::until(LIMIT, "the sleeper's commit is refused", || async {
        sleeper
            .log(&world)
            .contains("another owner has the session")
    })
    .await;
    assert_eq!(world.owner.count(&id).await, commits);
    world.verify(&id, &accepted).await;
}

/// SEC-53, SEC-57: an owner sleeps in mid-call, beyond its lease; the call is joined, not repeated.
#[tokio::test(flavor = "multi_thread")]
async fn sec_57_an_owner_that_slept_through_a_call_repeats_nothing() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let sleeper = world.worker(&["harness"]).await;
    let id = session("s");
    world.outside.door.shut();
    let accepted = [world.owner.send(&id, "slow call").await];
    world.outside.door.reached(1, LIMIT).await;
    let mut successor = world.worker(&["harness"]).await;
    sleeper.pause().await;
    is_taken_over(&world, &id).await;
    world.outside.door.open();
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    wake(&world, &sleeper, &mut successor).await;
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Ok]);
    assert_eq!(evidence.effects.len(), 1);
}

/// SEC-53: an owner sleeps between the intent of a call and the call. Its successor says that the outcome is unknown; the
/// owner wakes up and does not begin what was given up.
#[tokio::test(flavor = "multi_thread")]
async fn sec_53_an_owner_that_slept_before_a_call_does_not_begin_it() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let sleeper = [world.worker(&["harness"]).await];
    let id = session("s");
    // The claim with the generation, then its answer with the intent.
    let steps = Steps::before(&sleeper, &id, 2);
    let sending = world.owner.begin(&id, "write it");
    let stop = steps.stop().await;
    stop.store();
    let is_intent = |event: &Event| matches!(event, Event::CallStarted { .. });
    world
        .owner
        .until(&id, "the intent is stored", |events| {
            events.iter().any(is_intent)
        })
        .await;
    sleeper[0].pause().await;
    stop.pass();
    let mut successor = world.worker(&["harness"]).await;
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    wake(&world, &sleeper[0], &mut successor).await;
    let accepted = [sending.await.expect("accepted")];
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::OutcomeUnknown]);
    assert_eq!(evidence.effects, []);
}
