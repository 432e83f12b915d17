//! Kills of the harness in the middle of something: a stream, a call, a wait, a queue.

use serde_json::json;
use teamster_protocol::{Event, Message, event::EndReason, message::ResultKind};
use teamster_telemetry::task;
use teamster_testkit::wait;

use crate::{
    operator::{LIMIT, session},
    outside::withhold,
    steps::Steps,
    world::{SIBLINGS, World},
};

/// DUR-1, DUR-3: a harness is killed while a model streams; the next one takes the answer that is on its way, and nothing
/// is paid for twice.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_kill_in_mid_stream_costs_no_second_request() {
    for is_replica_there in [false, true] {
        let world = World::start().await;
        let _siblings = world.worker(&SIBLINGS).await;
        let mut harness = world.worker(&["harness"]).await;
        let id = session("s");
        let gate = world.model.hold("talk", 0);
        let accepted = [world.owner.send(&id, "talk").await];
        gate.reached(LIMIT).await;
        // A replica that comes now finds the session in good hands.
        let replica = if is_replica_there {
            Some(world.worker(&["harness"]).await)
        } else {
            None
        };
        harness.kill().await;
        let _next = match replica {
            Some(replica) => replica,
            None => world.worker(&["harness"]).await,
        };
        gate.open();
        assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
        world.verify(&id, &accepted).await;
        assert_eq!(world.model.count(), 1);
    }
}

/// SEC-53, DUR-3: a harness is killed while a call runs that must not run twice; the next one takes the result, and a new
/// message is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn sec_53_a_kill_in_mid_call_repeats_nothing() {
    for is_replica_there in [false, true] {
        let world = World::start().await;
        let _siblings = world.worker(&SIBLINGS).await;
        let mut harness = world.worker(&["harness"]).await;
        let id = session("s");
        world.outside.door.shut();
        let mut accepted = vec![world.owner.send(&id, "slow call").await];
        world.outside.door.reached(1, LIMIT).await;
        let replica = if is_replica_there {
            Some(world.worker(&["harness"]).await)
        } else {
            None
        };
        harness.kill().await;
        let _next = match replica {
            Some(replica) => replica,
            None => world.worker(&["harness"]).await,
        };
        world
            .owner
            .until(&id, "is taken over", |events| {
                events.iter().any(is_takeover)
            })
            .await;
        world.outside.door.open();
        assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
        accepted.push(world.owner.send(&id, "talk").await);
        world.owner.finish(&id, 2).await;
        let evidence = world.verify(&id, &accepted).await;
        assert_eq!(evidence.outcomes(), [ResultKind::Ok]);
        assert_eq!(evidence.effects.len(), 1);
    }
}

/// DUR-1, DUR-3: the doorbell that is a turn's lease was removed, as an owner does it that wakes up late, and nothing lies in the
/// queues any more; then the turn's owner is killed. Another process finds the turn by its log.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_turn_whose_lease_is_gone_outlives_its_owner() {
    for is_replica_there in [false, true] {
        let world = World::start().await;
        let _siblings = world.worker(&SIBLINGS).await;
        let mut harness = world.worker(&["harness"]).await;
        let id = session("s");
        let gate = world.model.hold("talk", 0);
        let accepted = [world.owner.send(&id, "talk").await];
        gate.reached(LIMIT).await;
        // With a ring of the harness's own start, which may have come late.
        let other = world.connect("harness").await;
        wait::until(LIMIT, "nothing lies in the queues", || async {
            for stream in ["TURNS", "CONTROL"] {
                let purge = format!("$JS.API.STREAM.PURGE.{stream}");
                other
                    .request(purge, "{}".into(), LIMIT)
                    .await
                    .expect("purged");
            }
            let sessions = other.lanes().sessions().await;
            sessions.is_ok_and(|sessions| sessions.is_empty())
        })
        .await;
        // One that comes now finds nothing to ring for.
        let mut next = if is_replica_there {
            Some(world.worker(&["harness"]).await)
        } else {
            None
        };
        harness.kill().await;
        if next.is_none() {
            next = Some(world.worker(&["harness"]).await);
        }
        gate.open();
        assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
        world.verify(&id, &accepted).await;
        drop(next);
    }
}

fn is_takeover(event: &Event) -> bool {
    matches!(event, Event::TookOver { .. })
}

/// A result that is found after a kill meets the hooks like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_found_after_a_kill_passes_the_hooks() {
    let world = World::start().await;
    let _guard = withhold(world.connect("guard").await).await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    world.outside.door.shut();
    let accepted = [world.owner.send(&id, "slow call").await];
    world.outside.door.reached(1, LIMIT).await;
    harness.kill().await;
    let _next = world.worker(&["harness"]).await;
    world
        .owner
        .until(&id, "is taken over", |events| {
            events.iter().any(is_takeover)
        })
        .await;
    world.outside.door.open();
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    let mut events = evidence.commits.iter().flat_map(|commit| &commit.events);
    let text = events.find_map(|event| match event {
        Event::CallFinished { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(text, Some("withheld"));
}

/// DUR-1, APPR-1: everything is killed while a decision is pending. The effects before it are not repeated, the request is
/// still there, and what is approved runs once.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_kill_while_a_decision_is_pending_loses_nothing() {
    let world = World::start().await;
    let mut siblings = world.worker(&SIBLINGS).await;
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    let accepted = [world.owner.send(&id, "full turn").await];
    let pending = world.owner.pending(&id).await;
    let requests = world.model.count();
    harness.kill().await;
    siblings.kill().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let _harness = world.worker(&["harness"]).await;
    let again = world.owner.pending(&id).await;
    assert_eq!(
        (again.approval_id.clone(), again.digest),
        (pending.approval_id, pending.digest)
    );
    assert_eq!(world.model.count(), requests);
    world.owner.approve(&again).await;
    assert_eq!(world.owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Ok; 3]);
    assert_eq!(evidence.effects.len(), 3);
}

