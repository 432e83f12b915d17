//! Calls that wait for a person, from the question to what runs: edits, expiry, restarts, two people at once.

use std::io::Write as _;

use serde_json::{Value, json};
use teamster::harness;
use teamster_protocol::{
    Arguments, Digest, Event, Fault,
    event::EndReason,
    function::{
        approval::{ExplainReply, GetReply, ListReply, Pending, Resolution, ResolveReply},
        harness::{ResolveReply as Delivered, StopReply},
        router::{ChatRequest, Completion},
    },
    input::{Decision, TurnOptions},
    message::ResultKind,
    policy::Effect,
    usage::Budget,
};
use teamster_testkit::wait;

use crate::scene::{LIMIT, Parts, Scene, calls, outcomes, raw_call, results, says, session};

/// A policy file that is laid on top of the compiled-in one.
fn policy(rules: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("version: 1\nlayers:\n  - name: test\n    rules:\n      {rules}\n");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn parts(
    model: impl Fn(&ChatRequest) -> Completion + Send + Sync + 'static,
    policy: Option<&tempfile::NamedTempFile>,
) -> Parts {
    let mut parts = Parts::new(model);
    parts.gate.policy_file = policy.map(|file| file.path().to_owned());
    parts
}

fn destroys_once(request: &ChatRequest) -> Completion {
    if results(request).is_empty() {
        calls(&[("t::destroy", json!({"what": "one"}))])
    } else {
        says("done")
    }
}

async fn restart_harness(scene: &mut Scene) {
    scene.drain("harness").await;
    let config = Parts::new(destroys_once).harness;
    scene
        .serve(harness::worker(&config).expect("harness"))
        .await;
    scene.wait_for(&["harness::send"]).await;
}

async fn list(scene: &Scene) -> Vec<Pending> {
    let reply: ListReply = scene
        .operate("approval::list", &json!({}))
        .await
        .expect("a list");
    reply.pending
}

async fn resolution(scene: &Scene, pending: &Pending) -> Option<Resolution> {
    let request = json!({"approval_id": pending.approval_id});
    let reply: GetReply = scene
        .operate("approval::get", &request)
        .await
        .expect("a request");
    reply.resolution
}

fn bodies(scene: &Scene) -> Vec<String> {
    scene.bodies.lock().expect("lock").clone()
}

fn texts(events: &[Event]) -> Vec<String> {
    let texts = events.iter().filter_map(|event| match event {
        Event::CallFinished { text, .. } | Event::CallRefused { text, .. } => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

/// SEC-27, APPR-4: what runs is what was shown, byte for byte: white space, escapes, the form of numbers.
#[tokio::test(flavor = "multi_thread")]
async fn sec_27_what_runs_is_what_was_approved_byte_for_byte() {
    let exact = "{ \"what\" :\t\"\\u0061ll \\u001b[2J\",\n  \"n\": 1.0, \"e\": 1E2 }";
    let scene = Scene::start(Parts::new(move |request| {
        if results(request).is_empty() {
            raw_call("t::destroy", exact)
        } else {
            says("done")
        }
    }))
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    assert_eq!(pending.arguments.as_str(), exact);
    assert_eq!(
        (pending.digest, pending.arguments_bytes),
        (
            Digest::of(exact),
            u64::try_from(exact.len()).expect("small")
        )
    );
    let mut other = pending.clone();
    other.digest = Digest::of(exact.replace("1.0", "1"));
    let stale = scene
        .resolve(&other, Decision::Approve)
        .await
        .expect_err("another digest");
    assert_eq!(stale.code, "approval.stale_digest");
    assert!(bodies(&scene).is_empty());
    scene
        .resolve(&pending, Decision::Approve)
        .await
        .expect("decided");
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(bodies(&scene), [exact]);
}

/// APPR-4: edited arguments are judged again; what the policy denies is not taken, and what runs are the edited bytes.
#[tokio::test(flavor = "multi_thread")]
async fn appr_4_edited_arguments_are_judged_again_and_run_as_they_are() {
    let file = policy(
        "- { effect: deny, function: \"t::destroy\", when: { \"/what\": { equals: \"all\" } } }",
    );
    let scene = Scene::start(parts(destroys_once, Some(&file))).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    let edit = |text: &str| Decision::Edit {
        arguments: Arguments::parse(text).expect("valid"),
    };
    let refused = scene
        .resolve(&pending, edit(r#"{"what":"all"}"#))
        .await
        .expect_err("denied by the policy");
    assert_eq!(refused.code, "approval.edit_denied");
    assert_eq!(list(&scene).await.len(), 1, "the request still waits");
    let edited = "{ \"what\" : \"tw\\u006f\" }";
    let reply = scene
        .resolve(&pending, edit(edited))
        .await
        .expect("decided");
    assert!(reply.won);
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(bodies(&scene), [edited]);
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::Ok]);
    let asked = events
        .iter()
        .filter(|event| matches!(event, Event::ApprovalRequested { .. }));
    assert_eq!(asked.count(), 1, "what was edited is not asked about again");
}

/// APPR-1, SEC-34: nobody decides in time: the call is answered as expired, the turn goes on, and a late yes changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn appr_1_a_request_expires_by_its_timer_and_the_turn_goes_on() {
    let file = policy("- { effect: ask, function: \"t::destroy\", ttl_s: 1 }");
    let scene = Scene::start(parts(destroys_once, Some(&file))).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::Expired]);
    assert!(texts(&events)[0].contains("denied: expired"));
    assert!(list(&scene).await.is_empty());
    assert!(matches!(
        resolution(&scene, &pending).await,
        Some(Resolution::Expired { .. })
    ));
    let late = scene.resolve(&pending, Decision::Approve).await;
    assert!(
        late.is_err() || late.is_ok_and(|reply| !reply.won),
        "too late"
    );
    assert_eq!(scene.count("t::destroy"), 0);
}

/// SEC-34: a wait ends although no harness ran when its time came, and although another one set the timer.
#[tokio::test(flavor = "multi_thread")]
async fn sec_34_a_wait_ends_across_a_restart_and_never_as_a_yes() {
    let file = policy("- { effect: ask, function: \"t::destroy\", ttl_s: 2 }");
    let mut scene = Scene::start(parts(destroys_once, Some(&file))).await;
    let (early, late) = (session("early"), session("late"));
    scene.send(&early, "go").await;
    scene.pending().await;
    restart_harness(&mut scene).await;
    assert_eq!(scene.ended(&early, 1).await, [EndReason::Completed]);
    assert_eq!(outcomes(&scene.events(&early).await), [ResultKind::Expired]);
    scene.send(&late, "go").await;
    scene.pending().await;
    scene.drain("harness").await;
    // Its time passes while nobody is there.
    wait::until(LIMIT, "the end of the wait", || async {
        list(&scene).await.is_empty()
    })
    .await;
    let config = Parts::new(destroys_once).harness;
    scene
        .serve(harness::worker(&config).expect("harness"))
        .await;
    assert_eq!(scene.ended(&late, 1).await, [EndReason::Completed]);
    assert_eq!(outcomes(&scene.events(&late).await), [ResultKind::Expired]);
    assert_eq!(scene.count("t::destroy"), 0);
}

/// A result that comes from outside takes the place of the call.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_from_outside_ends_a_held_call() {
    let scene = Scene::start(Parts::new(destroys_once)).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    let request =
        json!({"session_id": id, "call_id": pending.call_id, "content": "I did it by hand"});
    let _: Delivered = scene
        .operate("harness::function::resolve", &request)
        .await
        .expect("stored");
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    let events = scene.events(&id).await;
    assert_eq!(outcomes(&events), [ResultKind::Ok]);
    assert_eq!(texts(&events), ["I did it by hand"]);
    let last = scene.requests.lock().expect("lock").last().cloned();
    assert_eq!(
        results(&last.expect("a request")),
        ["I did it by hand"],
        "the model reads it"
    );
    assert!(matches!(
        resolution(&scene, &pending).await,
        Some(Resolution::Withdrawn { .. })
    ));
    let late = scene.resolve(&pending, Decision::Approve).await;
    assert!(late.is_err() || late.is_ok_and(|reply| !reply.won));
    // A second delivery finds nothing to end.
    let again =
        json!({"session_id": id, "call_id": pending.call_id, "content": "again", "is_error": true});
    let _: Delivered = scene
        .operate("harness::function::resolve", &again)
        .await
        .expect("stored");
    scene.idle(&id).await;
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Ok]);
    assert_eq!(scene.count("t::destroy"), 0);
}

