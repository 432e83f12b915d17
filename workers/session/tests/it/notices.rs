//! Notices: each at least once, in the order of its session's log, however many workers make them and whatever dies.

use std::collections::{BTreeMap, BTreeSet};

use teamster_mesh::notice::{Reading, Told, Wanted};
use teamster_protocol::{
    Phase, SessionId,
    notice::{Notice, NoticeKind},
};
use teamster_testkit::wait;

use crate::{
    ask::turn,
    rig::{LIMIT, Rig, Writer, created, said, session},
};

/// What a consumer knows that drops repetitions by id.
#[derive(Default)]
struct Known {
    ids: BTreeSet<String>,
    /// What it saw of each session, each once, in the order in which it came.
    seen: BTreeMap<SessionId, Vec<(u64, u32)>>,
    last: u64,
    resyncs: u32,
}

impl Known {
    fn take(&mut self, told: Told) {
        match told {
            Told::Notice { seq, kind, notice } => {
                assert!(seq > self.last, "sequences grow");
                assert_eq!(NoticeKind::of(&notice.event), Some(kind));
                self.last = seq;
                let Notice { session, n, i, .. } = *notice.clone();
                if self.ids.insert(notice.id().to_string()) {
                    self.seen.entry(session).or_default().push((n, i));
                }
            }
            Told::Jumped { begun, .. } => {
                self.resyncs += 1;
                self.last = begun - 1;
            }
            Told::CaughtUp | Told::Interrupted(_) => {}
            Told::Hole(hole) => panic!("{hole} cannot be read"),
            Told::Unreadable { message, .. } => panic!("{message}"),
        }
    }

    fn count(&self) -> usize {
        self.seen.values().map(Vec::len).sum()
    }

    fn check_order(&self) {
        for (session, seen) in &self.seen {
            let mut sorted = seen.clone();
            sorted.sort_unstable();
            assert_eq!(*seen, sorted, "{session}");
        }
    }
}

async fn follow(rig: &Rig, after: u64) -> Reading {
    rig.mesh
        .notices()
        .follow(&Wanted::default(), after)
        .await
        .expect("notices")
}

/// Reads until `count` different notices are known.
async fn read(reading: &mut Reading, known: &mut Known, count: usize) {
    while known.count() < count {
        let next = wait::within(LIMIT, "a notice comes", reading.next()).await;
        known.take(next.expect("open"));
    }
}

/// A session of 1 + 4 notices a turn.
async fn session_of(rig: &Rig, name: &str, turns: u64) -> Writer {
    let mut writer = Writer::new(&rig.mesh, name);
    writer.commit(Phase::Idle, vec![created(name)]).await;
    for number in 1..=turns {
        turn(&mut writer, number, "ask", "answer").await;
    }
    writer
}

/// WEB-1: a consumer that is cut off again and again and goes on by sequence knows each notice, in order, with no hole.
#[tokio::test(flavor = "multi_thread")]
async fn web_1_a_consumer_that_comes_back_sees_every_notice_in_order() {
    let rig = Rig::start().await;
    for name in ["one", "two"] {
        session_of(&rig, name, 5).await;
    }
    let total = 2 * (1 + 4 * 5);
    let mut known = Known::default();
    for part in 1..=6 {
        let mut reading = follow(&rig, known.last).await;
        read(&mut reading, &mut known, total * part / 6).await;
    }
    known.check_order();
    assert_eq!((known.count(), known.resyncs), (total, 0));
    let window = rig.mesh.notices().window().await.expect("a window");
    assert_eq!(known.last, window.last, "nothing came twice");
}

/// WEB-1: whoever was away for longer than notices are kept is told so, once, and not left with a hole.
#[tokio::test(flavor = "multi_thread")]
async fn web_1_a_place_that_is_gone_is_told_once() {
    let rig = Rig::start().await;
    session_of(&rig, "one", 2).await;
    let mut known = Known::default();
    read(&mut follow(&rig, 0).await, &mut known, 9).await;
    // A place that this stream never reached: it was lost and made anew.
    let mut reading = follow(&rig, 1000).await;
    let mut other = Known::default();
    let first = wait::within(LIMIT, "a word about the place", reading.next()).await;
    assert!(
        matches!(first, Some(Told::Jumped { begun, .. }) if begun == known.last + 1),
        "{first:?}"
    );
    let mut writer = Writer::new(&rig.mesh, "two");
    writer.commit(Phase::Idle, vec![created("two")]).await;
    read(&mut reading, &mut other, 1).await;
    assert_eq!(other.seen.keys().collect::<Vec<_>>(), [&session("two")]);
}

