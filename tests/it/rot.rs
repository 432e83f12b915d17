//! Sessions whose stored bytes came to harm while the server was stopped: what is said of them, what a loss gives up, and that
//! nothing else is held up.

use bytes::Bytes;
use serde_json::{Value, json};
use teamster::{
    client::{Client, History},
    harness,
};
use teamster_mesh::Connect;
use teamster_protocol::{
    Commit, Digest, Event, Fault, Message, SessionId,
    function::{
        harness::{AcceptLossReply, StatusReply},
        router::{ChatRequest, Completion},
    },
    subject,
};
use teamster_testkit::wait;

use crate::scene::{LIMIT, Parts, Scene, calls, says, session};

fn answers(request: &ChatRequest) -> Completion {
    match request.messages.last().map(AsRef::as_ref) {
        Some(Message::User { text, .. }) if text == "read" => calls(&[("t::read", json!({}))]),
        _ => says("done"),
    }
}

async fn scene() -> Scene {
    let mut parts = Parts::new(answers);
    let config = teamster_session::Config { file: None };
    parts
        .workers
        .push(teamster_session::worker(&config).expect("a session worker"));
    let scene = Scene::start(parts).await;
    scene.wait_for(&["session::delete"]).await;
    scene
}

fn stream(session: &SessionId) -> String {
    let k = subject::log_stream_of(subject::partition(&session.token()));
    format!("LOG_{k}")
}

async fn client(scene: &Scene) -> Client {
    let connect = Connect {
        url: scene.nats.url(),
        credentials: None,
    };
    Client::connect(&connect).await.expect("connects")
}

/// A session in which each of these was said and answered; the places of its commits.
async fn talked(scene: &Scene, id: &SessionId, words: &[&str]) -> Vec<(u64, Commit)> {
    for (turn, text) in words.iter().enumerate() {
        scene.send(id, text).await;
        scene.ended(id, turn + 1).await;
        scene.idle(id).await;
    }
    let log = scene.operator.log();
    let tail = log.tail(id).await.expect("a tail").expect("a commit");
    let stored = log.read(id, 0, tail.seq).await.expect("a log");
    let read = |one: &teamster_mesh::log::Stored| Commit::decode(&one.body).expect("readable");
    stored.iter().map(|one| (one.seq, read(one))).collect()
}

/// Damages commits of a session, and what else is named, while the server is stopped; nobody remembers anything afterwards.
async fn rot(scene: &mut Scene, id: &SessionId, seqs: &[u64], snapshot: bool) {
    let commits = scene.commits(id).await;
    let last = commits.last().expect("a commit").n;
    wait::until(LIMIT, "the snapshot is written", || async {
        let snapshot = scene.operator.snaps().get(id).await.expect("an answer");
        snapshot.is_some_and(|snapshot| snapshot.mark.n == last)
    })
    .await;
    scene.drain("harness").await;
    scene.nats.stop().await;
    for seq in seqs {
        scene.nats.damage(&stream(id), *seq);
    }
    if snapshot {
        scene.nats.damage_last("SNAP", &subject::snap(id));
    }
    scene.nats.restart().await;
    serve(scene).await;
}

async fn serve(scene: &mut Scene) {
    let config = Parts::new(answers).harness;
    scene
        .serve(harness::worker(&config).expect("harness"))
        .await;
    scene
        .wait_for(&[
            "harness::send",
            "router::chat",
            "session::delete",
            "t::read",
        ])
        .await;
}

async fn restart(scene: &mut Scene) {
    scene.drain("harness").await;
    serve(scene).await;
}

async fn accept(scene: &Scene, id: &SessionId) -> Result<AcceptLossReply, Fault> {
    let request = json!({"session_id": id, "confirm": true});
    ask(scene, "harness::accept_loss", &request).await
}

/// Asks as an operator, again while a worker is not back from the server's restart.
async fn ask<Reply: serde::de::DeserializeOwned>(
    scene: &Scene,
    function: &str,
    request: &Value,
) -> Result<Reply, Fault> {
    wait::some(LIMIT, "an answer", || async {
        match scene.operate(function, request).await {
            Err(fault) if fault.code.starts_with("mesh.") => None,
            answer => Some(answer),
        }
    })
    .await
}

