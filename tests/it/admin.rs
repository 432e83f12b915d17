//! Administration of sessions as inputs of their control lane: created, appended to, renamed, forked and deleted while nothing
//! runs, while a call runs, and while a person is asked.

use std::sync::Arc;

use serde_json::json;
use teamster_core::turn::{Fold, State, fork::taken};
use teamster_protocol::{
    Commit, Digest, Event, Message, MessageId, Phase, Principal, SessionId,
    event::{DropReason, EndReason, Settled},
    function::router::ChatRequest,
    input::{
        Admin, AdminAction, Appended, ControlKind, Decision, Fork, SessionOptions, TurnOptions,
    },
    message::ResultKind,
};
use teamster_testkit::wait;

use crate::scene::{Gate, LIMIT, Parts, Scene, calls, outcomes, results, says, session};

fn owner() -> Principal {
    Principal::parse("owner").expect("valid")
}

/// Stores an administrator's input and returns its id.
async fn store(scene: &Scene, session: &SessionId, key: &str, action: AdminAction) -> MessageId {
    let id = MessageId::of_input(session, "admin", key);
    let admin = Admin {
        id: id.clone(),
        by: owner(),
        action,
    };
    let body = serde_json::to_vec(&admin).expect("encodes");
    let lanes = scene.operator.lanes();
    lanes
        .control(session, ControlKind::Admin, &id, body.into())
        .await
        .expect("stored");
    id
}

/// The commit that consumed an input.
async fn taken_by(scene: &Scene, session: &SessionId, id: &MessageId) -> Commit {
    wait::some(LIMIT, "a commit takes the input", || async {
        let mut commits = scene.commits(session).await.into_iter();
        commits.find(|commit| commit.consumed.iter().any(|input| input.id == *id))
    })
    .await
}

/// Administers and waits for the commit.
async fn administer(scene: &Scene, session: &SessionId, key: &str, action: AdminAction) -> Commit {
    let id = store(scene, session, key, action).await;
    taken_by(scene, session, &id).await
}

fn dropped(commit: &Commit) -> Option<DropReason> {
    commit.events.iter().find_map(|event| match event {
        Event::InputDropped { why, .. } => Some(why.clone()),
        _ => None,
    })
}

fn create(title: &str) -> AdminAction {
    AdminAction::Create {
        session: SessionOptions {
            title: Some(title.to_owned()),
            ..SessionOptions::default()
        },
    }
}

fn append(text: &str) -> AdminAction {
    AdminAction::Append {
        messages: vec![
            Appended::User {
                text: text.to_owned(),
            },
            Appended::Custom {
                kind: "note".to_owned(),
                text: format!("custom {text}"),
            },
        ],
    }
}

fn retitle(title: &str) -> AdminAction {
    AdminAction::SetMeta {
        title: Some(title.to_owned()),
        metadata: [("ticket".to_owned(), Some("7".to_owned()))].into(),
    }
}

/// What the model was shown, message by message.
fn shown(request: &ChatRequest) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User { text, .. } => text.clone(),
        Message::FunctionResult { outcome, .. } => format!("{outcome:?}"),
        Message::Assistant { .. } => "assistant".to_owned(),
        other => format!("{other:?}"),
    };
    request
        .messages
        .iter()
        .map(|message| text(message))
        .collect()
}

fn last_request(scene: &Scene) -> ChatRequest {
    let requests = scene.requests.lock().expect("lock");
    requests.last().expect("a request").clone()
}

