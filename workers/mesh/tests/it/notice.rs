//! Notices by sequence, for a reader that was away, and for one that stays while the server is killed.

use teamster_mesh::{
    Mesh,
    notice::{Reading, Told, Wanted},
};
use teamster_protocol::{
    Event, Principal,
    notice::{Notice, NoticeKind},
    subject,
};
use teamster_testkit::wait;

use crate::fixture::{LIMIT, mesh, session};

async fn publish(mesh: &Mesh, name: &str, n: u64) {
    let notice = Notice {
        session: session(name),
        n,
        i: 0,
        at_ms: n,
        event: Event::SessionDeleted {
            by: Principal::parse("owner").expect("valid"),
            turns: 1,
            queued: 0,
            approvals: Vec::new(),
            keys: Vec::new(),
            spent: Vec::new(),
        },
    };
    let subject = subject::notice(NoticeKind::SessionDeleted, &session(name));
    let body = serde_json::to_vec(&notice).expect("encodes");
    wait::until(LIMIT, "the notice is stored", || async {
        mesh.request(subject.clone(), body.clone().into(), LIMIT)
            .await
            .is_ok()
    })
    .await;
}

/// The sequences that come until everything is read.
async fn kept(reading: &mut Reading) -> Vec<u64> {
    let mut seqs = Vec::new();
    loop {
        match wait::within(LIMIT, "a notice", reading.next())
            .await
            .expect("open")
        {
            Told::Notice { seq, notice, .. } => {
                assert_eq!(notice.i, 0);
                seqs.push(seq);
            }
            Told::CaughtUp => return seqs,
            Told::Jumped { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// What comes until everything is read: sequences, and holes by their ends.
async fn with_holes(reading: &mut Reading) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut seqs, mut holes) = (Vec::new(), Vec::new());
    loop {
        match wait::within(LIMIT, "a notice", reading.next())
            .await
            .expect("open")
        {
            Told::Notice { seq, .. } => seqs.push(seq),
            Told::Hole(hole) => {
                assert!(seqs.last().is_none_or(|last| *last < hole.from), "in order");
                holes.push((hole.from, hole.to));
            }
            Told::CaughtUp => return (seqs, holes),
            other => panic!("{other:?}"),
        }
    }
}

/// SEC-55: notices whose stored bytes are damaged are told where they stand, and those that were removed or never asked for are not; what
/// can be read is read.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_notices_that_cannot_be_read_are_told_and_those_that_are_gone_are_not() {
    let (mut nats, mesh) = mesh().await;
    for n in 1..=12 {
        publish(&mesh, if n == 4 { "b" } else { "a" }, n).await;
    }
    for seq in [2, 5] {
        let body = format!(r#"{{"seq":{seq}}}"#);
        let subject = "$JS.API.STREAM.MSG.DELETE.EVENTS".to_owned();
        mesh.request(subject, body.into(), LIMIT)
            .await
            .expect("removed");
    }
    drop(mesh);
    nats.stop().await;
    for seq in [1, 4, 6, 7, 12] {
        nats.damage("EVENTS", seq);
    }
    nats.restart().await;
    let mesh = crate::fixture::join(&nats, "harness").await;
    let notices = mesh.notices();
    let window = notices.window().await.expect("a window");
    assert_eq!(window.last, 12);
    for (after, seqs, holes) in [
        (
            0,
            vec![3, 8, 9, 10, 11],
            vec![(1, 1), (4, 4), (6, 7), (12, 12)],
        ),
        (4, vec![8, 9, 10, 11], vec![(6, 7), (12, 12)]),
        (6, vec![8, 9, 10, 11], vec![(7, 7), (12, 12)]),
        (7, vec![8, 9, 10, 11], vec![(12, 12)]),
        (11, vec![], vec![(12, 12)]),
        (12, vec![], vec![]),
    ] {
        let mut reading = notices
            .follow(&Wanted::default(), after)
            .await
            .expect("follows");
        let found = with_holes(&mut reading).await;
        assert_eq!(found, (seqs, holes.clone()), "behind {after}");
        let counted = wait::within(LIMIT, "holes", notices.holes(after, 12)).await;
        let counted = counted.expect("counted").listed;
        let counted: Vec<_> = counted.iter().map(|hole| (hole.from, hole.to)).collect();
        assert_eq!(counted, holes, "behind {after}");
    }
    let holes = wait::within(LIMIT, "holes", notices.holes(0, 6)).await;
    assert_eq!(holes.expect("counted").to_string(), "1, 4, 6");
    let only = Wanted {
        session: Some(session("a")),
        kinds: Vec::new(),
    };
    let mut reading = notices.follow(&only, 0).await.expect("follows");
    assert_eq!(
        with_holes(&mut reading).await,
        (vec![3, 8, 9, 10, 11], vec![])
    );
    // What comes behind a damaged end is told as soon as it comes, and the end once.
    let mut reading = notices
        .follow(&Wanted::default(), 11)
        .await
        .expect("follows");
    assert_eq!(with_holes(&mut reading).await, (vec![], vec![(12, 12)]));
    publish(&mesh, "a", 13).await;
    let next = wait::within(LIMIT, "a notice", reading.next()).await;
    assert!(
        matches!(next, Some(Told::Notice { seq: 13, .. })),
        "{next:?}"
    );
}

/// WEB-1: whoever was away reads exactly what stands behind the place they know.
#[tokio::test(flavor = "multi_thread")]
async fn web_1_notices_are_read_behind_a_sequence() {
    let (_nats, mesh) = mesh().await;
    let notices = mesh.notices();
    let window = notices.window().await.expect("a window");
    assert_eq!((window.last, window.has_missed(0)), (0, false));
    for (name, n) in [("a", 1), ("b", 1), ("a", 2), ("a", 3)] {
        publish(&mesh, name, n).await;
    }
    let window = notices.window().await.expect("a window");
    assert_eq!((window.first, window.last), (1, 4));
    let only = |name: &str| Wanted {
        session: Some(session(name)),
        kinds: Vec::new(),
    };
    let kinds = |kind| Wanted {
        session: None,
        kinds: vec![kind],
    };
    for (wanted, after, want) in [
        (Wanted::default(), 0, vec![1, 2, 3, 4]),
        (Wanted::default(), 2, vec![3, 4]),
        (only("a"), 1, vec![3, 4]),
        (only("b"), 0, vec![2]),
        (kinds(NoticeKind::TurnStarted), 0, vec![]),
        (kinds(NoticeKind::SessionDeleted), 3, vec![4]),
    ] {
        let mut reading = notices.follow(&wanted, after).await.expect("follows");
        assert_eq!(kept(&mut reading).await, want, "{wanted:?} behind {after}");
    }
}

/// DUR-9: of a deleted session the notices before its deletion are erased, and nothing else, once the deletion itself can be read;
/// who reads on behind what is gone is told of no hole in what is there.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_notices_before_a_deletion_are_erased_and_no_others() {
    let (_nats, mesh) = mesh().await;
    for (name, n) in [("b", 1), ("a", 1), ("b", 2), ("a", 2), ("a", 3), ("a", 2)] {
        publish(&mesh, name, n).await;
    }
    let notices = mesh.notices();
    let erase = async |n| notices.erase_before(&session("a"), n).await.expect("asked");
    assert_eq!(erase(4).await, None, "its notice is not there yet");
    publish(&mesh, "a", 3).await;
    assert_eq!(erase(3).await, Some(3), "also one that came twice and late");
    assert_eq!(erase(3).await, Some(0));
    let mut reading = notices
        .follow(&Wanted::default(), 2)
        .await
        .expect("follows");
    assert_eq!(kept(&mut reading).await, [3, 5, 7]);
    let window = notices.window().await.expect("a window");
    assert!(!window.has_missed(1), "{window:?}");
}

/// A reader whose last notices are erased before they come to it is at the end all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_at_the_end_where_what_was_to_come_is_erased() {
    let (_nats, mesh) = mesh().await;
    // More than come at once, so that the reader has not had them all when it is looked at first.
    for n in 1..=1500 {
        publish(&mesh, "a", n).await;
    }
    publish(&mesh, "b", 1500).await;
    let notices = mesh.notices();
    let mut reading = notices
        .follow(
            &Wanted {
                session: Some(session("a")),
                kinds: Vec::new(),
            },
            0,
        )
        .await
        .expect("follows");
    let window = notices.window().await.expect("a window");
    for seq in window.first..=window.last {
        let body = format!(r#"{{"seq":{seq},"no_erase":true}}"#);
        let subject = "$JS.API.STREAM.MSG.DELETE.EVENTS".to_owned();
        mesh.request(subject, body.into(), LIMIT)
            .await
            .expect("removed");
    }
    assert!(kept(&mut reading).await.len() < 1500);
}

/// BUS-2: a reader that stays sees each notice once, in order, also across a kill of the server.
#[tokio::test(flavor = "multi_thread")]
async fn bus_2_a_reader_of_notices_goes_on_after_a_restart() {
    let (mut nats, mesh) = mesh().await;
    publish(&mesh, "a", 1).await;
    let mut reading = mesh
        .notices()
        .follow(&Wanted::default(), 0)
        .await
        .expect("follows");
    assert_eq!(kept(&mut reading).await, [1]);
    publish(&mesh, "a", 2).await;
    nats.kill().await;
    nats.restart().await;
    publish(&mesh, "a", 3).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let told = wait::within(LIMIT, "a notice", reading.next())
            .await
            .expect("open");
        if let Told::Notice { notice, .. } = told {
            seen.push(notice.n);
        }
    }
    assert_eq!(seen, [2, 3]);
}
