//! Kills in the middle of administration: of a change, of a fork, of a deletion and of what it cleans up.

use std::time::Duration;

use serde_json::{Value, json};
use teamster_mesh::connection::Call;
use teamster_protocol::{
    Commit, Event, FunctionId, MessageId, Phase, Principal, SessionId,
    event::EndReason,
    function::{harness::SendReply, session::ChangeReply},
    input::{AdminAction, Appended},
};
use teamster_testkit::{proxy::Hold, wait};

use crate::{
    operator::{LIMIT, session},
    steps::{Place, Steps},
    world::{SIBLINGS, Worker, World},
};

/// One turn with everything in it: a read, a write, a destructive call that a person approves, an answer.
const MESSAGE: &str = "full turn";
/// How long one try of a command may take.
const TRY: Duration = Duration::from_secs(8);

async fn world() -> (World, Worker, [Worker; 1]) {
    let world = World::start().await;
    let siblings = world.worker(&SIBLINGS).await;
    let harness = [world.worker(&["harness"]).await];
    (world, siblings, harness)
}

/// Sends a message and stops the `nth` commit that it leads to; `None` where the turn ended with the one before: a decision may join
/// the commit that it would have come behind.
async fn stopped<F, Fut>(
    world: &World,
    harness: &mut [Worker; 1],
    id: &SessionId,
    (nth, place): (usize, Place),
    meanwhile: F,
) -> Option<SendReply>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ()>,
{
    let steps = Steps::before(harness, id, nth);
    let sending = world.owner.begin(id, MESSAGE);
    let stop = tokio::select! {
        stop = steps.stop() => stop,
        reasons = world.owner.finish(id, 1) => {
            assert_eq!(reasons, [EndReason::Completed]);
            assert_eq!(world.owner.count(id).await, nth - 1, "the turn ended early");
            return None;
        }
    };
    meanwhile().await;
    if place == Place::Unconfirmed {
        stop.store();
        wait::until(LIMIT, "the commit is stored", || async {
            world.owner.count(id).await == nth
        })
        .await;
    }
    harness[0].kill().await;
    stop.lose();
    harness[0] = world.worker(&["harness"]).await;
    Some(sending.await.expect("accepted"))
}

/// How many commits the turn makes when nothing goes wrong.
async fn commits_of_a_turn(world: &World) -> usize {
    let id = session("undisturbed");
    let accepted = [world.owner.send(&id, MESSAGE).await];
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    world.verify(&id, &accepted).await.commits.len()
}

fn append() -> AdminAction {
    AdminAction::Append {
        messages: vec![
            Appended::User {
                text: "talk aside".to_owned(),
            },
            Appended::Custom {
                kind: "note".to_owned(),
                text: "kept".to_owned(),
            },
        ],
    }
}

fn retitle() -> AdminAction {
    AdminAction::SetMeta {
        title: Some("new".to_owned()),
        metadata: [].into(),
    }
}

/// DUR-1: whichever commit of a turn its owner dies at, what an administrator changed and added meanwhile is there once.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_kill_at_any_commit_leaves_changes_whole() {
    let (world, _siblings, mut harness) = world().await;
    let commits = commits_of_a_turn(&world).await;
    // The session is there from the first commit on.
    for nth in 2..=commits {
        for place in [Place::Unsent, Place::Unconfirmed] {
            let id = session(&format!("{place:?}-{nth}"));
            let reply = stopped(&world, &mut harness, &id, (nth, place), || async {
                world.owner.administer(&id, "a", append()).await;
                world.owner.administer(&id, "b", retitle()).await;
            })
            .await;
            let Some(reply) = reply else {
                assert_eq!(nth, commits, "only the last may be missing");
                continue;
            };
            let inputs = ["a", "b"].map(|key| MessageId::of_input(&id, "admin", key));
            let accepted = [reply];
            world.owner.settle(&id, &accepted).await;
            world.owner.settle_inputs(&id, &inputs).await;
            let evidence = world.verify(&id, &accepted).await;
            let events: Vec<&Event> = evidence
                .commits
                .iter()
                .flat_map(|commit| &commit.events)
                .collect();
            let joined =
                |event: &&&Event| matches!(event, Event::MessageAdded { appended: true, .. });
            assert_eq!(events.iter().filter(joined).count(), 2, "{place:?} {nth}");
            let changed = |event: &&&Event| matches!(event, Event::MetaChanged { .. });
            assert_eq!(events.iter().filter(changed).count(), 1, "{place:?} {nth}");
        }
    }
}