/// A session that is created by hand is there, waits, and is not created a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_created_session_waits_for_its_first_message() {
    let scene = Scene::start(Parts::new(|_| says("done"))).await;
    let id = session("s");
    let first = administer(&scene, &id, "a", create("mine")).await;
    assert_eq!((first.n, first.head.phase), (1, Phase::Idle));
    let second = administer(&scene, &id, "b", create("other")).await;
    assert_eq!(dropped(&second), Some(DropReason::SessionExists));
    administer(&scene, &id, "c", append("before")).await;
    administer(&scene, &id, "d", retitle("ours")).await;
    let status = scene.status(&id).await;
    assert_eq!((status.status.as_str(), status.turns), ("idle", 0));
    assert_eq!(status.title.as_deref(), Some("ours"));
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(shown(&last_request(&scene)), ["before", "go"]);
    let events = scene.events(&id).await;
    let created = |event: &&Event| matches!(event, Event::SessionCreated { .. });
    assert_eq!(events.iter().filter(created).count(), 1);
    let unknown = administer(&scene, &session("none"), "e", append("x")).await;
    assert_eq!(dropped(&unknown), Some(DropReason::NoSession));
}

/// DUR-9: what is appended while a call runs joins behind its result, and a note of the owner's never reaches a model.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_while_a_call_runs_joins_behind_its_result() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|request| {
        if results(request).is_empty() && shown(request).len() < 2 {
            calls(&[("t::slow", json!({}))])
        } else {
            says("done")
        }
    });
    parts.call_gate = Some(Arc::clone(&gate));
    let scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "go").await;
    gate.reached(1).await;
    store(&scene, &id, "a", append("more")).await;
    store(&scene, &id, "b", append("most")).await;
    gate.open();
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let want = ["go", "assistant", "Ok", "more", "most"];
    assert_eq!(shown(&last_request(&scene)), want);
    scene.idle(&id).await;
    let late = administer(&scene, &id, "c", append("late")).await;
    assert_eq!(late.head.phase, Phase::Idle);
    assert_eq!(scene.status(&id).await.turns, 1, "it begins no turn");
}

/// APPR-2: title and metadata change and messages are appended while a person is asked; the request stays what it was, and what
/// was approved runs.
#[tokio::test(flavor = "multi_thread")]
async fn appr_2_administration_leaves_a_pending_request_alone() {
    let scene = Scene::start(Parts::new(|request| {
        if results(request).is_empty() && shown(request).len() < 2 {
            calls(&[("t::destroy", json!({"what": 1}))])
        } else {
            says("done")
        }
    }))
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    let commit = administer(&scene, &id, "a", retitle("ours")).await;
    assert_eq!(commit.head.phase, Phase::Parked);
    assert_eq!(commit.head.deadline, Some(pending.expires_at_ms));
    let commit = administer(&scene, &id, "b", append("more")).await;
    assert_eq!(commit.head.phase, Phase::Parked);
    let timers = scene.operator.lanes().timers(&id).await.expect("timers");
    assert_eq!(timers, std::slice::from_ref(&pending.approval_id));
    assert_eq!(scene.pending().await, pending);
    let reply = scene.resolve(&pending, Decision::Approve).await;
    assert!(reply.expect("decided").won);
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Ok]);
    assert_eq!(
        shown(&last_request(&scene)),
        ["go", "assistant", "Ok", "more"]
    );
}

/// Waits until nothing of a deleted session is left but its tombstone.
async fn erased(scene: &Scene, session: &SessionId) -> Commit {
    wait::some(LIMIT, "only the tombstone is left", || async {
        let mut commits = scene.commits(session).await;
        let snapshot = scene.operator.snaps().get(session).await.expect("read")?;
        let timers = scene.operator.lanes().timers(session).await.expect("read");
        let waiting = scene.operator.lanes().waiting(session).await.expect("read");
        let is_clean = commits.len() == 1
            && snapshot.mark.n >= commits[0].n
            && timers.is_empty()
            && waiting == 0;
        is_clean.then(|| commits.remove(0))
    })
    .await
}

