//! Logs that are not what they were: the session stops, and goes on when an operator accepts the loss.

use std::path::Path;

use serde_json::{Value, json};
use teamster::{
    client::{Client, Item},
    harness,
};
use teamster_mesh::{
    Connect,
    head::Head,
    snap::{Mark, Snapshot},
};
use teamster_protocol::{
    Digest, Event, Fault, Message, SessionId,
    event::EndReason,
    function::{
        approval::ListReply,
        harness::{AcceptLossReply, StatusReply},
        router::{ChatRequest, Completion},
    },
    message::ResultKind,
};
use teamster_testkit::wait;

use crate::scene::{LIMIT, Parts, Scene, calls, outcomes, results, says, session};

fn answers(request: &ChatRequest) -> Completion {
    match request.messages.last().map(AsRef::as_ref) {
        Some(Message::User { text, .. }) if text == "destroy" => {
            calls(&[("t::destroy", json!({}))])
        }
        _ => says("done"),
    }
}

async fn restart(scene: &mut Scene) {
    scene.drain("harness").await;
    serve(scene).await;
}

async fn serve(scene: &mut Scene) {
    let config = Parts::new(answers).harness;
    scene
        .serve(harness::worker(&config).expect("harness"))
        .await;
    scene.wait_for(&["harness::send"]).await;
}

/// Stores bytes behind a session's last commit.
async fn append(scene: &Scene, session: &SessionId, bytes: Vec<u8>) {
    let log = scene.operator.log();
    let tail = log.tail(session).await.expect("a tail");
    let seq = tail.map_or(0, |stored| stored.seq);
    log.commit(session, bytes.into(), seq)
        .await
        .expect("stored");
}

/// Stores what the server answers to a registration behind a session's last commit.
async fn noise(scene: &Scene, session: &SessionId) {
    let subject = teamster_protocol::subject::log(session);
    let answer = r#"{"stream":"KV_registry","seq":7}"#;
    let stored = scene.operator.request(subject, answer.into(), LIMIT).await;
    stored.expect("stored");
}

async fn accept(scene: &Scene, session: &SessionId) -> Result<AcceptLossReply, Fault> {
    let request = json!({"session_id": session, "confirm": true});
    scene.operate("harness::accept_loss", &request).await
}

/// The session is stopped, and says so.
async fn check_stopped(scene: &Scene, session: &SessionId) {
    let status: Result<StatusReply, Fault> = scene
        .operate("harness::status", &json!({"session_id": session}))
        .await;
    let fault = status.expect_err("the session is stopped");
    assert_eq!(fault.code, "session.log_damaged");
    assert!(fault.hint.is_some_and(|hint| hint.contains("accept-loss")));
}

/// The session answers a message.
async fn check_alive(scene: &Scene, session: &SessionId) {
    let before = scene.requests.lock().expect("lock").len();
    scene.send(session, "still there?").await;
    scene.idle(session).await;
    assert!(scene.requests.lock().expect("lock").len() > before);
    let again = accept(scene, session).await.expect_err("nothing is lost");
    assert_eq!(again.code, "session.log_sound");
}

/// The bytes of a commit that follows the last one by number, but not by its chain.
async fn forged(scene: &Scene, session: &SessionId) -> Vec<u8> {
    let commits = scene.commits(session).await;
    let mut commit = commits.last().expect("a commit").clone();
    commit.n += 1;
    commit.prev = Digest::of("something else");
    commit.encode().expect("encodes")
}

/// SEC-56: a broken chain stops its session until an operator accepts the loss; the open turn ends, its question is withdrawn,
/// what waits in the queue is answered, and the model knows.
#[tokio::test(flavor = "multi_thread")]
async fn sec_56_a_broken_chain_stops_its_session_until_the_loss_is_accepted() {
    let mut scene = Scene::start(Parts::new(answers)).await;
    let (id, other) = (session("s"), session("other"));
    scene.send(&id, "destroy").await;
    scene.pending().await;
    let bytes = forged(&scene, &id).await;
    append(&scene, &id, bytes).await;
    check_stopped(&scene, &id).await;
    let key = "waits";
    let sent = scene.send_with(&id, "are you there?", None).await;
    sent.expect("a message is stored for a stopped session as well");
    let refused = scene.send_with(&id, "keyed", Some(key)).await;
    assert_eq!(
        refused.expect_err("it cannot be told").code,
        "session.log_damaged"
    );
    // Others do not notice.
    scene.send(&other, "go").await;
    assert_eq!(scene.ended(&other, 1).await, [EndReason::Completed]);
    check_stopped(&scene, &id).await;
    let asked = scene.requests.lock().expect("lock").len();
    let unsure: Result<Value, Fault> = scene
        .operate("harness::accept_loss", &json!({"session_id": id}))
        .await;
    assert_eq!(
        unsure.expect_err("not confirmed").code,
        "harness.confirm_needed"
    );

    let reply = accept(&scene, &id).await.expect("accepted");
    assert!(reply.commit > reply.kept + 1, "{reply:?}");
    let reasons = scene.ended(&id, 2).await;
    assert!(
        matches!(&reasons[..], [EndReason::Failed { code, .. }, EndReason::Completed]
            if code == "session.log_damaged"),
        "{reasons:?}"
    );
    let requests = scene.requests.lock().expect("lock").clone();
    assert_eq!(
        requests.len(),
        asked + 1,
        "the message that waited is answered"
    );
    let told = |message: &Message| matches!(message, Message::Notice { text, .. } if text.contains("lost"));
    assert!(
        requests
            .last()
            .is_some_and(|last| last.messages.iter().any(|message| told(message)))
    );
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::Cancelled]);
    let by =
        |event: &Event| matches!(event, Event::LossAccepted { by, .. } if by.as_str() == "owner");
    assert_eq!(events.iter().filter(|event| by(event)).count(), 1);
    wait::until(LIMIT, "an empty inbox", || async {
        let reply: ListReply = scene
            .operate("approval::list", &json!({}))
            .await
            .expect("a list");
        reply.pending.is_empty()
    })
    .await;
    check_alive(&scene, &id).await;
    restart(&mut scene).await;
    check_alive(&scene, &id).await;
    assert_eq!(scene.count("t::destroy"), 0);
}

