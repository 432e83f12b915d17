//! The way of a decision: stored as an input, answered from the log.

use std::time::Duration;

use teamster_approval_gate::Config;
use teamster_protocol::{
    Digest, Fault, FaultClass, Lane, Phase, Principal,
    function::approval::{Resolution, ResolveReply, ResolveRequest},
    input::{ControlKind, Decide, Decision},
    subject,
};

use crate::rig::{
    NEVER_MS, Rig, approval, arguments, asked, begun, expired, requested, resolved, session,
};

fn request(decision: Decision) -> ResolveRequest {
    ResolveRequest {
        approval_id: approval(1),
        digest: asked().digest(),
        decision,
        channel: "test".to_owned(),
    }
}

async fn resolve(rig: &Rig, by: &str, request: &ResolveRequest) -> Result<ResolveReply, Fault> {
    rig.call("approval::resolve", Some(by), request).await
}

/// Takes a refused decision, and that nothing of it is in the lane.
async fn refused(rig: &Rig, request: &ResolveRequest) -> String {
    let fault = resolve(rig, "owner", request).await.expect_err("refused");
    let lanes = rig.mesh.lanes();
    let queued = lanes
        .next(&session("one"), Lane::Ctl, 0)
        .await
        .expect("a lane");
    assert_eq!(queued, None, "{fault}");
    fault.code
}

async fn waiting(rig: &Rig) -> teamster_testkit::written::Writer {
    let mut writer = begun(rig, "one").await;
    writer
        .commit(Phase::Parked, vec![requested(1, NEVER_MS)])
        .await;
    rig.lists(&[approval(1)]).await;
    writer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_becomes_an_input_and_is_answered_from_the_log() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = waiting(&rig).await;
    let approve = request(Decision::Approve);
    let (reply, ()) = tokio::join!(resolve(&rig, "owner", &approve), async {
        let (_, decide) = rig.input(&session("one"), 0).await;
        let want = Decide {
            id: decide.id.clone(),
            approval: approval(1),
            by: Principal::parse("owner").expect("a principal"),
            channel: "test".to_owned(),
            digest: asked().digest(),
            decision: Decision::Approve,
        };
        assert_eq!(decide, want);
        writer
            .commit(Phase::Active, vec![resolved(1, "owner", Decision::Approve)])
            .await;
    });
    let reply = reply.expect("an answer");
    assert!(reply.won);
    rig.lists(&[]).await;

    // SEC-29: the same decision again is the same decision; no second input is made of it.
    let again = resolve(&rig, "owner", &approve).await.expect("an answer");
    assert_eq!(again, reply);
    let (first, _) = rig.input(&session("one"), 0).await;
    let second = rig
        .mesh
        .lanes()
        .next(&session("one"), Lane::Ctl, first.seq)
        .await
        .expect("a lane");
    assert_eq!(second, None);
    let late = resolve(&rig, "other", &request(Decision::Deny { reason: None }))
        .await
        .expect("an answer");
    assert_eq!((late.won, late.resolution), (false, reply.resolution));
}

/// SEC-31: the gate's credentials are enough for its part, and a decision that another worker makes up is refused by the
/// broker itself.
#[tokio::test(flavor = "multi_thread")]
async fn sec_31_only_the_gate_may_put_a_decision_into_a_session() {
    let config = Config::default();
    let mut rig = Rig::secured(&config).await;
    let mut writer = waiting(&rig).await;
    rig.start_gate(&config).await;
    rig.lists(&[approval(1)]).await;
    let one = session("one");
    let subject = subject::turn_ctl(&one, ControlKind::Decide);
    rig.mesh.publish(subject, "{}".into()).await.expect("sent");
    rig.mesh.flush().await.expect("the broker has taken it");
    let forged = rig.mesh.lanes().next(&one, Lane::Ctl, 0).await;
    assert_eq!(forged.expect("a lane"), None, "the harness decided");
    let approve = request(Decision::Approve);
    let (reply, ()) = tokio::join!(resolve(&rig, "owner", &approve), async {
        let (_, decide) = rig.input(&one, 0).await;
        assert_eq!(
            (decide.by.as_str(), decide.approval),
            ("owner", approval(1))
        );
        writer
            .commit(Phase::Active, vec![resolved(1, "owner", Decision::Approve)])
            .await;
    });
    assert!(reply.expect("an answer").won);
}

