//! Kills of the harness in the middle of something: a stream, a call, a wait.

use teamster_protocol::{SessionId, event::EndReason};

use crate::{
    evidence::{Evidence, verify},
    world::{LIMIT, SIBLINGS, World, session},
};

/// Asserts that the session's single turn was completed, and that all is in order.
async fn completed(world: &World, id: &SessionId, accepted: &[teamster_protocol::function::harness::SendReply]) -> Evidence {
    assert_eq!(world.finish(id, 1).await, [EndReason::Completed]);
    verify(world, id, accepted).await
}

/// DUR-1, DUR-3: a harness is killed while a model streams; the next one takes the answer that is on its way, and nothing
/// is paid for twice.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_kill_in_mid_generation_costs_no_second_request() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    let gate = world.model.hold("talk", 0);
    let accepted = [world.send(&id, "talk").await];
    gate.reached(LIMIT).await;
    harness.kill().await;
    let _next = world.worker(&["harness"]).await;
    gate.open();
    completed(&world, &id, &accepted).await;
    assert_eq!(world.model.count(), 1);
}