/// Waits until nothing is left of a session but its tombstone and what came after it.
async fn erased(world: &World, id: &SessionId) -> Commit {
    let mesh = world.owner.client.mesh();
    wait::some(LIMIT, "only the tombstone is left", || async {
        let mut commits = world.owner.commits(id).await?;
        let is_first =
            |commit: &Commit| matches!(commit.events.last(), Some(Event::SessionDeleted { .. }));
        let first = commits.iter().position(is_first)?;
        let snapshot = mesh.snaps().get(id).await.ok()??;
        let timers = mesh.lanes().timers(id).await.ok()?;
        let is_clean = first == 0 && snapshot.mark.n >= commits[0].n && timers.is_empty();
        is_clean.then(|| commits.swap_remove(0))
    })
    .await
}

/// A message to a deleted session begins it anew; commits are numbered on, turns from the first.
async fn begins_anew(world: &World, id: &SessionId, tombstone: &Commit) {
    let accepted = [world.owner.send(id, "talk again").await];
    world.owner.settle(id, &accepted).await;
    let evidence = world.verify(id, &accepted).await;
    let next = evidence
        .commits
        .iter()
        .find(|commit| commit.n == tombstone.n + 1);
    assert!(next.is_some(), "commits are numbered on");
    let mut events = evidence.commits.iter().flat_map(|commit| &commit.events);
    assert!(
        events.any(|event| matches!(event, Event::TurnStarted { number: 1, .. })),
        "turns begin anew"
    );
}

/// DUR-9, DUR-3: whichever commit of a turn its owner dies at, a deletion that was accepted meanwhile is done by the next, and the
/// session can begin anew.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_kill_at_any_commit_does_not_stop_a_deletion() {
    let (world, _siblings, mut harness) = world().await;
    let commits = commits_of_a_turn(&world).await;
    for nth in 2..=commits {
        for place in [Place::Unsent, Place::Unconfirmed] {
            let id = session(&format!("{place:?}-{nth}"));
            let reply = stopped(&world, &mut harness, &id, (nth, place), || async {
                world.owner.administer(&id, "d", AdminAction::Delete).await;
            })
            .await;
            if reply.is_none() {
                assert_eq!(nth, commits, "only the last may be missing");
                continue;
            }
            let tombstone = erased(&world, &id).await;
            world.verify(&id, &[]).await;
            begins_anew(&world, &id, &tombstone).await;
        }
    }
}

/// DUR-9: a kill before a tombstone is stored, and after, when its writer does not know.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_kill_at_the_tombstone_deletes_all_the_same() {
    let (world, _siblings, mut harness) = world().await;
    for place in [Place::Unsent, Place::Unconfirmed] {
        let id = session(&format!("{place:?}"));
        let accepted = [world.owner.send(&id, MESSAGE).await];
        world.owner.settle(&id, &accepted).await;
        let before = world.owner.count(&id).await;
        let steps = Steps::before(&harness, &id, before + 1);
        world.owner.administer(&id, "d", AdminAction::Delete).await;
        let stop = steps.stop().await;
        if place == Place::Unconfirmed {
            stop.store();
            wait::until(LIMIT, "the tombstone is stored", || async {
                world.owner.count(&id).await == before + 1
            })
            .await;
        }
        harness[0].kill().await;
        stop.lose();
        harness[0] = world.worker(&["harness"]).await;
        let tombstone = erased(&world, &id).await;
        world.verify(&id, &[]).await;
        begins_anew(&world, &id, &tombstone).await;
    }
}