/// WEB-1: only what is wanted comes, and the rest leaves no hole behind.
#[tokio::test(flavor = "multi_thread")]
async fn web_1_a_consumer_gets_the_kinds_and_the_session_that_it_wants() {
    let rig = Rig::start().await;
    session_of(&rig, "one", 3).await;
    session_of(&rig, "two", 3).await;
    let wanted = Wanted {
        session: Some(session("two")),
        kinds: vec![NoticeKind::TurnCompleted, NoticeKind::SessionCreated],
    };
    let mut reading = rig
        .mesh
        .notices()
        .follow(&wanted, 0)
        .await
        .expect("notices");
    let mut known = Known::default();
    read(&mut reading, &mut known, 4).await;
    assert_eq!(
        known.seen[&session("two")],
        [(1, 0), (3, 1), (5, 1), (7, 1)]
    );
    assert_eq!(known.seen.len(), 1);
}

/// Two workers share the feeds, one of them ends in the middle, the broker is killed: nothing is missing, nothing out of order.
#[tokio::test(flavor = "multi_thread")]
async fn notices_of_two_workers_and_a_killed_broker_are_whole_and_in_order() {
    let mut rig = Rig::start().await;
    let other = rig.second_worker().await;
    let mut writers = Vec::new();
    for name in ["a", "b", "c", "d"] {
        writers.push(session_of(&rig, name, 3).await);
    }
    other.drain().await;
    for writer in &mut writers {
        writer.commit(Phase::Idle, vec![said("one more")]).await;
    }
    rig.nats.kill().await;
    rig.nats.restart().await;
    for writer in &mut writers {
        writer.commit(Phase::Idle, vec![said("and another")]).await;
    }
    let total = 4 * (1 + 4 * 3 + 2);
    let mut known = Known::default();
    let mut reading = follow(&rig, 0).await;
    read(&mut reading, &mut known, total).await;
    known.check_order();
    assert_eq!(known.count(), total);
}

/// WEB-1: EVENTS is deleted while everything runs: it is made anew, what was committed since stands in it, and a consumer that
/// was reading is told that there is a hole.
#[tokio::test(flavor = "multi_thread")]
async fn web_1_a_deleted_stream_of_notices_is_made_anew_and_consumers_are_told() {
    let rig = Rig::start().await;
    session_of(&rig, "one", 2).await;
    let mut known = Known::default();
    let mut reading = follow(&rig, 0).await;
    read(&mut reading, &mut known, 9).await;
    let deleted = rig
        .mesh
        .request(
            "$JS.API.STREAM.DELETE.EVENTS".to_owned(),
            Vec::new().into(),
            LIMIT,
        )
        .await
        .expect("an answer");
    assert!(
        String::from_utf8_lossy(&deleted).contains("\"success\":true"),
        "{deleted:?}"
    );
    session_of(&rig, "two", 1).await;
    wait::until(LIMIT, "EVENTS is made anew", || async {
        rig.mesh.notices().window().await.is_ok()
    })
    .await;
    let mut since = Known::default();
    read(&mut follow(&rig, 0).await, &mut since, 5).await;
    since.check_order();
    assert_eq!(since.seen.keys().collect::<Vec<_>>(), [&session("two")]);
    while known.resyncs == 0 {
        let next = wait::within(LIMIT, "a word about the hole", reading.next()).await;
        known.take(next.expect("open"));
    }
    let mut writer = Writer::new(&rig.mesh, "three");
    writer.commit(Phase::Idle, vec![created("three")]).await;
    while !known.seen.contains_key(&session("three")) {
        let next = wait::within(LIMIT, "the next notice", reading.next()).await;
        known.take(next.expect("open"));
    }
}
