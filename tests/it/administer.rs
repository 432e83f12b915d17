//! `session::create` and its siblings: what an operator asks for is one input, and what is answered is what the log says.

use std::time::Duration;

use serde_json::{Value, json};
use teamster_mesh::connection::Call;
use teamster_protocol::{
    Event, Fault, Message, Principal, SessionId,
    event::EndReason,
    function::session::{
        ApprovalEntry, ApprovalsReply, ChangeReply, CreateReply, ListReply, MessagesReply,
        SessionInfo,
    },
    input::Decision,
    message::ResultKind,
};
use teamster_testkit::wait;

use crate::scene::{LIMIT, Parts, Scene, calls, id, outcomes, results, says, session};

/// A scene with a session worker.
async fn scene(mut parts: Parts) -> Scene {
    let config = teamster_session::Config { file: None };
    parts
        .workers
        .push(teamster_session::worker(&config).expect("a session worker"));
    let scene = Scene::start(parts).await;
    scene
        .wait_for(&["session::create", "session::delete"])
        .await;
    scene
}

/// Asks as an operator whose call has an id of its own.
async fn ask<Reply: serde::de::DeserializeOwned>(
    scene: &Scene,
    function: &str,
    call: &str,
    request: &Value,
) -> Result<Reply, Fault> {
    within(scene, LIMIT, function, call, request).await
}

/// The same, with this much patience.
async fn within<Reply: serde::de::DeserializeOwned>(
    scene: &Scene,
    timeout: Duration,
    function: &str,
    call: &str,
    request: &Value,
) -> Result<Reply, Fault> {
    let call = Call {
        principal: Some(Principal::parse("owner").expect("valid")),
        timeout,
        call: Some(call.to_owned()),
        ..Call::new(id(function), request.to_string())
    };
    let reply = scene.operator.call(call).await?;
    Ok(serde_json::from_slice(&reply).expect("a reply of the stated form"))
}

async fn refusal(scene: &Scene, function: &str, request: &Value) -> String {
    let reply: Result<Value, Fault> = scene.operate(function, request).await;
    reply.expect_err("is refused").code
}

fn texts(reply: &MessagesReply) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User { text, .. } | Message::Custom { text, .. } => text.clone(),
        Message::FunctionResult { outcome, .. } => format!("{outcome:?}"),
        _ => "assistant".to_owned(),
    };
    reply
        .messages
        .iter()
        .map(|one| text(&one.message))
        .collect()
}

async fn messages(scene: &Scene, session: &SessionId) -> Vec<String> {
    let reply = scene
        .operate("session::messages", &json!({"session_id": session}))
        .await;
    texts(&reply.expect("messages"))
}

/// A session is created once, ensured at will, renamed and added to; each answer names the commit, and a repeated call is
/// answered with the commit of the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_created_renamed_and_added_to() {
    let scene = scene(Parts::new(|_| says("done"))).await;
    let id = session("s");
    let request =
        json!({"session_id": id, "session": {"title": "mine", "metadata": {"team": "north"}}});
    let created: CreateReply = ask(&scene, "session::create", "one", &request)
        .await
        .expect("created");
    assert!(created.created);
    assert_eq!(
        refusal(&scene, "session::create", &request).await,
        "session.exists"
    );
    let again: CreateReply = scene
        .operate("session::ensure", &request)
        .await
        .expect("taken");
    assert!(!again.created);
    let fresh: CreateReply = scene
        .operate("session::ensure", &json!({}))
        .await
        .expect("made");
    assert!(fresh.created && fresh.session_id != id);
    let append = json!({
        "session_id": id, "key": "k",
        "messages": [{"role": "user", "text": "before"}, {"role": "custom", "kind": "note", "text": "kept"}],
    });
    let first: ChangeReply = scene
        .operate("session::append", &append)
        .await
        .expect("taken");
    let second: ChangeReply = scene
        .operate("session::append", &append)
        .await
        .expect("taken");
    assert_eq!(first, second, "a repetition is the same change");
    assert_eq!(messages(&scene, &id).await, ["before", "kept"]);
    let change =
        json!({"session_id": id, "title": "ours", "metadata": {"team": null, "ticket": "7"}});
    let changed: ChangeReply = scene
        .operate("session::set-meta", &change)
        .await
        .expect("taken");
    assert_eq!(changed.commit, first.commit.map(|n| n + 1));
    let info: SessionInfo = scene
        .operate("session::get", &json!({"session_id": id}))
        .await
        .expect("is there");
    assert_eq!((info.title.as_deref(), info.turns), (Some("ours"), 0));
    assert_eq!(
        info.metadata,
        [("ticket".to_owned(), "7".to_owned())].into()
    );
    scene.send(&id, "go").await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(
        messages(&scene, &id).await,
        ["before", "kept", "go", "assistant"]
    );
}