/// The steps of a clean-up, by what its owner publishes: subject and number.
const STEPS: [(&str, usize); 7] = [
    ("$JS.API.STREAM.PURGE.CONTROL", 1),
    ("$JS.API.STREAM.MSG.DELETE.TURNS", 1),
    ("snap.", 1),
    ("$JS.API.STREAM.MSG.DELETE.LOG", 1),
    ("$JS.API.STREAM.MSG.DELETE.LOG", 2),
    ("$JS.API.STREAM.MSG.DELETE.LOG", 3),
    ("$JS.API.STREAM.MSG.DELETE.CONTROL", 1),
];

/// DUR-9: a kill before and after each step of a clean-up: the next owner does what is left of it, also where a message has begun
/// the session anew before anybody could.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_kill_between_any_two_steps_of_a_clean_up_leaves_nothing() {
    let (world, _siblings, mut harness) = world().await;
    for (index, (subject, nth)) in STEPS.into_iter().enumerate() {
        for is_done in [false, true] {
            for is_anew in [false, true] {
                let id = session(&format!("s{index}-{is_done}-{is_anew}"));
                // A request is open and a message waits, so that there is something of everything.
                world.owner.send(&id, MESSAGE).await;
                world.owner.pending(&id).await;
                world.owner.send(&id, "talk later").await;
                let proxy = &harness[0].proxy;
                let hold = if is_done {
                    proxy.hold_answer(subject, nth)
                } else {
                    proxy.hold_publish(subject, nth)
                };
                world.owner.administer(&id, "d", AdminAction::Delete).await;
                hold.reached(LIMIT).await;
                let sent = kill(&world, &mut harness, hold, &id, is_anew).await;
                world.owner.settle(&id, &sent).await;
                let tombstone = erased(&world, &id).await;
                let evidence = world.verify(&id, &sent).await;
                if is_anew {
                    assert_eq!(evidence.commits[1].n, tombstone.n + 1);
                } else {
                    begins_anew(&world, &id, &tombstone).await;
                }
            }
        }
    }
}

/// Kills the harness at a hold, and starts another; with `is_anew` a message is there before it.
async fn kill(
    world: &World,
    harness: &mut [Worker; 1],
    hold: Hold,
    id: &SessionId,
    is_anew: bool,
) -> Vec<SendReply> {
    harness[0].kill().await;
    hold.cut();
    let sending = is_anew.then(|| world.owner.begin(id, "talk anew"));
    harness[0] = world.worker(&["harness"]).await;
    match sending {
        Some(sending) => vec![sending.await.expect("accepted")],
        None => Vec::new(),
    }
}

/// Asks the session worker as an operator whose call has an id, again and again until it answers.
async fn command(world: &World, function: &str, call: &str, request: &Value) -> ChangeReply {
    let call = Call {
        principal: Some(Principal::parse("owner").expect("valid")),
        timeout: TRY,
        call: Some(call.to_owned()),
        ..Call::new(
            FunctionId::parse(function).expect("valid"),
            request.to_string(),
        )
    };
    let mesh = world.owner.client.mesh();
    wait::some(LIMIT, "the command is answered", || async {
        let reply = mesh.call(call.clone()).await.ok()?;
        let reply: ChangeReply = serde_json::from_slice(&reply).expect("a reply");
        reply.commit.is_some().then_some(reply)
    })
    .await
}