/// What the harness says of a session that it does not run.
async fn stopped(scene: &Scene, id: &SessionId) -> Fault {
    let fault = wait::some(LIMIT, "the harness answers", || async {
        let status: Result<StatusReply, Fault> = scene
            .operate("harness::status", &json!({"session_id": id}))
            .await;
        let fault = status.expect_err("the session is stopped");
        (!fault.code.starts_with("mesh.")).then_some(fault)
    })
    .await;
    assert_eq!(fault.code, "session.log_damaged", "{}", fault.message);
    let hint = fault.hint.clone().unwrap_or_default();
    assert!(hint.contains("accept-loss"), "{hint}");
    fault
}

/// The session answers, before and after a restart of its harness, and nothing is wrong with its log.
async fn check_whole(scene: &mut Scene, id: &SessionId) -> History {
    for _ in 0..2 {
        let before = scene.requests.lock().expect("lock").len();
        scene.send(id, "still there?").await;
        scene.idle(id).await;
        assert!(scene.requests.lock().expect("lock").len() > before);
        let again = accept(scene, id).await.expect_err("nothing is lost");
        assert_eq!(again.code, "session.log_sound");
        restart(scene).await;
    }
    wait::until(LIMIT, "the session worker calls it idle", || async {
        let info: Result<Value, Fault> = scene
            .operate("session::get", &json!({"session_id": id}))
            .await;
        info.is_ok_and(|info| info["status"] == "idle")
    })
    .await;
    let history = client(scene).await.history(id).await.expect("a history");
    assert_eq!(history.damage, None);
    history
}

/// What users said in the last request that a model got.
fn said(scene: &Scene) -> Vec<String> {
    let requests = scene.requests.lock().expect("lock");
    let last = requests.last().expect("a request");
    let text = |message: &Message| match message {
        Message::User { text, .. } => Some(text.clone()),
        _ => None,
    };
    last.messages
        .iter()
        .filter_map(|message| text(message))
        .collect()
}

fn at(commits: &[(u64, Commit)], indices: &[usize]) -> Vec<u64> {
    indices.iter().map(|index| commits[*index].0).collect()
}

/// SEC-55: where the last commit of a log cannot be read, its session is stopped and told apart from one that is not there; the
/// acceptance gives up that commit and nothing else, says so before it is confirmed, and others do not notice.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_last_commit_that_cannot_be_read_is_all_that_is_given_up() {
    let mut scene = scene().await;
    let (id, other) = (session("s"), session("other"));
    let commits = talked(&scene, &id, &["one", "read"]).await;
    talked(&scene, &other, &["hello"]).await;
    let last = commits.len() - 1;
    rot(&mut scene, &id, &at(&commits, &[last]), false).await;
    let fault = stopped(&scene, &id).await;
    let number = commits[last].1.n;
    let place = format!(
        "from commit {number} on, behind sequence {}",
        commits[last - 1].0
    );
    assert!(fault.message.contains(&place), "{}", fault.message);
    // Nobody takes it for absent.
    let client = client(&scene).await;
    let history = client.history(&id).await.expect("a history");
    assert_eq!(history.commits.len(), last);
    let damage = history.damage.expect("is told");
    assert!(damage.contains("its end cannot be read"), "{damage}");
    assert!(client.commits(&id).await.is_err());
    for (function, more) in [
        ("session::delete", json!({"confirm": true})),
        ("session::fork", json!({})),
        ("session::ensure", json!({})),
    ] {
        let mut request = json!({"session_id": id});
        request
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        let refused: Result<Value, Fault> = ask(&scene, function, &request).await;
        let fault = refused.expect_err(function);
        assert_eq!(
            fault.code, "session.log_damaged",
            "{function}: {}",
            fault.message
        );
    }
    let request = json!({"session_id": id, "at": number - 1});
    let forked: Result<Value, Fault> = ask(&scene, "session::fork", &request).await;
    forked.expect("what can be read can be forked");
    // The session worker notices, though nothing comes behind what it cannot read.
    wait::until(LIMIT, "it is listed as damaged", || async {
        let listed: Result<Value, Fault> = scene
            .operate("session::list", &json!({"status": "damaged"}))
            .await;
        listed.is_ok_and(|listed| listed["sessions"][0]["session_id"] == "s")
    })
    .await;
    scene.send(&other, "go on").await;
    scene.ended(&other, 2).await;

    let unsure: Result<Value, Fault> = scene
        .operate("harness::accept_loss", &json!({"session_id": id}))
        .await;
    let unsure = unsure.expect_err("not confirmed");
    assert_eq!(unsure.code, "harness.confirm_needed");
    let words = format!(
        "commit {number}: 1 stored message cannot be read; 1 message of the transcript taken over"
    );
    assert!(unsure.message.contains(&words), "{}", unsure.message);
    let reply = accept(&scene, &id).await.expect("accepted");
    assert_eq!(
        (reply.kept, reply.loss.from, reply.loss.upto),
        (number - 1, number, number)
    );
    assert_eq!((reply.loss.unreadable, reply.loss.commits), (1, 0));
    // The snapshot knows even what was said in the commit that cannot be read.
    assert_eq!(reply.loss.recovered, 1);
    let history = check_whole(&mut scene, &id).await;
    let numbers: Vec<u64> = history.commits.iter().map(|(_, commit)| commit.n).collect();
    assert_eq!(numbers[..last], (1..number).collect::<Vec<_>>());
    assert_eq!(numbers[last], reply.commit);
    assert_eq!(said(&scene)[..2], ["one", "read"]);
}

