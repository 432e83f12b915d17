//! The log: the fence, what a lost answer means, reading, following.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use teamster_mesh::log::{CommitError, Follow, From, Stored};
use teamster_protocol::{SessionId, limits};
use teamster_testkit::{Nats, proxy::Proxy, wait, wait::within};

use crate::fixture::{LIMIT, behind, join, mesh, session};

fn body(n: u64) -> Bytes {
    Bytes::from(format!("{{\"n\":{n}}}"))
}

async fn next(follow: &mut Follow) -> (SessionId, Stored) {
    loop {
        match within(LIMIT, "a commit", follow.next()).await {
            Some(Ok(found)) => return found,
            Some(Err(_)) => {} // the broker is away
            None => panic!("the reader ended"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_written_and_read() {
    let (_nats, mesh) = mesh().await;
    let (log, a, b) = (mesh.log(), session("a"), session("b c/é"));
    assert_eq!(log.tail(&a).await.expect("read"), None);
    let mut stored = Vec::new();
    let mut last = 0;
    for n in 1..=1200 {
        last = log.commit(&a, body(n), last).await.expect("stored");
        stored.push(Stored {
            seq: last,
            body: body(n),
        });
        if n % 3 == 0 {
            let tail = log.tail(&b).await.expect("read").map_or(0, |tail| tail.seq);
            log.commit(&b, body(n), tail).await.expect("stored");
        }
    }
    assert_eq!(log.tail(&a).await.expect("read").as_ref(), stored.last());
    assert_eq!(log.read(&a, 0, last).await.expect("read"), stored);
    let (after, upto) = (stored[9].seq, stored[19].seq);
    assert_eq!(
        log.read(&a, after, upto).await.expect("read"),
        stored[10..20]
    );
    assert_eq!(log.read(&a, last, last).await.expect("read"), []);
    // What is not there is an error, not a short answer.
    assert!(log.read(&a, 0, last + 5).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_committers_one_wins_and_the_other_is_fenced() {
    let (nats, mesh) = mesh().await;
    let other = join(&nats, "harness").await;
    let session = session("s");
    let mut tail = 0;
    for n in 0..50 {
        let (log, other_log) = (mesh.log(), other.log());
        let (one, two) = tokio::join!(
            log.commit(&session, Bytes::from(format!("one {n}")), tail),
            other_log.commit(&session, Bytes::from(format!("two {n}")), tail),
        );
        let (won, lost) = match (one, two) {
            (Ok(seq), Err(error)) | (Err(error), Ok(seq)) => (seq, error),
            other => panic!("exactly one must win: {other:?}"),
        };
        let CommitError::Fenced { tail: seen } = lost else {
            panic!("the loser is fenced: {lost:?}");
        };
        assert_eq!(seen, won);
        tail = won;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_commit_is_recognised_and_a_stale_one_is_fenced() {
    let (_nats, mesh) = mesh().await;
    let (log, session) = (mesh.log(), session("s"));
    let first = log.commit(&session, body(1), 0).await.expect("stored");
    let second = log.commit(&session, body(2), first).await.expect("stored");
    // The answer to the first attempt was lost, and the caller tries again.
    assert_eq!(
        log.commit(&session, body(2), first).await.expect("known"),
        second
    );
    let third = log.commit(&session, body(3), second).await.expect("stored");
    assert_eq!(
        log.commit(&session, body(2), first).await.expect("known"),
        second
    );
    let stale = log.commit(&session, Bytes::from("zombie"), first).await;
    assert!(matches!(stale, Err(CommitError::Fenced { tail }) if tail == third));
    let all = log.read(&session, 0, third).await.expect("read");
    assert_eq!(all.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_went_back_is_an_alarm() {
    let (_nats, mesh) = mesh().await;
    let (log, session) = (mesh.log(), session("s"));
    let first = log.commit(&session, body(1), 0).await.expect("stored");
    let ahead = log.commit(&session, body(9), first + 7).await;
    assert!(matches!(ahead, Err(CommitError::WentBack { tail }) if tail == first));
    let never = log
        .commit(&crate::fixture::session("new"), body(9), 4)
        .await;
    assert!(matches!(never, Err(CommitError::WentBack { tail: 0 })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_too_large_is_refused() {
    let (_nats, mesh) = mesh().await;
    let large = Bytes::from(vec![b'x'; limits::COMMIT_BYTES_MAX + 1]);
    assert!(mesh.log().commit(&session("s"), large, 0).await.is_err());
    let fitting = Bytes::from(vec![b'x'; limits::COMMIT_BYTES_MAX]);
    mesh.log()
        .commit(&session("s"), fitting, 0)
        .await
        .expect("stored");
}

/// A broker that is killed in the middle of a run of commits: each is stored exactly once, in order.
#[tokio::test(flavor = "multi_thread")]
async fn commits_across_a_restart_of_the_broker_are_stored_once() {
    let (mut nats, mesh) = mesh().await;
    let session = session("s");
    let (told, mut progress) = tokio::sync::watch::channel(0_u64);
    let writer = tokio::spawn({
        let (log, session) = (mesh.log(), session.clone());
        async move {
            let mut last = 0;
            for n in 1..=1500 {
                last = log.commit(&session, body(n), last).await.expect("stored");
                told.send_replace(n);
            }
            last
        }
    });
    for step in [300, 800] {
        within(LIMIT, "commits", progress.wait_for(|n| *n >= step))
            .await
            .expect("the writer runs");
        nats.restart().await;
    }
    let last = within(LIMIT, "all commits", writer).await.expect("written");
    let all = mesh.log().read(&session, 0, last).await.expect("read");
    let bodies: Vec<Bytes> = all.into_iter().map(|stored| stored.body).collect();
    assert_eq!(bodies, (1..=1500).map(body).collect::<Vec<_>>());
}

/// What became of a commit whose fate the committer does not know, and who else writes meanwhile.
async fn in_doubt(
    gate: impl Fn(&Proxy) -> teamster_testkit::proxy::Hold,
    meanwhile: Option<&'static str>,
) -> (Result<u64, CommitError>, Vec<Bytes>) {
    let (nats, direct): (Nats, _) = mesh().await;
    let (proxy, mesh) = behind(&nats, "harness").await;
    let session = session("s");
    let first = mesh
        .log()
        .commit(&session, body(1), 0)
        .await
        .expect("stored");
    let hold = gate(&proxy);
    let commit = tokio::spawn({
        let (log, session) = (mesh.log(), session.clone());
        async move { log.commit(&session, body(2), first).await }
    });
    hold.reached(LIMIT).await;
    if let Some(other) = meanwhile {
        let stored = direct
            .log()
            .commit(&session, Bytes::from(other), first)
            .await;
        stored.expect("stored");
    }
    hold.cut();
    let result = within(LIMIT, "the commit", commit).await.expect("ran");
    let tail = direct
        .log()
        .tail(&session)
        .await
        .expect("read")
        .expect("a tail");
    let all = direct
        .log()
        .read(&session, 0, tail.seq)
        .await
        .expect("read");
    (result, all.into_iter().map(|stored| stored.body).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_recognised() {
    let (result, all) = in_doubt(|proxy| proxy.hold_answer("log.", 1), None).await;
    assert_eq!(result.expect("stored"), 2);
    assert_eq!(all, [body(1), body(2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_lost_on_its_way_is_made_again() {
    let (result, all) = in_doubt(|proxy| proxy.hold_publish("log.", 1), None).await;
    assert_eq!(result.expect("stored"), 2);
    assert_eq!(all, [body(1), body(2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_lost_on_its_way_while_another_owner_writes_is_fenced() {
    let (result, all) = in_doubt(|proxy| proxy.hold_publish("log.", 1), Some("other")).await;
    assert!(
        matches!(result, Err(CommitError::Fenced { tail: 2 })),
        "{result:?}"
    );
    assert_eq!(all, [body(1), Bytes::from("other")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_cannot_be_confirmed_is_unknown_in_bounded_time() {
    let (nats, _direct) = mesh().await;
    let (proxy, mesh) = behind(&nats, "harness").await;
    let session = session("s");
    let first = mesh
        .log()
        .commit(&session, body(1), 0)
        .await
        .expect("stored");
    proxy.refuse();
    let commit = mesh.log().commit(&session, body(2), first).await;
    assert!(matches!(commit, Err(CommitError::Unknown(_))), "{commit:?}");
    proxy.accept();
    // The same commit may be tried again whatever became of it.
    let again = mesh.log().commit(&session, body(2), first).await;
    assert_eq!(again.expect("stored"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_for_a_broker_that_is_paused() {
    let (nats, mesh) = mesh().await;
    let (log, session) = (mesh.log(), session("s"));
    let first = log.commit(&session, body(1), 0).await.expect("stored");
    nats.pause();
    let commit = tokio::spawn({
        let (log, session) = (log.clone(), session.clone());
        async move { log.commit(&session, body(2), first).await }
    });
    wait::until(LIMIT, "the commit waits", || {
        std::future::ready(!commit.is_finished())
    })
    .await;
    nats.resume();
    let second = within(LIMIT, "the commit", commit).await.expect("ran");
    let tail = log.tail(&session).await.expect("read").expect("a tail");
    assert_eq!((tail.seq, tail.body), (second.expect("stored"), body(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_all_sessions_in_order_and_go_on_after_a_restart() {
    let (mut nats, mesh) = mesh().await;
    let log = mesh.log();
    let sessions: Vec<SessionId> = (0..24).map(|n| session(&format!("s{n}"))).collect();
    let mut tails = BTreeMap::new();
    for n in 1..=5 {
        for session in &sessions {
            let tail = tails.get(session).copied().unwrap_or(0);
            let seq = log.commit(session, body(n), tail).await.expect("stored");
            tails.insert(session.clone(), seq);
        }
    }
    let collect = async |from| {
        let mut follow = log.follow(from, false).await.expect("a reader");
        let mut seen: BTreeMap<SessionId, Vec<Bytes>> = BTreeMap::new();
        while let Some(found) = within(LIMIT, "a commit", follow.next()).await {
            let (session, stored) = found.expect("readable");
            seen.entry(session).or_default().push(stored.body);
        }
        seen
    };
    let all = collect(From::Start).await;
    assert_eq!(all.len(), sessions.len());
    let want: Vec<Bytes> = (1..=5).map(body).collect();
    assert!(all.values().all(|bodies| *bodies == want));
    let last = collect(From::LastOfEach).await;
    assert_eq!(last.len(), sessions.len());
    assert!(last.values().all(|bodies| *bodies == [body(5)]));

    let mut one = log
        .follow_session(&sessions[3], tails[&sessions[3]])
        .await
        .expect("a reader");
    let mut live = log.follow(From::Start, true).await.expect("a reader");
    for _ in 0..5 * sessions.len() {
        next(&mut live).await;
    }
    nats.restart().await;
    let seq = log
        .commit(&sessions[3], body(6), tails[&sessions[3]])
        .await
        .expect("stored");
    let want = (sessions[3].clone(), Stored { seq, body: body(6) });
    assert_eq!(next(&mut live).await, want);
    assert_eq!(next(&mut one).await, want);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), live.next())
            .await
            .is_err(),
        "nothing is seen twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_ends_ends_on_an_empty_log_too() {
    let (_nats, mesh) = mesh().await;
    let mut follow = mesh
        .log()
        .follow(From::Start, false)
        .await
        .expect("a reader");
    assert!(within(LIMIT, "the end", follow.next()).await.is_none());
}
