//! Kills of the workers around the harness, each in the middle of what it does for a turn.

use teamster_protocol::{Event, event::EndReason, message::ResultKind};
use teamster_testkit::wait;

use crate::{
    operator::{LIMIT, session},
    world::World,
};

/// What a worker says to the harness: the answers to its calls.
const ANSWER: &str = "_INBOX.harness";

/// A router is killed while it streams: the generation is begun again, and that is visible.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_router_killed_in_mid_stream_is_asked_again() {
    let world = World::start().await;
    let mut router = world.worker(&["router"]).await;
    let _others = world.worker(&["approval-gate", "sandbox", "harness"]).await;
    let id = session("s");
    let gate = world.model.hold("talk", 0);
    let accepted = [world.owner.send(&id, "talk").await];
    gate.reached(LIMIT).await;
    router.kill().await;
    let _router = world.worker(&["router"]).await;
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    let tries = evidence.commits.iter().flat_map(|commit| &commit.events);
    assert_eq!(
        tries
            .filter(|event| matches!(event, Event::GenerationStarted { .. }))
            .count(),
        2
    );
    assert_eq!(world.model.count(), 2);
}

/// SEC-58: a gate is killed while it judges: the call is denied, not run, and the next turn is judged by its successor.
#[tokio::test(flavor = "multi_thread")]
async fn sec_58_a_gate_killed_in_mid_judgement_lets_nothing_through() {
    let world = World::start().await;
    let mut gate = world.worker(&["approval-gate"]).await;
    let _others = world.worker(&["router", "sandbox", "harness"]).await;
    let id = session("s");
    let verdict = gate.proxy.hold_publish(ANSWER, 1);
    let mut accepted = vec![world.owner.send(&id, "write it").await];
    verdict.reached(LIMIT).await;
    gate.kill().await;
    verdict.cut();
    let _gate = world.worker(&["approval-gate"]).await;
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    accepted.push(world.owner.send(&id, "read it").await);
    world.owner.finish(&id, 2).await;
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(
        evidence.outcomes(),
        [ResultKind::GateUnavailable, ResultKind::Ok]
    );
    assert_eq!(evidence.effects.len(), 1);
}

/// SEC-53, DUR-8: a sandbox is killed after an edit took effect and before it could say so: the outcome is unknown, the model
/// is told, and the edit is not made again.
#[tokio::test(flavor = "multi_thread")]
async fn dur_8_a_sandbox_killed_after_its_effect_leaves_the_outcome_unknown() {
    let world = World::start().await;
    let mut sandbox = world.worker(&["sandbox"]).await;
    let _others = world.worker(&["router", "approval-gate", "harness"]).await;
    let id = session("s");
    let mut accepted = vec![world.owner.send(&id, "edit it").await];
    let pending = world.owner.pending(&id).await;
    let answer = sandbox.proxy.hold_publish(ANSWER, 1);
    world.owner.approve(&pending).await;
    answer.reached(LIMIT).await;
    let file = world.workspace().join("notes.md");
    let read = || std::fs::read_to_string(&file).expect("a file");
    wait::until(LIMIT, "the edit is made", || async {
        read() == "notes, notes\n"
    })
    .await;
    sandbox.kill().await;
    answer.cut();
    let _sandbox = world.worker(&["sandbox"]).await;
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    accepted.push(world.owner.send(&id, "talk").await);
    world.owner.finish(&id, 2).await;
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::OutcomeUnknown]);
    assert_eq!(read(), "notes, notes\n");
}

/// SEC-53, SBX-1: a sandbox is killed while a command runs: no process of the command outlives it, the outcome is unknown, and the
/// command does not run again.
#[tokio::test(flavor = "multi_thread")]
async fn dur_8_a_sandbox_killed_in_mid_command_leaves_no_process_and_an_unknown_outcome() {
    let world = World::start().await;
    let mut sandbox = world.worker(&["sandbox"]).await;
    let _others = world.worker(&["router", "approval-gate", "harness"]).await;
    let id = session("s");
    let mut accepted = vec![world.owner.send(&id, "command it").await];
    let pending = world.owner.pending(&id).await;
    let shown = pending.arguments.as_str();
    assert!(shown.contains("setsid sleep 7001"), "{shown}");
    world.owner.approve(&pending).await;
    let count = world.workspace().join("count");
    let read = || std::fs::read_to_string(&count).unwrap_or_default();
    wait::until(LIMIT, "the command runs", || async { read() == "ran\n" }).await;
    wait::until(LIMIT, "its processes are there", || async {
        sleepers() >= 2
    })
    .await;
    sandbox.kill().await;
    wait::until(LIMIT, "no process of it is left", || async {
        sleepers() == 0
    })
    .await;
    let _sandbox = world.worker(&["sandbox"]).await;
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    accepted.push(world.owner.send(&id, "talk").await);
    world.owner.finish(&id, 2).await;
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::OutcomeUnknown]);
    assert_eq!(read(), "ran\n");
}

/// Processes of the command that are alive, on the whole host.
fn sleepers() -> usize {
    let processes = std::fs::read_dir("/proc").expect("processes");
    processes
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| line == b"sleep\x007001\x00")
        .count()
}
