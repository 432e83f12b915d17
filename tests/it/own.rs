//! Who runs a session: several harnesses, hand-over in mid-turn, floods, full queues, and nobody at all.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use serde_json::json;
use teamster::harness;
use teamster_protocol::{
    Commit, Event, Message, MessageId, Phase, Principal, SessionId,
    event::EndReason,
    function::{harness::StopReply, router::ChatRequest},
    id::Incarnation,
    input::{Send, SessionOptions, TurnOptions},
    limits,
    message::{Content, ResultKind},
};
use teamster_router::config::{Config as RouterConfig, Provider};
use teamster_testkit::{
    model::{self, ModelServer, Reply},
    wait,
};

use crate::scene::{Gate, LIMIT, Parts, Scene, calls, outcomes, results, says, session};

fn config() -> harness::Config {
    Parts::new(|_| says("")).harness
}

async fn serve_harness(scene: &mut Scene, config: &harness::Config) -> Incarnation {
    scene.serve(harness::worker(config).expect("harness")).await
}

/// Who wrote a session's commits.
fn owners(commits: &[Commit]) -> BTreeSet<String> {
    let owners = commits.iter().map(|commit| commit.head.owner.to_string());
    owners.collect()
}

/// A message as a client stores it, past every harness.
async fn store(scene: &Scene, session: &SessionId, key: &str, text: &str) {
    let id = MessageId::of_input(session, "in", key);
    let send = Send {
        id: id.clone(),
        from: Principal::parse("owner").expect("valid"),
        text: text.to_owned(),
        at_ms: 1,
        session: SessionOptions::default(),
        options: TurnOptions::default(),
    };
    let body = serde_json::to_vec(&send).expect("encodes");
    let lanes = scene.operator.lanes();
    lanes.send(session, &id, body.into()).await.expect("stored");
}

/// The texts of a session's user messages, in the order of its log.
async fn users(scene: &Scene, session: &SessionId) -> Vec<String> {
    let events = scene.events(session).await.into_iter();
    let texts = events.filter_map(|event| match event {
        Event::MessageAdded {
            message: Message::User { text, .. },
            ..
        } => Some(text),
        _ => None,
    });
    texts.collect()
}

/// CONC-1: two harnesses share the sessions; each session has one owner from its first commit to its last.
#[tokio::test(flavor = "multi_thread")]
async fn conc_1_two_harnesses_share_the_sessions_and_each_has_one_owner() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|request| {
        if results(request).is_empty() {
            calls(&[("t::write", json!({}))])
        } else {
            says("done")
        }
    });
    parts.model_gate = Some(gate.clone());
    parts.harness.sessions = 8;
    let config = parts.harness.clone();
    let mut scene = Scene::start(parts).await;
    serve_harness(&mut scene, &config).await;
    let sessions: Vec<SessionId> = (0..12).map(|n| session(&format!("s{n}"))).collect();
    for id in &sessions {
        scene.send(id, "go").await;
    }
    gate.reached(12).await;
    gate.open();
    let mut all = BTreeSet::new();
    for id in &sessions {
        assert_eq!(scene.ended(id, 1).await, [EndReason::Completed]);
        let commits = scene.commits(id).await;
        let owners = owners(&commits);
        assert_eq!(owners.len(), 1, "{id}: {owners:?}");
        assert!(commits.iter().all(|commit| commit.head.attempt == 0));
        all.extend(owners);
    }
    assert_eq!(
        all.len(),
        2,
        "both work: a harness has a bound on its sessions"
    );
    assert_eq!(scene.count("t::write"), 12);
}

/// CONC-1: messages to one session through two harnesses are answered once each and in order.
#[tokio::test(flavor = "multi_thread")]
async fn conc_1_one_session_through_two_harnesses_stays_in_order() {
    let mut scene = Scene::start(Parts::new(|_| says("noted"))).await;
    serve_harness(&mut scene, &config()).await;
    let id = session("s");
    let sent = send_many(&scene, &id, 40).await;
    scene.idle(&id).await;
    assert_eq!(users(&scene, &id).await, sent);
}

/// Sends this many messages, several at once, and returns their texts in the order in which they were stored.
async fn send_many(scene: &Scene, session: &SessionId, count: usize) -> Vec<String> {
    let mut sent: Vec<(u64, String)> = futures::stream::iter(0..count)
        .map(|index| async move {
            let text = format!("m{index}");
            (scene.send(session, &text).await.seq, text)
        })
        .buffer_unordered(16)
        .collect()
        .await;
    sent.sort();
    sent.into_iter().map(|(_, text)| text).collect()
}