/// DUR-9: a session is deleted while its call runs and messages wait: the turn ends as by a stop, the call is cancelled, nothing
/// is left but the tombstone; a later message begins anew and counts from the beginning.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_deletion_in_mid_call_leaves_nothing_and_the_session_can_begin_anew() {
    let gate = Gate::shut();
    let mut parts = Parts::new(|request| {
        if shown(request).contains(&"secret go".to_owned()) {
            calls(&[("t::slow", json!({}))])
        } else {
            says("done")
        }
    });
    parts.call_gate = Some(Arc::clone(&gate));
    let scene = Scene::start(parts).await;
    let id = session("s");
    scene.send(&id, "secret go").await;
    gate.reached(1).await;
    scene.send(&id, "secret more").await;
    let before = scene.commits(&id).await.last().expect("commits").n;
    store(&scene, &id, "d", AdminAction::Delete).await;
    let tombstone = erased(&scene, &id).await;
    assert_eq!(tombstone.head.phase, Phase::Deleted);
    assert!(tombstone.n > before);
    let text = serde_json::to_string(&tombstone).expect("encodes");
    assert!(!text.contains("secret"), "{text}");
    assert!(tombstone.events.iter().any(|event| matches!(
        event,
        Event::TurnEnded { reason: EndReason::Cancelled { by }, .. } if *by == owner()
    )));
    assert_eq!(outcomes(&tombstone.events), []);
    let snapshot = scene.operator.snaps().get(&id).await.expect("read");
    let state = snapshot.and_then(|one| one.state).expect("a state");
    assert!(!String::from_utf8_lossy(&state).contains("secret"));
    let gone = scene
        .operate::<serde_json::Value>("harness::status", &json!({"session_id": id}))
        .await;
    assert_eq!(gone.expect_err("is gone").code, "session.not_found");
    // A late repetition of the deletion, as a client sends that got no answer, finds nothing to do.
    let other = MessageId::of_input(&id, "admin", "d");
    assert!(tombstone.consumed.iter().any(|input| input.id == other));
    scene.send(&id, "again").await;
    assert_eq!(
        scene.ended(&id, 2).await.len(),
        2,
        "the tombstone's and the new one"
    );
    let commits = scene.commits(&id).await;
    assert_eq!(commits[1].n, tombstone.n + 1);
    assert!(
        commits
            .iter()
            .flat_map(|commit| &commit.events)
            .any(|event| { matches!(event, Event::TurnStarted { number: 1, .. }) })
    );
    let status = scene.status(&id).await;
    let new = scene.commits(&id).await.len() as u64 - 1;
    assert_eq!((status.turns, status.commits), (1, new));
    assert_eq!(shown(&last_request(&scene)), ["again"]);
}

/// DUR-9, APPR-1: a session is deleted while a person is asked: the request is withdrawn, its timer is gone, its digest stays.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_deletion_withdraws_what_is_asked_and_keeps_its_digest() {
    let scene = Scene::start(Parts::new(|_| calls(&[("t::destroy", json!({}))]))).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    store(&scene, &id, "d", AdminAction::Delete).await;
    let tombstone = erased(&scene, &id).await;
    let Some(Event::SessionDeleted { approvals, .. }) = tombstone.events.last() else {
        panic!("{:?}", tombstone.events)
    };
    assert_eq!(approvals.len(), 1);
    assert_eq!(approvals[0].approval, pending.approval_id);
    assert_eq!(approvals[0].digest, pending.digest);
    assert!(matches!(
        approvals[0].settled,
        Some(Settled::Withdrawn { .. })
    ));
    assert!(scene.resolve(&pending, Decision::Approve).await.is_err());
    assert_eq!(scene.count("t::destroy"), 0);
}

/// The state of a session and the digest of its last commit.
async fn folded(scene: &Scene, session: &SessionId) -> State {
    let log = scene.operator.log();
    let tail = log.tail(session).await.expect("read").expect("commits");
    let mut fold = Fold::new(State::new(session.clone()));
    for stored in log.read(session, 0, tail.seq).await.expect("read") {
        fold.take(&stored.body, stored.seq);
    }
    fold.finish().expect("sound")
}

/// A fork of a session as the session worker makes it.
async fn fork_of(scene: &Scene, source: &SessionId) -> Fork {
    let state = folded(scene, source).await;
    let taken = taken(&state);
    let bytes = serde_json::to_vec(&taken.messages).expect("encodes");
    let transcript = scene
        .operator
        .blobs()
        .put(bytes.into())
        .await
        .expect("stored");
    Fork {
        source: source.clone(),
        at: state.n,
        hash: state.hash,
        transcript,
        messages: taken.messages.len() as u64,
        options: taken.options,
        masked: taken.masked,
        stored: taken.stored,
        session: taken.session,
    }
}