/// What is wrong is said before anything is stored, with a code for each.
#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_by_name_and_store_nothing() {
    let scene = scene(Parts::new(|_| says("done"))).await;
    let id = session("s");
    let _: CreateReply = scene
        .operate("session::create", &json!({"session_id": id}))
        .await
        .expect("created");
    let before = scene.commits(&id).await;
    let long = "x".repeat(600);
    let cases = [
        (
            "session::create",
            json!({"session": {"title": long}}),
            "session.invalid_request",
        ),
        (
            "session::create",
            json!({"session": {"workspace": "here"}}),
            "session.invalid_request",
        ),
        (
            "session::append",
            json!({"session_id": id, "messages": []}),
            "session.invalid_request",
        ),
        (
            "session::append",
            json!({"session_id": id, "key": "", "messages": [{"role": "user", "text": "x"}]}),
            "session.invalid_request",
        ),
        (
            "session::append",
            json!({"session_id": "no", "messages": [{"role": "user", "text": "x"}]}),
            "session.not_found",
        ),
        (
            "session::set-meta",
            json!({"session_id": id}),
            "session.invalid_request",
        ),
        (
            "session::set-meta",
            json!({"session_id": id, "metadata": {"a": long}}),
            "session.invalid_request",
        ),
        (
            "session::set-meta",
            json!({"session_id": "no", "title": "x"}),
            "session.not_found",
        ),
        (
            "session::fork",
            json!({"session_id": "no"}),
            "session.not_found",
        ),
        (
            "session::fork",
            json!({"session_id": id, "at": 99}),
            "session.no_commit",
        ),
        (
            "session::fork",
            json!({"session_id": id, "at": 0}),
            "session.no_commit",
        ),
        (
            "session::fork",
            json!({"session_id": id, "new_session_id": id}),
            "session.exists",
        ),
        (
            "session::delete",
            json!({"session_id": id}),
            "session.confirm_delete",
        ),
        (
            "session::delete",
            json!({"session_id": "no", "confirm": true}),
            "session.not_found",
        ),
    ];
    for (function, request, code) in cases {
        assert_eq!(
            refusal(&scene, function, &request).await,
            code,
            "{function} {request}"
        );
    }
    let after = scene.commits(&id).await;
    assert_eq!(
        after.len(),
        before.len() + 1,
        "only the fork onto itself was stored, and dropped"
    );
    assert!(scene.commits(&session("no")).await.is_empty());
}

/// DUR-2, DUR-9: a fork from any commit of a session has what the session had then, and runs on by itself; the session does not
/// change, and forks of forks hold everything.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_fork_at_any_commit_has_what_the_session_had_then() {
    let scene = scene(Parts::new(|request| {
        if results(request).is_empty() {
            calls(&[("t::write", json!({}))])
        } else {
            says("done")
        }
    }))
    .await;
    let source = session("source");
    for text in ["one", "two"] {
        scene.send(&source, text).await;
        scene.idle(&source).await;
    }
    let commits = scene.commits(&source).await;
    let whole = messages(&scene, &source).await;
    let mut known = Vec::new();
    for commit in &commits {
        known.extend(commit.events.iter().filter_map(said));
        let request = json!({"session_id": source, "at": commit.n, "session": {"title": format!("at {}", commit.n)}});
        let fork: ChangeReply = scene
            .operate("session::fork", &request)
            .await
            .expect("forked");
        assert_eq!(fork.commit, Some(1));
        let had = messages(&scene, &fork.session_id).await;
        assert_eq!(
            had[..known.len().min(had.len())],
            known[..],
            "at {}",
            commit.n
        );
        let cancelled = &had[known.len()..];
        assert!(
            cancelled
                .iter()
                .all(|text| text == "Cancelled" || text == "OutcomeUnknown"),
            "{had:?}"
        );
        assert!(cancelled.len() <= 1);
    }
    assert_eq!(
        scene.commits(&source).await,
        commits,
        "the source is as it was"
    );
    let request = json!({"session_id": source, "new_session_id": "branch"});
    let fork: ChangeReply = ask(&scene, "session::fork", "f", &request)
        .await
        .expect("forked");
    let again: ChangeReply = ask(&scene, "session::fork", "f", &request)
        .await
        .expect("the same");
    assert_eq!(fork, again);
    let branch = fork.session_id;
    scene.send(&branch, "three").await;
    scene.idle(&branch).await;
    let request = json!({"session_id": branch, "new_session_id": "twig"});
    let _: ChangeReply = scene
        .operate("session::fork", &request)
        .await
        .expect("forked");
    let twig = messages(&scene, &session("twig")).await;
    assert_eq!(twig[..whole.len()], whole[..]);
    assert_eq!(
        twig[whole.len()..],
        ["three", "assistant", "Ok", "assistant"]
    );
    let info: SessionInfo = scene
        .operate("session::get", &json!({"session_id": "twig"}))
        .await
        .expect("is there");
    assert_eq!(
        info.forked_from,
        Some((branch, scene.commits(&session("branch")).await.len() as u64))
    );
    assert_eq!(info.cost.0, 0, "what the source spent is not spent again");
}