/// SEC-56: what any worker can have the server store under a log, before, in and after a turn, stops nothing and loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn sec_56_answers_of_the_server_in_a_log_do_not_stop_its_session() {
    let mut scene = Scene::start(Parts::new(answers)).await;
    let id = session("s");
    noise(&scene, &id).await;
    scene.send(&id, "destroy").await;
    let pending = scene.pending().await;
    noise(&scene, &id).await;
    noise(&scene, &id).await;
    let decision = teamster_protocol::input::Decision::Approve;
    scene.resolve(&pending, decision).await.expect("decided");
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    scene.idle(&id).await;
    noise(&scene, &id).await;
    check_alive(&scene, &id).await;
    noise(&scene, &id).await;
    restart(&mut scene).await;
    check_alive(&scene, &id).await;
    assert_eq!(scene.count("t::destroy"), 1);
    let commits = scene.commits(&id).await;
    let mut numbers = commits.iter().map(|commit| commit.n);
    assert!((1..).zip(&mut numbers).all(|(want, n)| want == n));
}

/// SEC-55: a log that is shorter than its head stops its session; the numbers that were lost are not used again.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_log_shorter_than_its_head_stops_its_session() {
    let mut scene = Scene::start(Parts::new(answers)).await;
    let id = session("s");
    scene.send(&id, "go").await;
    scene.ended(&id, 1).await;
    scene.idle(&id).await;
    scene.drain("harness").await;
    let tail = scene.operator.log().tail(&id).await.expect("a tail");
    let (seq, n) = (tail.expect("a commit").seq, scene.commits(&id).await.len());
    let n = u64::try_from(n).expect("small");
    let mark = Mark {
        n: n + 7,
        seq: seq + 7,
        hash: Digest::of("lost"),
    };
    let head = Snapshot { mark, state: None };
    scene
        .operator
        .snaps()
        .put(&id, &head)
        .await
        .expect("stored");
    scene.operator.flush().await.expect("flushed");
    serve(&mut scene).await;
    check_stopped(&scene, &id).await;
    let reply = accept(&scene, &id).await.expect("accepted");
    assert_eq!(reply.kept, n);
    assert!(reply.commit > n + 7);
    check_alive(&scene, &id).await;
    restart(&mut scene).await;
    check_alive(&scene, &id).await;
}