/// DUR-2, DUR-9: a fork of a session whose call waits for a person goes on from there with that call cancelled, asks anew, and
/// leaves the source as it is; a harness that never saw it begin knows what it begins with.
#[tokio::test(flavor = "multi_thread")]
async fn dur_2_a_fork_goes_on_from_its_source_and_asks_anew() {
    let parts = Parts::new(|request| match shown(request).last().map(String::as_str) {
        Some("go" | "again") => calls(&[("t::destroy", json!({}))]),
        _ => says("done"),
    });
    let config = parts.harness.clone();
    let mut scene = Scene::start(parts).await;
    let (source, branch) = (session("source"), session("branch"));
    scene.send(&source, "go").await;
    let pending = scene.pending().await;
    let before = scene.commits(&source).await;
    let fork = fork_of(&scene, &source).await;
    let action = AdminAction::Fork {
        fork: Box::new(fork),
    };
    let first = administer(&scene, &branch, "f", action.clone()).await;
    assert_eq!((first.n, first.head.phase), (1, Phase::Idle));
    let again = administer(&scene, &branch, "g", action).await;
    assert_eq!(dropped(&again), Some(DropReason::SessionExists));
    scene.send(&branch, "again").await;
    let asked = wait::some(LIMIT, "the fork asks", || async {
        let reply: teamster_protocol::function::approval::ListReply = scene
            .operate("approval::list", &json!({"session_id": branch}))
            .await
            .ok()?;
        reply.pending.into_iter().next()
    })
    .await;
    assert_ne!(asked.approval_id, pending.approval_id);
    assert_eq!(
        shown(&last_request(&scene)),
        ["go", "assistant", "Cancelled", "again"]
    );
    // Another harness takes the fork up from its log alone.
    scene.drain("harness").await;
    scene
        .serve(teamster::harness::worker(&config).expect("harness"))
        .await;
    scene.wait_for(&["harness::send"]).await;
    let denied = Decision::Deny { reason: None };
    scene.resolve(&asked, denied).await.expect("decided");
    assert_eq!(scene.ended(&branch, 1).await, [EndReason::Completed]);
    let want = [
        "go",
        "assistant",
        "Cancelled",
        "again",
        "assistant",
        "DeniedByOwner",
    ];
    assert_eq!(shown(&last_request(&scene)), want);
    assert_eq!(
        scene.commits(&source).await,
        before,
        "the source is as it was"
    );
    assert!(
        scene
            .resolve(&pending, Decision::Approve)
            .await
            .expect("decided")
            .won
    );
    assert_eq!(scene.ended(&source, 1).await, [EndReason::Completed]);
    assert_eq!(scene.count("t::destroy"), 1);
}

/// DUR-2: a fork whose transcript is not there is refused by name and begins nothing.
#[tokio::test(flavor = "multi_thread")]
async fn dur_2_a_fork_without_its_stored_transcript_is_refused() {
    let scene = Scene::start(Parts::new(|_| says("done"))).await;
    let (source, branch) = (session("source"), session("branch"));
    scene.send(&source, "go").await;
    scene.ended(&source, 1).await;
    let mut fork = fork_of(&scene, &source).await;
    fork.messages += 1;
    let wrong = AdminAction::Fork {
        fork: Box::new(fork.clone()),
    };
    let commit = administer(&scene, &branch, "f", wrong).await;
    assert_eq!(dropped(&commit), Some(DropReason::ValueMissing));
    fork.transcript.sha256 = Digest::of("nothing");
    let missing = AdminAction::Fork {
        fork: Box::new(Fork {
            options: TurnOptions::default(),
            ..fork
        }),
    };
    let commit = administer(&scene, &branch, "g", missing).await;
    assert_eq!(dropped(&commit), Some(DropReason::ValueMissing));
    assert!(folded(&scene, &branch).await.origin.is_none());
}