/// A message that an event added, in the words of [`texts`].
fn said(event: &Event) -> Option<String> {
    match event {
        Event::MessageAdded {
            message: Message::User { text, .. },
            ..
        } => Some(text.clone()),
        Event::GenerationFinished {
            message: Some(_), ..
        } => Some("assistant".to_owned()),
        Event::CallFinished { outcome, .. } => Some(format!("{outcome:?}")),
        _ => None,
    }
}

/// DUR-9: a deleted session is in no list; a repeated call is answered with the same commit and touches nothing that began since;
/// what was decided stays as digests, also for a projection that is built anew.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_deleted_session_is_gone_and_its_decisions_stay() {
    let mut scene = scene(Parts::new(|request| {
        if results(request).is_empty() {
            calls(&[("t::destroy", json!({"what": "secret"}))])
        } else {
            says("done")
        }
    }))
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    scene
        .resolve(&pending, Decision::Approve)
        .await
        .expect("decided");
    scene.idle(&id).await;
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Ok]);
    let request = json!({"session_id": id, "confirm": true});
    let gone: ChangeReply = ask(&scene, "session::delete", "d", &request)
        .await
        .expect("deleted");
    wait::until(LIMIT, "only the tombstone is left", || async {
        scene.commits(&id).await.len() == 1
    })
    .await;
    let tombstone = scene.commits(&id).await.remove(0);
    assert_eq!(gone.commit, Some(tombstone.n));
    let again: ChangeReply = ask(&scene, "session::delete", "d", &request)
        .await
        .expect("the same");
    assert_eq!(gone, again);
    let list: ListReply = scene
        .operate("session::list", &json!({}))
        .await
        .expect("a list");
    assert_eq!(list.sessions, []);
    assert_eq!(
        refusal(&scene, "session::messages", &json!({"session_id": id})).await,
        "session.not_found"
    );
    let kept = decisions(&scene).await;
    // Built anew from what is left of the log.
    scene.drain("session").await;
    let config = teamster_session::Config { file: None };
    scene
        .serve(teamster_session::worker(&config).expect("a worker"))
        .await;
    scene.wait_for(&["session::approvals"]).await;
    assert_eq!(decisions(&scene).await, kept);
    assert!(matches!(
        &kept[..],
        [ApprovalEntry::Digest { approval_id, digest, settled: Some(_), .. }]
            if *approval_id == pending.approval_id && *digest == pending.digest
    ));
    scene.send(&id, "go on").await;
    scene.pending().await;
    let again: ChangeReply = ask(&scene, "session::delete", "d", &request)
        .await
        .expect("the same");
    assert_eq!(gone, again);
    assert!(
        scene.pending().await.session_id == id,
        "the new session is not touched"
    );
    assert_eq!(scene.commits(&id).await[1].n, tombstone.n + 1);
}

async fn decisions(scene: &Scene) -> Vec<ApprovalEntry> {
    let reply: ApprovalsReply = scene
        .operate("session::approvals", &json!({}))
        .await
        .expect("a history");
    reply.entries
}

/// While no harness lives a change is stored and said to be; it is taken when one comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_without_a_harness_is_stored_and_taken_later() {
    let parts = Parts::new(|_| says("done"));
    let config = parts.harness.clone();
    let mut scene = scene(parts).await;
    let id = session("s");
    let _: CreateReply = scene
        .operate("session::create", &json!({"session_id": id}))
        .await
        .expect("created");
    scene.drain("harness").await;
    let change = json!({"session_id": id, "title": "later"});
    let patience = Duration::from_secs(2);
    let stored: ChangeReply = within(&scene, patience, "session::set-meta", "a", &change)
        .await
        .expect("stored");
    assert_eq!(stored.commit, None);
    let other = json!({"session_id": "other"});
    let other: Result<CreateReply, Fault> =
        within(&scene, patience, "session::create", "b", &other).await;
    assert_eq!(
        other.expect_err("not yet").code,
        "session.not_committed_yet"
    );
    scene
        .serve(teamster::harness::worker(&config).expect("harness"))
        .await;
    wait::until(LIMIT, "the change is taken", || async {
        let request = json!({"session_id": id});
        let info: Result<SessionInfo, Fault> = scene.operate("session::get", &request).await;
        info.is_ok_and(|info| info.title.as_deref() == Some("later"))
    })
    .await;
    wait::until(LIMIT, "the other session is there", || async {
        !scene.commits(&session("other")).await.is_empty()
    })
    .await;
}
