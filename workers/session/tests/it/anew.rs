//! A session that is created anew under the name of a deleted one.

use teamster_core::turn::{Fold, State};
use teamster_protocol::{
    Fault, Message, Phase,
    function::session::{
        ChangeReply, CostBy, CostReply, CostRequest, EventsReply, EventsRequest, ForkRequest,
        GetRequest, ListReply, ListRequest, MessagesReply, MessagesRequest, SearchReply,
        SearchRequest, SessionInfo,
    },
    input::SessionOptions,
};

use crate::rig::{
    Rig, Writer, answered, began, created, deleted_with, ended, finished, proposed, said, session,
};

/// A session that is deleted while a call is open, and the next one of its name. Returns the commit of the tombstone and its
/// sequence.
async fn two_lives(rig: &Rig) -> (u64, u64) {
    let mut writer = Writer::new(&rig.mesh, "s");
    let events = vec![created("old"), said("yesterday"), began(1)];
    writer.commit(Phase::Active, events).await;
    let answer = answered(2, "long ago", "p/a", 10, Some(1000));
    writer.commit(Phase::Idle, vec![answer, ended(1)]).await;
    writer
        .commit(Phase::Active, vec![said("once more"), began(2)])
        .await;
    writer.commit(Phase::Active, proposed(4, 1)).await;
    let log = rig.mesh.log();
    let mut fold = Fold::new(State::new(writer.session.clone()));
    for stored in log
        .read(&writer.session, 0, writer.seq)
        .await
        .expect("read")
    {
        fold.take(&stored.body, stored.seq);
    }
    let spent = fold.finish().expect("sound").spent.rows().to_vec();
    let events = vec![finished(1, "cancelled"), ended(2), deleted_with(2, spent)];
    writer.commit(Phase::Deleted, events).await;
    let tombstone = (writer.n, writer.seq);
    writer.commit(Phase::Deleted, Vec::new()).await;
    let events = vec![created("new"), said("today"), began(1)];
    writer.commit(Phase::Active, events).await;
    let answer = answered(7, "just now", "p/a", 3, Some(5));
    writer.commit(Phase::Idle, vec![answer, ended(1)]).await;
    tombstone
}

/// DUR-9, OBS-2: whoever reads a session that was created anew finds nothing of the deleted one, whether that is erased or not yet,
/// in the file that saw both and in one that is built anew; what the deleted one spent stays in the sums, apart from it.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_a_session_created_anew_begins_at_nothing_in_every_reading() {
    let mut rig = Rig::start().await;
    let (n, seq) = two_lives(&rig).await;
    reads_the_new_one(&rig, n).await;
    adds_up_apart(&rig).await;
    rig.stop_worker().await;
    std::fs::remove_file(rig.file()).expect("the file was there");
    rig.start_worker().await;
    reads_the_new_one(&rig, n).await;
    let log = rig.mesh.log();
    let erased = log.erase_before(&session("s"), seq).await;
    assert_eq!(erased.expect("erased"), 4);
    rig.stop_worker().await;
    std::fs::remove_file(rig.file()).expect("the file was there");
    rig.start_worker().await;
    reads_the_new_one(&rig, n).await;
    adds_up_apart(&rig).await;
}

async fn reads_the_new_one(rig: &Rig, tombstone: u64) {
    let id = session("s");
    let request = GetRequest {
        session_id: id.clone(),
    };
    let info: SessionInfo = rig.ask("session::get", &request).await.expect("is there");
    assert_eq!(
        (info.title.as_deref(), info.turns, info.messages),
        (Some("new"), 1, 2)
    );
    // With the one that came late and was dropped.
    assert_eq!(info.commits, 3);
    assert_eq!((info.usage.output, info.cost.0), (3, 5));
    assert_eq!(info.created_at_ms, (tombstone + 2) * 1000);
    let listed: ListReply = rig
        .ask("session::list", &ListRequest::default())
        .await
        .expect("a list");
    assert_eq!(listed.sessions, [info]);

    let request = MessagesRequest {
        session_id: id.clone(),
        skip: 0,
        limit: None,
    };
    let messages: MessagesReply = rig
        .ask("session::messages", &request)
        .await
        .expect("messages");
    assert!(
        matches!(&messages.messages[..], [one, _] if matches!(&one.message, Message::User { text, .. } if text == "today")),
        "{messages:?}"
    );
    for (word, hits) in [("yesterday", 0), ("cancelled", 0), ("today", 1)] {
        let request = SearchRequest {
            query: word.to_owned(),
            session_id: None,
            limit: None,
        };
        let found: SearchReply = rig.ask("session::search", &request).await.expect("found");
        assert_eq!(found.hits.len(), hits, "{word}");
    }
    let request = EventsRequest {
        session_id: id.clone(),
        after: 0,
        limit: None,
    };
    let events: EventsReply = rig.ask("session::events", &request).await.expect("events");
    assert_eq!(events.commits, 3);
    assert_eq!(
        events.events.first().map(|event| event.n),
        Some(tombstone + 2)
    );
    for at in [2, tombstone, tombstone + 1] {
        let request = ForkRequest {
            session_id: id.clone(),
            at: Some(at),
            new_session_id: Some(session("branch")),
            session: SessionOptions::default(),
        };
        let fork: Result<ChangeReply, Fault> = rig.ask("session::fork", &request).await;
        let fault = fork.expect_err("of the deleted one nothing is taken");
        assert_eq!(fault.code, "session.no_commit");
        let nearest = format!("the nearest is {}", tombstone + 2);
        assert!(fault.message.ends_with(&nearest), "{}", fault.message);
    }
}

async fn adds_up_apart(rig: &Rig) {
    let cost = async |by: &[CostBy], only: bool| {
        let request = CostRequest {
            by: by.to_vec(),
            session_id: only.then(|| session("s")),
            ..CostRequest::default()
        };
        let reply: CostReply = rig.ask("session::cost", &request).await.expect("a sum");
        reply
    };
    let own = cost(&[CostBy::Session], true).await;
    let rows: Vec<_> = own.rows.iter().map(|row| row.deleted).collect();
    assert_eq!((rows, own.total.cost.0), (vec![false], 5));
    let both = cost(&[CostBy::Session], false).await;
    let rows: Vec<_> = both
        .rows
        .iter()
        .map(|row| (row.deleted, row.sum.cost.0))
        .collect();
    assert_eq!(rows, [(false, 5), (true, 1001)]);
    for by in [CostBy::Day, CostBy::Model] {
        let all = cost(&[by], false).await;
        let rows: u64 = all.rows.iter().map(|row| row.sum.cost.0).sum();
        assert_eq!((rows, all.total.cost.0), (1006, 1006));
    }
}