/// DUR-2: the session worker is killed before and after it stores what a fork begins with, and before and after it stores the
/// input: the repeated command makes one fork, and the source does not change.
#[tokio::test(flavor = "multi_thread")]
async fn dur_2_a_kill_in_mid_fork_makes_one_fork_or_none() {
    let (world, _siblings, _harness) = world().await;
    let mut worker = world.worker(&["session"]).await;
    let source = session("source");
    let accepted = [world.owner.send(&source, MESSAGE).await];
    world.owner.settle(&source, &accepted).await;
    let before = world.owner.commits(&source).await.expect("readable");
    for (subject, is_done) in [
        ("blob.", false),
        ("blob.", true),
        ("turn.ctl.", false),
        ("turn.ctl.", true),
    ] {
        let id = session(&format!("{}{is_done}", subject.trim_end_matches('.')));
        let hold = if is_done {
            worker.proxy.hold_answer(subject, 1)
        } else {
            worker.proxy.hold_publish(subject, 1)
        };
        // Another title each time, so that no value is stored already.
        let request = json!({"session_id": source, "new_session_id": id, "at": before.len() - usize::from(is_done) - subject.len() % 2});
        let asking = command(&world, "session::fork", id.as_str(), &request);
        let killing = async {
            hold.reached(LIMIT).await;
            worker.kill().await;
            hold.cut();
            world.worker(&["session"]).await
        };
        let (reply, next) = tokio::join!(asking, killing);
        worker = next;
        assert_eq!((&reply.session_id, reply.commit), (&id, Some(1)));
        let sent = [world.owner.send(&id, "talk on").await];
        world.owner.settle(&id, &sent).await;
        let evidence = world.verify(&id, &sent).await;
        let forks = evidence.commits.iter().flat_map(|commit| &commit.events);
        let forks = forks.filter(|event| matches!(event, Event::SessionForked { .. }));
        assert_eq!(forks.count(), 1);
    }
    assert_eq!(
        world.owner.commits(&source).await.expect("readable"),
        before
    );
}

/// DUR-2: a harness is killed at the first commit of a fork; the next one begins it, with everything.
#[tokio::test(flavor = "multi_thread")]
async fn dur_2_a_kill_at_the_first_commit_of_a_fork_begins_it_once() {
    let (world, _siblings, mut harness) = world().await;
    let _worker = world.worker(&["session"]).await;
    let source = session("source");
    let accepted = [world.owner.send(&source, MESSAGE).await];
    world.owner.settle(&source, &accepted).await;
    for place in [Place::Unsent, Place::Unconfirmed] {
        let id = session(&format!("{place:?}"));
        let steps = Steps::before(&harness, &id, 1);
        let request = json!({"session_id": source, "new_session_id": id});
        let asking = command(&world, "session::fork", id.as_str(), &request);
        let killing = async {
            let stop = steps.stop().await;
            if place == Place::Unconfirmed {
                stop.store();
                wait::until(LIMIT, "the fork is stored", || async {
                    world.owner.count(&id).await == 1
                })
                .await;
            }
            harness[0].kill().await;
            stop.lose();
            world.worker(&["harness"]).await
        };
        let (reply, next) = tokio::join!(asking, killing);
        harness[0] = next;
        assert_eq!(reply.commit, Some(1));
        let sent = [world.owner.send(&id, "talk on").await];
        world.owner.settle(&id, &sent).await;
        let evidence = world.verify(&id, &sent).await;
        assert_eq!(evidence.commits[0].head.phase, Phase::Idle);
        assert!(evidence.base.len() > 5, "it begins with the whole turn");
    }
}

/// DUR-9: the session worker is killed in the middle of a deletion: it is done all the same, and the repeated command is answered
/// with the commit that did it.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_kill_in_mid_command_deletes_once() {
    let (world, _siblings, _harness) = world().await;
    let mut worker = world.worker(&["session"]).await;
    for is_done in [false, true] {
        let id = session(&format!("{is_done}"));
        let accepted = [world.owner.send(&id, "talk").await];
        world.owner.settle(&id, &accepted).await;
        let hold = if is_done {
            worker.proxy.hold_answer("turn.ctl.", 1)
        } else {
            worker.proxy.hold_publish("turn.ctl.", 1)
        };
        let request = json!({"session_id": id, "confirm": true});
        let asking = command(&world, "session::delete", id.as_str(), &request);
        let killing = async {
            hold.reached(LIMIT).await;
            worker.kill().await;
            hold.cut();
            world.worker(&["session"]).await
        };
        let (reply, next) = tokio::join!(asking, killing);
        worker = next;
        let tombstone = erased(&world, &id).await;
        assert_eq!(reply.commit, Some(tombstone.n));
        begins_anew(&world, &id, &tombstone).await;
        let again = command(&world, "session::delete", id.as_str(), &request).await;
        assert_eq!(again, reply, "what began since is not touched");
        assert_eq!(
            world.owner.commits(&id).await.expect("readable")[0].n,
            tombstone.n
        );
    }
}