/// APPR-1: a wait that ends while nobody lives ends all the same.
#[tokio::test(flavor = "multi_thread")]
async fn appr_1_a_wait_ends_although_nobody_lived_then() {
    let world = World::start_with(&json!({"default_pending_timeout_ms": 1500})).await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    let accepted = [world.owner.send(&id, "destroy it").await];
    world
        .owner
        .until(&id, "asks", |events| {
            events
                .iter()
                .any(|event| matches!(event, Event::ApprovalRequested { .. }))
        })
        .await;
    harness.kill().await;
    let _harness = world.worker(&["harness"]).await;
    world
        .owner
        .until(&id, "ends", |events| {
            events
                .iter()
                .any(|event| matches!(event, Event::TurnEnded { .. }))
        })
        .await;
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Expired]);
    assert!(evidence.effects.is_empty());
}

/// APPR-1: a harness is killed when a request was stored and before its timer could be set: the wait ends all the same.
#[tokio::test(flavor = "multi_thread")]
async fn appr_1_a_wait_ends_although_its_timer_was_not_set_then() {
    let world = World::start_with(&json!({"default_pending_timeout_ms": 1500})).await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = [world.worker(&["harness"]).await];
    let id = session("s");
    let steps = Steps::before(&harness, &id, 2);
    let sending = world.owner.begin(&id, "destroy it");
    // The claim with the generation, then its answer with the request.
    let stop = steps.stop().await;
    stop.store();
    world
        .owner
        .until(&id, "asks", |events| events.iter().any(is_request))
        .await;
    harness[0].kill().await;
    stop.lose();
    let _harness = world.worker(&["harness"]).await;
    world
        .owner
        .until(&id, "ends", |events| events.iter().any(is_end))
        .await;
    let accepted = [sending.await.expect("accepted")];
    let evidence = world.verify(&id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Expired]);
    assert!(evidence.effects.is_empty());
}

fn is_request(event: &Event) -> bool {
    matches!(event, Event::ApprovalRequested { .. })
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::TurnEnded { .. })
}

/// LOOP-1: a stop that was accepted ends the turn, although its harness was killed before it could.
#[tokio::test(flavor = "multi_thread")]
async fn loop_1_a_stop_outlives_the_harness_that_took_it() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = [world.worker(&["harness"]).await];
    let id = session("s");
    let gate = world.model.hold("talk", 0);
    let mut accepted = vec![world.owner.send(&id, "talk").await];
    gate.reached(LIMIT).await;
    let end = Steps::before(&harness, &id, world.owner.count(&id).await + 1);
    let (client, stopped) = (world.owner.client.clone(), id.clone());
    let stopping = task::spawn("stop", async move { client.stop(&stopped, None).await });
    let end = end.stop().await;
    harness[0].kill().await;
    end.lose();
    let _harness = world.worker(&["harness"]).await;
    let reasons = world.owner.finish(&id, 1).await;
    stopping.await.expect("asked").expect("accepted");
    assert!(
        matches!(reasons[..], [EndReason::Cancelled { .. }]),
        "{reasons:?}"
    );
    accepted.push(world.owner.send(&id, "read it").await);
    assert_eq!(world.owner.finish(&id, 2).await[1], EndReason::Completed);
    world.verify(&id, &accepted).await;
}

/// DUR-4: ten messages of one session, a kill in the first answer: all are answered, in order, none twice.
#[tokio::test(flavor = "multi_thread")]
async fn dur_4_ten_messages_and_a_kill_are_answered_in_order() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let mut harness = world.worker(&["harness"]).await;
    let id = session("s");
    let gate = world.model.hold("talk 0", 0);
    let mut accepted = vec![world.owner.send(&id, "talk 0").await];
    gate.reached(LIMIT).await;
    for number in 1..10 {
        accepted.push(world.owner.send(&id, &format!("talk {number}")).await);
    }
    harness.kill().await;
    gate.open();
    let _harness = world.worker(&["harness"]).await;
    world
        .owner
        .until(&id, "the last is answered", |events| {
            // Messages that waited are put to the model together.
            events
                .iter()
                .filter_map(says)
                .any(|text| text.ends_with("talk 9"))
                && matches!(events.last(), Some(Event::TurnEnded { .. }))
        })
        .await;
    world.verify(&id, &accepted).await;
}

fn says(event: &Event) -> Option<String> {
    let Event::GenerationFinished {
        message: Some(Message::Assistant { content, .. }),
        ..
    } = event
    else {
        return None;
    };
    content.iter().find_map(|part| match part {
        teamster_protocol::message::Content::Text { text } => Some(text.clone()),
        _ => None,
    })
}
