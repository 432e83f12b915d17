//! Logs that do not fold: their sessions stay listed, and others do not notice.

use teamster_mesh::head::Head;
use teamster_protocol::{
    Digest, Event, Phase, SessionId,
    function::session::{
        EventsReply, EventsRequest, GetRequest, ListReply, ListRequest, MessagesReply,
        MessagesRequest, SessionInfo,
    },
    subject,
};
use teamster_testkit::wait;

use crate::{
    ask::turn,
    rig::{LIMIT, Rig, Writer, created, owner, said, session},
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
        turns: 0,
        spent: Vec::new(),
        unknown: 0,
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

fn stream(session: &SessionId) -> String {
    let k = subject::log_stream_of(subject::partition(&session.token()));
    format!("LOG_{k}")
}

async fn is(rig: &Rig, name: &str, status: &str) {
    wait::until(LIMIT, &format!("{name} is {status}"), || async {
        let request = GetRequest {
            session_id: session(name),
        };
        let found: Result<SessionInfo, _> = rig.ask("session::get", &request).await;
        found.is_ok_and(|found| found.status == status)
    })
    .await;
}

/// DUR-7: a session whose last commit cannot be read any more is damaged although nothing comes behind it, whether it was taken in
/// before, and so is one of which nothing can be read; others are not held up; with the acceptance that is over.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_an_end_that_cannot_be_read_makes_a_session_damaged_until_it_is_given_up() {
    let mut rig = Rig::start().await;
    let (mut rotten, mut empty) = (
        Writer::new(&rig.mesh, "rotten"),
        Writer::new(&rig.mesh, "empty"),
    );
    let mut sound = Writer::new(&rig.mesh, "sound");
    sound.commit(Phase::Idle, vec![created("sound")]).await;
    rotten.commit(Phase::Idle, vec![created("rotten")]).await;
    turn(&mut rotten, 1, "what is kept", "and its answer").await;
    let kept = (rotten.n, rotten.prev);
    rotten.commit(Phase::Idle, vec![said("what is lost")]).await;
    empty.commit(Phase::Idle, vec![created("empty")]).await;
    is(&rig, "empty", "idle").await;
    rig.nats.stop().await;
    for writer in [&rotten, &empty] {
        rig.nats.damage(&stream(&writer.session), writer.seq);
    }
    rig.nats.restart().await;
    // The worker that runs notices, and so does one that knows nothing.
    for _ in 0..2 {
        is(&rig, "rotten", "damaged").await;
        is(&rig, "empty", "damaged").await;
        is(&rig, "sound", "idle").await;
        rig.serve(None).await;
    }
    let survey = rig.mesh.log().survey(&rotten.session).await;
    let survey = survey.expect("a survey");
    assert!(survey.is_end_unreadable && survey.unreadable == 1);
    let accepted = Event::LossAccepted {
        by: owner(),
        lost_from: kept.0 + 1,
        kept: kept.1,
        message: "damaged bytes".to_owned(),
        turns: 0,
        spent: Vec::new(),
        unknown: 0,
    };
    (rotten.n, rotten.prev) = (kept.0 + 1000, kept.1);
    let body = rotten.body(Phase::Idle, vec![accepted, said("after")]);
    let log = rig.mesh.log();
    let stored = log.commit_behind(&rotten.session, body.into(), &survey);
    stored.await.expect("stored");
    is(&rig, "rotten", "idle").await;
    let found = info(&rig, "rotten").await;
    assert_eq!((found.commits, found.turns), (4, 1));
}

/// DUR-7: a log that ends before the head that is kept of it is listed as damaged by a worker that never knew more, with the date of
/// what is left; one that is gone is listed as well.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_log_behind_its_head_is_listed_as_damaged() {
    let mut rig = Rig::without_worker().await;
    let mut short = Writer::new(&rig.mesh, "short");
    short.commit(Phase::Idle, vec![created("short")]).await;
    let session_worker = teamster_testkit::connect(&rig.nats, "session").await;
    for name in ["short", "gone"] {
        let head = Head {
            n: 7,
            seq: 70,
            hash: Digest::of("lost"),
            at_ms: 7000,
        };
        let raised = session_worker.heads().raise(&session(name), &head).await;
        assert!(raised.expect("heads"));
    }
    rig.start_worker().await;
    is(&rig, "short", "damaged").await;
    is(&rig, "gone", "damaged").await;
    assert_eq!(info(&rig, "short").await.updated_at_ms, 1000);
    let accepted = Event::LossAccepted {
        by: owner(),
        lost_from: 2,
        kept: short.prev,
        message: "shorter".to_owned(),
        turns: 0,
        spent: Vec::new(),
        unknown: 0,
    };
    short.n = 1000;
    short.at_ms = Some(9_000_000);
    short.commit(Phase::Idle, vec![accepted]).await;
    is(&rig, "short", "idle").await;
    rig.start_worker().await;
    is(&rig, "gone", "damaged").await;
    is(&rig, "short", "idle").await;
}

/// DUR-7: the projection is a witness: a log that is shorter than what was projected of it is damaged, though no other copy of its
/// head is left.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_log_shorter_than_its_projection_is_damaged() {
    let mut rig = Rig::without_worker().await;
    rig.start_worker().await;
    let mut short = Writer::new(&rig.mesh, "short");
    short.commit(Phase::Idle, vec![created("short")]).await;
    turn(&mut short, 1, "what is kept", "and its answer").await;
    is(&rig, "short", "idle").await;
    assert_eq!(info(&rig, "short").await.commits, short.n);
    // It leaves the second copy of the head behind.
    rig.stop_worker().await;
    rig.nats.stop().await;
    teamster_testkit::blocks::cut(&rig.nats.store(), &stream(&short.session), short.seq);
    rig.nats.damage("KV_heads", 1);
    rig.nats.restart().await;
    rig.start_worker().await;
    is(&rig, "short", "damaged").await;
}