/// DUR-1: a harness that ends in mid-generation hands its session over; the generation is joined, not asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_generation_is_joined_by_the_next_owner() {
    let gate = model::Gate::new();
    let reply = Reply::stream().text("half").gate(&gate).text(" whole");
    let server = ModelServer::start(vec![reply.finish("stop").usage(10, 5).done()]).await;
    let mut router = RouterConfig::default();
    let provider = Provider {
        base_url: Some(server.base_url()),
        ..Provider::default()
    };
    router.providers.insert("test".to_owned(), provider);
    let mut parts = Parts::new(|_| says(""));
    parts.router = Some(teamster_router::worker(&router));
    let mut scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "go").await;
    gate.reached(LIMIT).await;
    let second = serve_harness(&mut scene, &config()).await;
    scene.drain("harness").await;
    wait::until(LIMIT, "the session runs elsewhere", || async {
        let commits = scene.commits(&id).await;
        commits
            .last()
            .is_some_and(|commit| commit.head.owner == second)
            || server.left() > 0
    })
    .await;
    gate.open();
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!((server.count(), server.left()), (1, 0));
    let events = scene.events(&id).await;
    let answers: Vec<&Message> = events
        .iter()
        .filter_map(|event| match event {
            Event::GenerationFinished {
                message: Some(message),
                attempts: 1,
                ..
            } => Some(message),
            _ => None,
        })
        .collect();
    let [Message::Assistant { content, .. }] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(
        content[..],
        [Content::Text {
            text: "half whole".to_owned()
        }]
    );
    let started = |event: &&Event| matches!(event, Event::GenerationStarted { .. });
    assert_eq!(events.iter().filter(started).count(), 1);
    let taken = |event: &Event| matches!(event, Event::TookOver { attempt: 1, .. });
    assert!(events.iter().any(taken));
}

/// DUR-1, DUR-8: a harness that ends in mid-call hands its session over; the call is joined, not made again.
#[tokio::test(flavor = "multi_thread")]
async fn dur_1_a_call_is_joined_by_the_next_owner() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|request| {
        if results(request).is_empty() {
            calls(&[("t::slow", json!({"n": 1}))])
        } else {
            says("done")
        }
    });
    parts.call_gate = Some(gate.clone());
    let mut scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "go").await;
    gate.reached(1).await;
    let second = serve_harness(&mut scene, &config()).await;
    scene.drain("harness").await;
    wait::until(LIMIT, "the session runs elsewhere", || async {
        let commits = scene.commits(&id).await;
        commits
            .last()
            .is_some_and(|commit| commit.head.owner == second)
    })
    .await;
    gate.open();
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::slow"), 1);
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Ok]);
}

/// A flood to one session does not hold up the others, and loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn dur_4_a_flood_to_one_session_is_answered_in_order_while_others_go_on() {
    let scene = Scene::start(Parts::new(|request| {
        if results(request).is_empty() {
            calls(&[("t::read", json!({}))])
        } else {
            says("done")
        }
    }))
    .await;
    let flooded = session("flooded");
    let others: Vec<SessionId> = (0..10).map(|n| session(&format!("s{n}"))).collect();
    let (sent, ()) = tokio::join!(send_many(&scene, &flooded, 200), async {
        for id in &others {
            scene.send(id, "go").await;
            assert_eq!(scene.ended(id, 1).await, [EndReason::Completed]);
        }
    });
    scene.idle(&flooded).await;
    assert_eq!(users(&scene, &flooded).await, sent);
    let reasons = scene.ended(&flooded, 1).await;
    assert!(reasons.iter().all(|reason| *reason == EndReason::Completed));
}

/// A full queue refuses the sender, who is told; what was accepted is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_keeps_what_it_has() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|_| says("noted"));
    parts.model_gate = Some(gate.clone());
    let scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "first").await;
    gate.reached(1).await;
    let max = usize::try_from(limits::QUEUE_PER_SESSION_MAX).expect("small");
    // The first one still lies in the queue: it is the lease.
    let held = scene.operator.lanes().waiting(&id).await.expect("a count");
    let waiting = usize::try_from(held).expect("small");
    let (store, id_ref) = (&store, &id);
    futures::stream::iter(waiting..max)
        .for_each_concurrent(64, |index| {
            let scene = &scene;
            async move { store(scene, id_ref, &format!("k{index}"), "more").await }
        })
        .await;
    let fault = scene
        .send_with(&id, "one too many", None)
        .await
        .expect_err("a full queue");
    assert_eq!(fault.code, "session.queue_full");
    assert!(fault.retry_after_ms.is_some());
    gate.open();
    scene.idle(&id).await;
    let texts = users(&scene, &id).await;
    assert_eq!(texts.len(), 1 + max - waiting);
    assert!(!texts.iter().any(|text| text == "one too many"));
    scene.send(&id, "and now?").await;
    scene.idle(&id).await;
    assert_eq!(
        users(&scene, &id).await.last().map(String::as_str),
        Some("and now?")
    );
}