/// Nothing of a message runs before all of its questions are answered.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_before_all_questions_of_a_message_are_answered() {
    let scene = Scene::start(Parts::new(|request| {
        if results(request).is_empty() {
            calls(&[
                ("t::write", json!({})),
                ("t::destroy", json!({"what": "first"})),
                ("t::destroy", json!({"what": "second"})),
                ("t::read", json!({})),
            ])
        } else {
            says("done")
        }
    }))
    .await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = wait::some(LIMIT, "two questions", || async {
        let pending = list(&scene).await;
        (pending.len() == 2).then_some(pending)
    })
    .await;
    let find = |what: &str| {
        pending
            .iter()
            .find(|one| one.arguments.as_str().contains(what))
            .expect("asked")
    };
    scene
        .resolve(find("second"), Decision::Approve)
        .await
        .expect("decided");
    assert_eq!(list(&scene).await.len(), 1);
    assert_eq!(scene.status(&id).await.status, "awaiting_approval");
    assert!(bodies(&scene).is_empty(), "one question is still open");
    let no = Decision::Deny { reason: None };
    scene.resolve(find("first"), no).await.expect("decided");
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(
        (
            scene.count("t::write"),
            scene.count("t::destroy"),
            scene.count("t::read")
        ),
        (1, 1, 1)
    );
    let last = scene.requests.lock().expect("lock").last().cloned();
    assert_eq!(results(&last.expect("a request")).len(), 4);
    assert!(bodies(&scene).iter().all(|body| !body.contains("first")));
}

