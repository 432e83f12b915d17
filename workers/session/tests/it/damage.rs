//! Logs that do not fold: their sessions stay listed, and others do not notice.

use teamster_protocol::{
    Digest, Event, Phase,
    function::session::{
        EventsReply, EventsRequest, GetRequest, ListReply, ListRequest, MessagesReply,
        MessagesRequest, SessionInfo,
    },
};

use crate::{
    ask::turn,
    rig::{Rig, Writer, created, owner, said, session},
};

async fn info(rig: &Rig, name: &str) -> SessionInfo {
    let request = GetRequest {
        session_id: session(name),
    };
    rig.ask("session::get", &request)
        .await
        .expect("it is there")
}

/// DUR-7: a session with a torn or foreign commit stays listed as damaged with what folds, until the loss is accepted; what lay
/// behind the break never counts.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_damaged_session_stays_listed_with_what_folds() {
    let rig = Rig::start().await;
    let mut sound = Writer::new(&rig.mesh, "sound");
    sound.commit(Phase::Idle, vec![created("sound")]).await;
    let mut torn = Writer::new(&rig.mesh, "torn");
    torn.commit(Phase::Idle, vec![created("torn")]).await;
    turn(&mut torn, 1, "before", "the break").await;
    let kept = (torn.n, torn.prev);
    torn.store(b"\0\0\0torn".to_vec()).await;
    torn.commit(Phase::Idle, vec![said("lost")]).await;

    let damaged = info(&rig, "torn").await;
    assert_eq!((damaged.status.as_str(), damaged.commits), ("damaged", 3));
    assert_eq!(damaged.preview.as_deref(), Some("the break"));
    let request = ListRequest {
        status: Some("damaged".to_owned()),
        ..ListRequest::default()
    };
    let listed: ListReply = rig.ask("session::list", &request).await.expect("a list");
    assert_eq!(listed.sessions, [damaged]);
    assert_eq!(info(&rig, "sound").await.status, "idle");

    let accepted = Event::LossAccepted {
        by: owner(),
        lost_from: kept.0 + 1,
        kept: kept.1,
        message: "torn".to_owned(),
    };
    torn.n += 1000;
    torn.commit(Phase::Idle, vec![accepted, said("after")])
        .await;
    let mended = info(&rig, "torn").await;
    assert_eq!((mended.status.as_str(), mended.commits), ("idle", 4));
    let transcript: MessagesReply = rig
        .ask(
            "session::messages",
            &MessagesRequest {
                session_id: session("torn"),
                skip: 0,
                limit: None,
            },
        )
        .await
        .expect("a transcript");
    let texts: Vec<String> = transcript
        .messages
        .iter()
        .map(|entry| serde_json::to_string(&entry.message).expect("JSON"))
        .collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[2].contains("after") && !texts.iter().any(|text| text.contains("lost")));
    let events: EventsReply = rig
        .ask(
            "session::events",
            &EventsRequest {
                session_id: session("torn"),
                after: kept.0,
                limit: None,
            },
        )
        .await
        .expect("events");
    let types: Vec<&str> = events
        .events
        .iter()
        .map(|entry| entry.event["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(types, ["loss_accepted", "message_added"]);
    assert_eq!((events.upto, events.commits), (torn.n, 4));
}

/// DUR-7: a session that never had a readable commit is listed too.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_session_of_which_nothing_can_be_read_is_listed() {
    let rig = Rig::start().await;
    let mut writer = Writer::new(&rig.mesh, "unreadable");
    writer.store(b"{".to_vec()).await;
    let found = info(&rig, "unreadable").await;
    assert_eq!((found.status.as_str(), found.commits), ("damaged", 0));
    let mut foreign = Writer::new(&rig.mesh, "foreign");
    foreign.prev = Digest::of("another beginning");
    foreign.commit(Phase::Idle, vec![created("x")]).await;
    assert_eq!(info(&rig, "foreign").await.status, "damaged");
}