/// SEC-55: where the first commit and others in the middle cannot be read, what was said in the others is taken over, and how much
/// that is and what is given up are told; with its snapshot damaged as well, the log alone decides.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_what_was_said_behind_commits_that_cannot_be_read_is_taken_over() {
    let mut scene = scene().await;
    let id = session("s");
    let commits = talked(&scene, &id, &["one", "two", "three"]).await;
    let holds = |text: &str| {
        let is_it = |event: &Event| matches!(event, Event::MessageAdded { message: Message::User { text: said, .. }, .. } if said == text);
        commits
            .iter()
            .position(|(_, commit)| commit.events.iter().any(is_it))
            .expect("a commit")
    };
    let bad = [0, holds("two")];
    rot(&mut scene, &id, &at(&commits, &bad), true).await;
    let fault = stopped(&scene, &id).await;
    let place = format!("commit {} (between sequences", commits[bad[1]].1.n);
    assert!(fault.message.contains(&place), "{}", fault.message);
    assert!(
        fault
            .message
            .contains("2 messages of it that it cannot read"),
        "{}",
        fault.message
    );
    let reply = accept(&scene, &id).await.expect("accepted");
    assert_eq!((reply.kept, reply.loss.from), (0, 1));
    assert_eq!(reply.loss.unreadable, 2);
    assert_eq!(reply.loss.commits, commits.len() as u64 - 2);
    assert_eq!(reply.loss.upto, commits.last().expect("one").1.n);
    assert!(
        reply.loss.recovered >= 3 && reply.loss.left == 0,
        "{reply:?}"
    );
    check_whole(&mut scene, &id).await;
    // "one" was said in the first commit.
    assert_eq!(said(&scene), ["three", "still there?", "still there?"]);
    let asked = scene.requests.lock().expect("lock").last().cloned();
    let told = |message: &Message| matches!(message, Message::Notice { text, .. } if text.contains("lost"));
    assert!(
        asked
            .expect("a request")
            .messages
            .iter()
            .any(|message| told(message))
    );
}

