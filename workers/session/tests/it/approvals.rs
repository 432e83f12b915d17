//! The history of approvals.

use teamster_protocol::{
    Event, Phase,
    function::{
        approval::Resolution,
        session::{ApprovalEntry, ApprovalsReply, ApprovalsRequest, GetRequest, SessionInfo},
    },
    message::ResultKind,
};

use crate::rig::{
    Rig, Writer, approval, asked, began, call, created, finished, proposed, requested, resolved,
    said, session,
};

async fn history(rig: &Rig, request: &ApprovalsRequest) -> Vec<ApprovalEntry> {
    let reply: ApprovalsReply = rig
        .ask("session::approvals", request)
        .await
        .expect("a history");
    reply.entries
}

fn resolution(entry: &ApprovalEntry) -> (String, Option<Resolution>) {
    match entry {
        ApprovalEntry::Whole(whole) => {
            assert_eq!(whole.request.arguments, asked());
            assert_eq!(whole.request.digest, asked().digest());
            (
                whole.request.approval_id.to_string(),
                whole.resolution.clone(),
            )
        }
        ApprovalEntry::Digest { approval_id, .. } => {
            panic!("the session of {approval_id} is not deleted")
        }
    }
}

/// A session that asks for a decision about call `number`.
async fn asks(rig: &Rig, name: &str, number: u64) -> Writer {
    let mut writer = Writer::new(&rig.mesh, name);
    writer
        .commit(Phase::Active, vec![created(name), said("write"), began(1)])
        .await;
    let mut events = proposed(2, number);
    events.push(requested(number));
    writer.commit(Phase::Parked, events).await;
    writer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_says_what_was_asked_and_what_became_of_it() {
    let rig = Rig::start().await;
    let mut one = asks(&rig, "one", 1).await;
    let waiting: SessionInfo = rig
        .ask(
            "session::get",
            &GetRequest {
                session_id: session("one"),
            },
        )
        .await
        .expect("it is there");
    assert_eq!(
        (waiting.status.as_str(), waiting.approvals),
        ("awaiting_approval", 1)
    );
    assert_eq!(
        resolution(&history(&rig, &ApprovalsRequest::default()).await[0]),
        (approval(1).to_string(), None)
    );
    one.commit(
        Phase::Active,
        vec![resolved(1), Event::CallStarted { call: call(1) }],
    )
    .await;
    // The first decision counts.
    one.commit(
        Phase::Active,
        vec![
            Event::ApprovalExpired {
                approval: approval(1),
                call: call(1),
                withdrawn: false,
            },
            finished(1, "done"),
        ],
    )
    .await;
    let mut two = asks(&rig, "two", 2).await;
    two.commit(
        Phase::Active,
        vec![Event::ApprovalExpired {
            approval: approval(2),
            call: call(2),
            withdrawn: true,
        }],
    )
    .await;
    let all = history(&rig, &ApprovalsRequest::default()).await;
    let [newer, older] = all.as_slice() else {
        panic!("two requests: {all:?}");
    };
    assert_eq!(
        resolution(newer),
        (
            approval(2).to_string(),
            Some(Resolution::Withdrawn { at_ms: 3000 })
        )
    );
    let (_, decided) = resolution(older);
    assert!(
        matches!(
            decided,
            Some(Resolution::Decided {
                at_ms: 3000,
                outcome: Some(ResultKind::Ok),
                ..
            })
        ),
        "{decided:?}"
    );
    let only = ApprovalsRequest {
        session_id: Some(session("one")),
        limit: Some(1),
    };
    assert_eq!(&history(&rig, &only).await, std::slice::from_ref(older));
    let nobody = ApprovalsRequest {
        session_id: Some(session("nobody")),
        limit: None,
    };
    assert!(history(&rig, &nobody).await.is_empty());
}