/// SEC-30: of two that decide at once the first in the log wins, and the other is told whose decision it was.
#[tokio::test(flavor = "multi_thread")]
async fn sec_30_of_two_decisions_the_first_in_the_log_wins() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = waiting(&rig).await;
    let (yes, no) = (
        request(Decision::Approve),
        request(Decision::Deny { reason: None }),
    );
    let (one, two, winner) = tokio::join!(
        resolve(&rig, "anna", &yes),
        resolve(&rig, "bert", &no),
        async {
            let (first, decide) = rig.input(&session("one"), 0).await;
            rig.input(&session("one"), first.seq).await;
            writer
                .commit(
                    Phase::Active,
                    vec![resolved(1, decide.by.as_str(), decide.decision)],
                )
                .await;
            decide.by
        }
    );
    let (one, two) = (one.expect("an answer"), two.expect("an answer"));
    assert_eq!(
        (one.won, two.won),
        (winner.as_str() == "anna", winner.as_str() == "bert")
    );
    assert_eq!(one.resolution, two.resolution);
    assert!(matches!(one.resolution, Resolution::Decided { by, .. } if by == winner));
}

/// SEC-27: a decision about other bytes than those that wait is refused, and so is one about nothing.
#[tokio::test(flavor = "multi_thread")]
async fn sec_27_a_decision_about_other_bytes_is_refused() {
    let rig = Rig::start(&Config::default()).await;
    let _writer = waiting(&rig).await;
    let mut stale = request(Decision::Approve);
    stale.digest = Digest::of("other bytes");
    assert_eq!(refused(&rig, &stale).await, "approval.stale_digest");
    let mut unknown = request(Decision::Approve);
    unknown.approval_id = approval(9);
    assert_eq!(refused(&rig, &unknown).await, "approval.not_found");
    let secret = request(Decision::Edit {
        arguments: arguments(r#"{"path":"x/.env","content":""}"#),
    });
    assert_eq!(refused(&rig, &secret).await, "approval.edit_denied");
}

/// APPR-1, SEC-34: a decision that comes too late is told so, before and after the log says that it expired.
#[tokio::test(flavor = "multi_thread")]
async fn appr_1_a_late_decision_is_told_that_it_is_late() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = begun(&rig, "one").await;
    writer.commit(Phase::Parked, vec![requested(1, 5)]).await;
    let approve = request(Decision::Approve);
    assert_eq!(refused(&rig, &approve).await, "approval.expired");
    writer.commit(Phase::Active, vec![expired(1)]).await;
    rig.lists(&[]).await;
    let reply = resolve(&rig, "owner", &approve).await.expect("an answer");
    assert_eq!(
        (reply.won, reply.resolution),
        (false, Resolution::Expired { at_ms: 3000 })
    );
}

/// A decision that no harness takes in time is stored all the same, and is applied later.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_no_harness_takes_is_stored() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = waiting(&rig).await;
    let deny = request(Decision::Deny {
        reason: Some("not today".to_owned()),
    });
    let fault = rig
        .call_within::<_, ResolveReply>(
            "approval::resolve",
            Some("owner"),
            &deny,
            Duration::from_secs(3),
        )
        .await
        .expect_err("nobody commits");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("approval.not_committed_yet", FaultClass::Busy)
    );
    let (_, decide) = rig.input(&session("one"), 0).await;
    writer
        .commit(Phase::Active, vec![resolved(1, "owner", decide.decision)])
        .await;
    let reply = resolve(&rig, "owner", &deny).await.expect("an answer");
    assert!(reply.won, "{reply:?}");
}
