//! A kill between every two commits of a turn: before a commit is stored, and after, when its writer does not know.

use teamster_protocol::{event::EndReason, message::ResultKind};
use teamster_testkit::wait;

use crate::{
    operator::{LIMIT, session},
    steps::{Place, Steps},
    world::{SIBLINGS, Worker, World},
};

/// One turn with everything in it: a read, a write, a destructive call that a person approves, an answer.
const MESSAGE: &str = "full turn";

/// How many commits the turn makes when nothing goes wrong.
async fn commits_of_a_turn(world: &World) -> usize {
    let id = session("undisturbed");
    let accepted = [world.owner.send(&id, MESSAGE).await];
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.effects.len(), 3);
    evidence.commits.len()
}

/// Kills the writer of the `nth` commit; false where the turn ended with the one before: a decision may join the commit that it
/// would have come behind.
async fn kill_at(world: &World, workers: &mut [Worker], nth: usize, place: Place) -> bool {
    let id = session(&format!("{place:?}-{nth}"));
    let steps = Steps::before(workers, &id, nth);
    let sending = world.owner.begin(&id, MESSAGE);
    let stop = tokio::select! {
        stop = steps.stop() => stop,
        reasons = world.owner.finish(&id, 1) => {
            assert_eq!(reasons, [EndReason::Completed]);
            assert_eq!(world.owner.count(&id).await, nth - 1, "the turn ended early");
            return false;
        }
    };
    if place == Place::Unconfirmed {
        stop.store();
        // Where another worker's commit came first, it has gone on since.
        wait::until(LIMIT, "the commit is stored", || async {
            world.owner.count(&id).await >= nth
        })
        .await;
    }
    workers[stop.writer].kill().await;
    if workers.len() == 1 {
        let stored = if place == Place::Unsent { nth - 1 } else { nth };
        assert_eq!(
            world.owner.count(&id).await,
            stored,
            "the kill came at the planned point"
        );
    }
    let writer = stop.writer;
    stop.lose();
    if workers.len() == 1 {
        workers[writer] = world.worker(&["harness"]).await;
    }
    assert_eq!(
        world.owner.finish(&id, 1).await,
        [EndReason::Completed],
        "{place:?} {nth}"
    );
    let accepted = [sending.await.expect("accepted")];
    let evidence = world.verify(&id, &accepted).await;
    let unknown = evidence
        .outcomes()
        .iter()
        .filter(|outcome| **outcome == ResultKind::OutcomeUnknown)
        .count();
    // A call whose intent was stored and which nobody had begun is the only one that may be unknown.
    assert!(unknown <= 1, "{place:?} {nth}: {:?}", evidence.outcomes());
    if workers.len() > 1 {
        workers[writer] = world.worker(&["harness"]).await;
    }
    true
}

async fn kill_at_every_commit(harnesses: usize, place: Place) {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut workers = Vec::new();
    for _ in 0..harnesses {
        workers.push(world.worker(&["harness"]).await);
    }
    let commits = commits_of_a_turn(&world).await;
    assert!(
        commits >= 5,
        "the turn has steps to kill between: {commits}"
    );
    for nth in 1..=commits {
        let is_killed = kill_at(&world, &mut workers, nth, place).await;
        assert!(is_killed || nth == commits, "only the last may be missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_53_a_kill_before_any_commit_and_a_restart() {
    kill_at_every_commit(1, Place::Unsent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_53_a_kill_after_any_commit_and_a_restart() {
    kill_at_every_commit(1, Place::Unconfirmed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dur_3_a_kill_before_any_commit_and_a_replica() {
    kill_at_every_commit(2, Place::Unsent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dur_3_a_kill_after_any_commit_and_a_replica() {
    kill_at_every_commit(2, Place::Unconfirmed).await;
}

/// Another worker is killed while a commit is under way, and is back when the turn goes on: nobody sees anything of it.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_kill_of_another_worker_between_any_two_commits() {
    let world = World::start().await;
    let mut siblings = Vec::new();
    for name in SIBLINGS {
        siblings.push(world.worker(&[name]).await);
    }
    let harness = [world.worker(&["harness"]).await];
    let commits = commits_of_a_turn(&world).await;
    for (index, name) in SIBLINGS.into_iter().enumerate() {
        for nth in 1..=commits {
            let id = session(&format!("{name}-{nth}"));
            let steps = Steps::before(&harness, &id, nth);
            let sending = world.owner.begin(&id, MESSAGE);
            let stop = tokio::select! {
                stop = steps.stop() => stop,
                reasons = world.owner.finish(&id, 1) => {
                    assert_eq!((reasons.as_slice(), nth), ([EndReason::Completed].as_slice(), commits));
                    continue;
                }
            };
            siblings[index].kill().await;
            siblings[index] = world.worker(&[name]).await;
            stop.pass();
            assert_eq!(
                world.owner.finish(&id, 1).await,
                [EndReason::Completed],
                "{name} {nth}"
            );
            let accepted = [sending.await.expect("accepted")];
            let evidence = world.verify(&id, &accepted).await;
            assert_eq!(evidence.outcomes(), [ResultKind::Ok; 3], "{name} {nth}");
        }
    }
}
