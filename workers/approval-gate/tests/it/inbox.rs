//! The inbox is what the log says.

use teamster_approval_gate::Config;
use teamster_protocol::{
    Event, Phase, Principal,
    function::approval::{GetReply, GetRequest, ListReply, ListRequest, Resolution},
    input::Decision,
    message::ResultKind,
};

use crate::rig::{
    NEVER_MS, Rig, approval, asked, begun, call, expired, requested, resolved, session, turn,
};

async fn get(rig: &Rig, n: u64) -> GetReply {
    let request = GetRequest {
        approval_id: approval(n),
    };
    rig.call("approval::get", Some("owner"), &request)
        .await
        .expect("it is known")
}

/// SEC-34: what waits survives the gate: another one reads it from the log again.
#[tokio::test(flavor = "multi_thread")]
async fn sec_34_what_waits_survives_a_restart_of_the_gate() {
    let config = Config::default();
    let mut rig = Rig::start(&config).await;
    let mut one = begun(&rig, "one").await;
    assert!(rig.listed().await.is_empty());
    one.commit(Phase::Parked, vec![requested(1, NEVER_MS)])
        .await;
    rig.lists(&[approval(1)]).await;

    let mut two = begun(&rig, "two").await;
    two.commit(Phase::Active, vec![]).await;
    two.commit(Phase::Parked, vec![requested(2, NEVER_MS)])
        .await;
    rig.lists(&[approval(1), approval(2)]).await;
    rig.start_gate(&config).await;
    rig.lists(&[approval(1), approval(2)]).await;

    let only: ListReply = rig
        .call(
            "approval::list",
            Some("owner"),
            &ListRequest {
                session_id: Some(session("two")),
            },
        )
        .await
        .expect("a list");
    let [pending] = only.pending.as_slice() else {
        panic!("one request of that session: {only:?}");
    };
    assert_eq!(pending.arguments, asked());
    assert_eq!(
        (pending.digest, pending.arguments_bytes),
        (asked().digest(), 37)
    );
    assert_eq!((&pending.turn_id, &pending.call_id), (&turn(), &call(2)));
    assert_eq!(
        (pending.requested_at_ms, pending.expires_at_ms),
        (3000, NEVER_MS)
    );

    one.commit(Phase::Active, vec![resolved(1, "owner", Decision::Approve)])
        .await;
    rig.lists(&[approval(2)]).await;
    two.commit(Phase::Active, vec![expired(2)]).await;
    rig.lists(&[]).await;
}

/// A session that was parked before the gate started, decided while none ran, is not listed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_while_no_gate_ran_is_not_listed() {
    let config = Config::default();
    let mut rig = Rig::start(&config).await;
    let mut one = begun(&rig, "one").await;
    one.commit(
        Phase::Parked,
        vec![requested(1, NEVER_MS), requested(2, NEVER_MS)],
    )
    .await;
    rig.lists(&[approval(1), approval(2)]).await;
    rig.stop_gate().await;
    one.commit(Phase::Parked, vec![resolved(1, "owner", Decision::Approve)])
        .await;
    rig.start_gate(&config).await;
    rig.lists(&[approval(2)]).await;
}

/// APPR-1: a request that is over can be looked at, and says how it ended.
#[tokio::test(flavor = "multi_thread")]
async fn appr_1_a_request_that_is_over_says_how_it_ended() {
    let config = Config::default();
    let mut rig = Rig::start(&config).await;
    let mut one = begun(&rig, "one").await;
    one.commit(
        Phase::Parked,
        vec![requested(1, NEVER_MS), requested(2, NEVER_MS)],
    )
    .await;
    rig.lists(&[approval(1), approval(2)]).await;
    assert_eq!(get(&rig, 1).await.resolution, None);
    one.commit(
        Phase::Active,
        vec![resolved(1, "owner", Decision::Approve), expired(2)],
    )
    .await;
    one.commit(
        Phase::Idle,
        vec![Event::CallFinished {
            whole: None,
            call: call(1),
            outcome: ResultKind::Ok,
            text: String::new(),
            duration_ms: 1,
        }],
    )
    .await;
    rig.lists(&[]).await;
    let decided = Some(Resolution::Decided {
        by: Principal::parse("owner").expect("a principal"),
        channel: "test".to_owned(),
        decision: Decision::Approve,
        at_ms: 3000,
        outcome: Some(ResultKind::Ok),
    });
    assert_eq!(get(&rig, 1).await.resolution, decided);
    assert_eq!(
        get(&rig, 2).await.resolution,
        Some(Resolution::Expired { at_ms: 3000 })
    );
    // A gate that never saw it reads it from the log.
    rig.start_gate(&config).await;
    assert_eq!(get(&rig, 1).await.resolution, decided);
}

/// APPR-9: the operator's functions are not served where workers and models call.
#[tokio::test(flavor = "multi_thread")]
async fn appr_9_the_operators_functions_are_not_served_to_workers() {
    let rig = Rig::start(&Config::default()).await;
    for function in ["approval::list", "approval::resolve", "approval::explain"] {
        let fault = rig
            .call::<_, serde_json::Value>(function, None, &serde_json::json!({}))
            .await
            .expect_err("not served");
        assert_eq!(fault.code, "mesh.no_responders", "{function}");
    }
}