/// APPR-1, LOOP-1: a stop while a person is asked ends the turn and withdraws the question.
#[tokio::test(flavor = "multi_thread")]
async fn loop_1_a_stop_while_a_person_is_asked_withdraws_the_question() {
    let scene = Scene::start(Parts::new(destroys_once)).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    let reply: StopReply = scene
        .operate("harness::stop", &json!({"session_id": id}))
        .await
        .expect("stored");
    assert!(reply.stopping);
    assert!(matches!(
        scene.ended(&id, 1).await[..],
        [EndReason::Cancelled { .. }]
    ));
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Cancelled]);
    wait::until(LIMIT, "an empty inbox", || async {
        list(&scene).await.is_empty()
    })
    .await;
    assert!(matches!(
        resolution(&scene, &pending).await,
        Some(Resolution::Withdrawn { .. })
    ));
    let late = scene.resolve(&pending, Decision::Approve).await;
    assert!(late.is_err() || late.is_ok_and(|reply| !reply.won));
    scene.idle(&id).await;
    assert_eq!(scene.count("t::destroy"), 0);
}

/// SEC-29, SEC-34: a question outlives the gate and the harness, and its answer counts once, however often it is given.
#[tokio::test(flavor = "multi_thread")]
async fn sec_29_a_question_outlives_gate_and_harness_and_its_answer_counts_once() {
    let mut scene = Scene::start(Parts::new(destroys_once)).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let before = scene.pending().await;
    scene.drain("approval-gate").await;
    restart_harness(&mut scene).await;
    let gate = teamster_approval_gate::Config::default();
    scene
        .serve(teamster_approval_gate::worker(&gate).expect("gate"))
        .await;
    scene.wait_for(&["approval::list"]).await;
    let after = scene.pending().await;
    assert_eq!(after, before);
    for _ in 0..2 {
        let reply = scene
            .resolve(&after, Decision::Approve)
            .await
            .expect("decided");
        assert!(reply.won, "the same answer again is the same answer");
    }
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    restart_harness(&mut scene).await;
    let again = scene
        .resolve(&after, Decision::Approve)
        .await
        .expect("answered from the log");
    assert!(matches!(
        again.resolution,
        Resolution::Decided {
            outcome: Some(ResultKind::Ok) | None,
            ..
        }
    ));
    scene.idle(&id).await;
    assert_eq!(scene.count("t::destroy"), 1);
}