/// DUR-4: what was stored while no harness ran is answered once one does, in order.
#[tokio::test(flavor = "multi_thread")]
async fn dur_4_messages_before_any_harness_are_answered_after_it_starts() {
    let mut scene = Scene::start(Parts::new(|_| says("hello"))).await;
    let fresh = session("fresh");
    let known = session("known");
    scene.send(&known, "one").await;
    scene.ended(&known, 1).await;
    scene.drain("harness").await;
    for text in ["a", "b", "c"] {
        store(&scene, &fresh, text, text).await;
    }
    store(&scene, &known, "two", "two").await;
    serve_harness(&mut scene, &config()).await;
    scene.wait_for(&["harness::send"]).await;
    wait::until(LIMIT, "both are answered", || async {
        let commits = (scene.commits(&fresh).await, scene.commits(&known).await);
        [&commits.0, &commits.1].into_iter().all(|commits| {
            commits
                .last()
                .is_some_and(|commit| commit.head.phase == Phase::Idle)
        }) && users(&scene, &known).await.len() == 2
    })
    .await;
    assert_eq!(users(&scene, &fresh).await, ["a", "b", "c"]);
    assert_eq!(users(&scene, &known).await, ["one", "two"]);
    let requests: Vec<ChatRequest> = scene.requests.lock().expect("lock").clone();
    assert_eq!(requests.len(), 3, "the three joined one turn");
}

/// LOOP-1: a stop is heard although the harness runs as many sessions as it may.
#[tokio::test(flavor = "multi_thread")]
async fn loop_1_a_stop_is_heard_by_a_harness_that_is_full() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|_| says("done"));
    parts.model_gate = Some(gate.clone());
    parts.harness.sessions = 1;
    let scene = Scene::start(parts).await;
    let (runs, waits) = (session("runs"), session("waits"));
    scene.send(&runs, "go").await;
    gate.reached(1).await;
    scene.send(&waits, "go").await;
    let request = json!({"session_id": runs});
    let reply: StopReply = scene
        .operate("harness::stop", &request)
        .await
        .expect("stored");
    assert!(reply.stopping);
    assert!(matches!(
        scene.ended(&runs, 1).await[..],
        [EndReason::Cancelled { .. }]
    ));
    gate.open();
    assert_eq!(scene.ended(&waits, 1).await, [EndReason::Completed]);
}

/// CONC-2: a message that comes at any moment of a turn's end is in exactly one turn, and the model has seen it.
#[tokio::test(flavor = "multi_thread")]
async fn conc_2_a_message_at_any_moment_of_a_turns_end_is_answered_once() {
    let scene = Scene::start(Parts::new(|_| says("noted"))).await;
    let id = session("s");
    let mut seen = 0;
    let mut sent = Vec::new();
    for round in 0..100 {
        let text = format!("m{round}");
        scene.send(&id, &text).await;
        sent.push(text);
        // At once, at the model's request, and after the turn's end.
        match round % 3 {
            0 => {}
            1 => {
                let asked = || async { scene.requests.lock().expect("lock").len() > seen };
                wait::until(LIMIT, "the model is asked", asked).await;
            }
            _ => scene.idle(&id).await,
        }
        seen = scene.requests.lock().expect("lock").len();
    }
    scene.idle(&id).await;
    assert_eq!(users(&scene, &id).await, sent);
    let events = scene.events(&id).await;
    let mut unseen = 0;
    for event in &events {
        match event {
            Event::MessageAdded {
                message: Message::User { .. },
                ..
            } => unseen += 1,
            Event::GenerationStarted { .. } => unseen = 0,
            Event::TurnEnded { .. } => assert_eq!(unseen, 0, "no turn ends before it is seen"),
            _ => {}
        }
    }
    assert_eq!(unseen, 0);
}