/// SEC-55: a log that ends before the second copy of its head stops its session, although the snapshot says nothing; the loss can be
/// accepted, and is accepted for good.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_log_behind_its_second_head_stops_the_session() {
    let mut scene = Scene::start(Parts::new(answers)).await;
    let id = session("s");
    scene.send(&id, "hello").await;
    scene.idle(&id).await;
    scene.drain("harness").await;
    let tail = scene.operator.log().tail(&id).await.expect("a tail");
    let n = scene.commits(&id).await.last().expect("a commit").n;
    let lost = Head {
        n: n + 3,
        seq: tail.expect("a commit").seq + 3,
        hash: Digest::of("lost"),
        at_ms: 1,
    };
    let raised = scene.operator.heads().raise(&id, &lost).await;
    assert!(raised.expect("heads"));
    serve(&mut scene).await;
    check_stopped(&scene, &id).await;
    let reply = accept(&scene, &id).await.expect("accepted");
    assert!(reply.commit > n + 3, "numbers that were used are left out");
    check_alive(&scene, &id).await;
    // Nobody has raised the head since: what was accepted stays accepted.
    restart(&mut scene).await;
    check_alive(&scene, &id).await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// SEC-55: a broker that was set back, snapshots and queues with it: who remembers more stops the session.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_broker_that_was_set_back_is_noticed_by_who_remembers() {
    let mut scene = Scene::start(Parts::new(answers)).await;
    let id = session("s");
    scene.send(&id, "one").await;
    scene.ended(&id, 1).await;
    scene.idle(&id).await;
    let old = tempfile::tempdir().expect("a folder");
    scene.nats.kill().await;
    copy(&scene.nats.store(), old.path());
    scene.nats.restart().await;
    scene.wait_for(&["harness::send", "router::chat"]).await;
    wait::until(LIMIT, "the mesh is back", || async {
        scene.send_with(&id, "two", Some("two")).await.is_ok()
    })
    .await;
    scene.ended(&id, 2).await;
    scene.idle(&id).await;
    scene.nats.kill().await;
    std::fs::remove_dir_all(scene.nats.store()).expect("removed");
    copy(old.path(), &scene.nats.store());
    scene.nats.restart().await;
    let fault = wait::some(LIMIT, "the harness answers", || async {
        let status: Result<StatusReply, Fault> = scene
            .operate("harness::status", &json!({"session_id": id}))
            .await;
        status
            .err()
            .filter(|fault| !fault.code.starts_with("mesh."))
    })
    .await;
    assert_eq!(fault.code, "session.log_damaged");
    // However often it is looked at.
    check_stopped(&scene, &id).await;
    let reply = accept(&scene, &id).await.expect("accepted");
    assert!(reply.message.contains("ends"), "{}", reply.message);
    check_alive(&scene, &id).await;
    let users: Vec<String> = scene
        .events(&id)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::MessageAdded {
                message: Message::User { text, .. },
                ..
            } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(users, ["one", "still there?"]);
}

/// SEC-59: what cannot be read stops a session; what a newer build wrote is not given up.
#[tokio::test(flavor = "multi_thread")]
async fn sec_59_what_cannot_be_read_is_given_up_only_if_it_is_no_newer_format() {
    let mut scene = Scene::start(Parts::new(answers)).await;
    let newer = session("newer");
    scene.send(&newer, "go").await;
    scene.ended(&newer, 1).await;
    scene.idle(&newer).await;
    append(&scene, &newer, br#"{"v":99,"more":true}"#.to_vec()).await;
    check_stopped(&scene, &newer).await;
    let refused = accept(&scene, &newer).await.expect_err("nothing is lost");
    assert_eq!(refused.code, "session.log_too_new");
    check_stopped(&scene, &newer).await;

    let torn = session("torn");
    scene.send(&torn, "go").await;
    scene.ended(&torn, 1).await;
    scene.idle(&torn).await;
    append(&scene, &torn, b"\0\0\0\0".to_vec()).await;
    check_stopped(&scene, &torn).await;
    accept(&scene, &torn).await.expect("accepted");
    scene.send(&torn, "destroy").await;
    let pending = scene.pending().await;
    // A gate that reads the log anew lists what counts, whatever lies between.
    scene.drain("approval-gate").await;
    let gate = teamster_approval_gate::Config::default();
    scene
        .serve(teamster_approval_gate::worker(&gate).expect("gate"))
        .await;
    scene.wait_for(&["approval::list"]).await;
    assert_eq!(scene.pending().await, pending);
    let decision = teamster_protocol::input::Decision::Approve;
    scene.resolve(&pending, decision).await.expect("decided");
    scene.idle(&torn).await;
    assert_eq!(scene.count("t::destroy"), 1);
    let request = scene.requests.lock().expect("lock").last().cloned();
    assert_eq!(results(&request.expect("a request")).len(), 1);
}

/// DUR-7: a reader tells of a commit that cannot be read, and goes on when the loss is accepted; one that begins later does
/// not notice.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_reader_goes_on_behind_an_accepted_loss() {
    let scene = Scene::start(Parts::new(answers)).await;
    let id = session("s");
    scene.send(&id, "go").await;
    scene.idle(&id).await;
    let client = Client::connect(&Connect {
        url: scene.nats.url(),
        credentials: None,
    })
    .await
    .expect("connects");
    let mut early = client.watch(&id, 0);
    append(&scene, &id, b"\0\0torn".to_vec()).await;
    wait::within(LIMIT, "the damage is told", async {
        while !matches!(early.next().await.expect("an item"), Item::Damaged(_)) {}
    })
    .await;
    let reply = accept(&scene, &id).await.expect("accepted");
    check_alive(&scene, &id).await;
    let mut late = client.watch(&id, 0);
    for watch in [&mut early, &mut late] {
        wait::within(LIMIT, "the turn behind the loss ends", async {
            loop {
                match watch.next().await.expect("an item") {
                    Item::Commit { commit, .. } if commit.n > reply.commit => break,
                    Item::Damaged(error) => panic!("told again: {error}"),
                    _ => {}
                }
            }
        })
        .await;
    }
    assert!(client.commits(&id).await.is_ok());
}