/// SEC-30: two people decide at once: the first in the log wins, and both are told so.
#[tokio::test(flavor = "multi_thread")]
async fn sec_30_of_two_decisions_the_first_in_the_log_wins() {
    let scene = Scene::start(Parts::new(destroys_once)).await;
    for round in 0..6 {
        let id = session(&format!("s{round}"));
        scene.send(&id, "go").await;
        let pending = scene.pending().await;
        let no = Decision::Deny { reason: None };
        let (yes, no): (Result<ResolveReply, Fault>, _) = tokio::join!(
            scene.resolve(&pending, Decision::Approve),
            scene.resolve(&pending, no)
        );
        let (yes, no) = (yes.expect("answered"), no.expect("answered"));
        assert_ne!(yes.won, no.won, "exactly one decision counts");
        assert_eq!(decision(&yes.resolution), decision(&no.resolution));
        assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
        let events = scene.events(&id).await;
        let in_log: Vec<&Decision> = events
            .iter()
            .filter_map(|event| match event {
                Event::ApprovalResolved { decision, .. } => Some(decision),
                _ => None,
            })
            .collect();
        assert_eq!(in_log, [decision(&yes.resolution)]);
        let ran = usize::from(yes.won);
        let body: Value = json!({"what": "one"});
        assert_eq!(outcomes(&events).len(), 1);
        let mut bodies = scene.bodies.lock().expect("lock");
        assert_eq!(*bodies, vec![body.to_string(); ran]);
        bodies.clear();
    }
}

fn decision(resolution: &Resolution) -> &Decision {
    match resolution {
        Resolution::Decided { decision, .. } => decision,
        other => panic!("not decided: {other:?}"),
    }
}

/// SEC-28: a policy that has become stricter while a person was asked voids the approval; a denial is still taken.
#[tokio::test(flavor = "multi_thread")]
async fn sec_28_a_stricter_policy_voids_an_approval_that_waits() {
    let mut file = policy("- { effect: ask, function: \"t::destroy\" }");
    let scene = Scene::start(parts(destroys_once, Some(&file))).await;
    let id = session("s");
    scene.send(&id, "go").await;
    let pending = scene.pending().await;
    let rule = "version: 1\nlayers:\n  - name: test\n    rules:\n      - { effect: deny, function: \"t::destroy\" }\n";
    file.as_file_mut().set_len(0).expect("emptied");
    std::fs::write(file.path(), rule).expect("written");
    let call = json!({"function": "t::destroy", "arguments": pending.arguments});
    wait::until(LIMIT, "the policy is read again", || async {
        let reply: Result<ExplainReply, Fault> = scene.operate("approval::explain", &call).await;
        reply.is_ok_and(|reply| reply.judgement.effect == Effect::Deny)
    })
    .await;
    let void = scene
        .resolve(&pending, Decision::Approve)
        .await
        .expect_err("the policy is stricter now");
    assert_eq!(void.code, "approval.void");
    assert_eq!(list(&scene).await.len(), 1);
    let no = Decision::Deny { reason: None };
    assert!(scene.resolve(&pending, no).await.expect("decided").won);
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(
        outcomes(&scene.events(&id).await),
        [ResultKind::DeniedByOwner]
    );
    assert_eq!(scene.count("t::destroy"), 0);
}

/// Time that a person takes is not the turn's: a bound on its working time does not end it.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_person_does_not_use_up_a_turns_time() {
    let file = policy("- { effect: ask, function: \"t::destroy\", ttl_s: 2 }");
    let scene = Scene::start(parts(destroys_once, Some(&file))).await;
    let id = session("s");
    let options = TurnOptions {
        budget: Budget {
            wall_ms: Some(1_800),
            ..Budget::default()
        },
        ..TurnOptions::default()
    };
    scene.send_options(&id, "go", options).await;
    scene.pending().await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Expired]);
}