/// SEC-55: a commit that cannot be read before the newest snapshot does not stop its session; that is told all the same, and an
/// acceptance keeps everything that the snapshot holds of what was said.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_an_acceptance_keeps_what_the_snapshot_holds() {
    let mut scene = scene().await;
    let id = session("s");
    let commits = talked(&scene, &id, &["one", "two", "three"]).await;
    let middle = commits.len() / 2;
    rot(&mut scene, &id, &at(&commits, &[0, middle]), false).await;
    scene.send(&id, "four").await;
    scene.idle(&id).await;
    let client = client(&scene).await;
    let history = client.history(&id).await.expect("a history");
    let damage = history.damage.expect("it is told");
    assert!(damage.contains("2 of its"), "{damage}");
    let request = json!({"session_id": id, "confirm": true});
    let refused: Result<Value, Fault> = ask(&scene, "session::delete", &request).await;
    assert_eq!(
        refused.expect_err("not deleted").code,
        "session.log_damaged"
    );
    let reply = accept(&scene, &id).await.expect("accepted");
    assert_eq!((reply.kept, reply.loss.left), (0, 0));
    // Three of them and their answers stood in the snapshot, the fourth behind it.
    assert_eq!(reply.loss.recovered, 8);
    check_whole(&mut scene, &id).await;
    assert_eq!(said(&scene)[..4], ["one", "two", "three", "four"]);
}

/// SEC-55: an owner that was at work when the loss was accepted may still write where it stood. Its snapshot does not speak against
/// the acceptance.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_snapshot_from_before_an_acceptance_stops_nobody() {
    let mut scene = scene().await;
    let id = session("s");
    let commits = talked(&scene, &id, &["one", "two"]).await;
    rot(&mut scene, &id, &at(&commits, &[2]), false).await;
    let snapshot = scene.operator.snaps().get(&id).await.expect("an answer");
    let snapshot = snapshot.expect("one");
    assert_eq!(snapshot.mark.n, commits.len() as u64);
    accept(&scene, &id).await.expect("accepted");
    scene.idle(&id).await;
    scene.drain("harness").await;
    let stored = scene.operator.snaps().put(&id, &snapshot).await;
    stored.expect("stored");
    serve(&mut scene).await;
    check_whole(&mut scene, &id).await;
    assert_eq!(said(&scene)[..2], ["one", "two"]);
}

/// SEC-55: a log to which an earlier build added an acceptance as if nothing had been there is mended by accepting once more.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_log_that_was_begun_anew_over_an_unreadable_end_is_mended() {
    let mut scene = scene().await;
    let id = session("s");
    let commits = talked(&scene, &id, &["one", "two"]).await;
    let (seq, last) = commits.last().expect("one").clone();
    rot(&mut scene, &id, &[seq], false).await;
    stopped(&scene, &id).await;
    // As if the log had been empty, with the server's consent: it takes the subject for one without messages.
    let mut wrong = last.clone();
    wrong.n += 1024;
    wrong.prev = Digest::ZERO;
    wrong.consumed.clear();
    wrong.outbox.clear();
    wrong.events = vec![Event::LossAccepted {
        by: teamster_protocol::Principal::parse("owner").expect("valid"),
        lost_from: 1,
        kept: Digest::ZERO,
        message: "it ends at sequence 0".to_owned(),
        turns: 0,
        spent: Vec::new(),
        unknown: 0,
    }];
    let body = Bytes::from(wrong.encode().expect("encodes"));
    scene
        .operator
        .log()
        .commit(&id, body, 0)
        .await
        .expect("stored");
    let fault = stopped(&scene, &id).await;
    assert!(fault.message.contains("another loss"), "{}", fault.message);
    let reply = accept(&scene, &id).await.expect("accepted");
    assert_eq!(reply.kept, last.n - 1);
    assert!(reply.commit > wrong.n);
    check_whole(&mut scene, &id).await;
    assert_eq!(said(&scene)[..2], ["one", "two"]);
}

/// SEC-55: a snapshot that cannot be read, or that is none, is one less: the log is folded from its beginning.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_a_damaged_snapshot_falls_back_to_the_log() {
    let mut scene = scene().await;
    let id = session("s");
    talked(&scene, &id, &["one"]).await;
    rot(&mut scene, &id, &[], true).await;
    check_whole(&mut scene, &id).await;
    assert_eq!(said(&scene)[0], "one");
}
