//! What the server makes of stored bytes that are damaged, and what the mesh makes of that.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use teamster_mesh::{
    Error, Mesh,
    head::Head,
    log::{CommitError, From, Survey},
    snap::{Mark, Snapshot},
    topology::{Topology, ensure},
};
use teamster_protocol::{Digest, SessionId, subject};
use teamster_testkit::{Nats, wait};

use crate::fixture::{LIMIT, join, mesh, session};

/// The log stream of a session.
fn stream(session: &SessionId) -> String {
    let k = subject::log_stream_of(subject::partition(&session.token()));
    format!("LOG_{k}")
}

/// Another session of the same log stream.
fn beside(session: &SessionId) -> SessionId {
    (0..1000)
        .map(|n| crate::fixture::session(&format!("beside-{n}")))
        .find(|other| stream(other) == stream(session))
        .expect("there is one")
}

/// Stores commits of a session, each behind one of another session in the same stream; returns their sequences.
async fn store(mesh: &Mesh, id: &SessionId, other: &SessionId, count: u64) -> Vec<u64> {
    let (log, mut seqs, mut between) = (mesh.log(), vec![0], 0);
    for n in 1..=count {
        let body = Bytes::from(format!("other {n}"));
        between = log.commit(other, body, between).await.expect("stored");
        let body = Bytes::from(format!("commit {n}"));
        let last = *seqs.last().expect("one");
        seqs.push(log.commit(id, body, last).await.expect("stored"));
    }
    seqs.remove(0);
    seqs
}

/// Damages messages of a session's log while the server is stopped.
async fn rot(nats: &mut Nats, id: &SessionId, seqs: &[u64]) -> Mesh {
    nats.stop().await;
    for seq in seqs {
        nats.damage(&stream(id), *seq);
    }
    nats.restart().await;
    join(nats, "harness").await
}

async fn survey(mesh: &Mesh, id: &SessionId) -> Survey {
    mesh.log().survey(id).await.expect("a survey")
}

fn bodies(survey: &Survey) -> Vec<String> {
    let text = |body: &Bytes| String::from_utf8(body.to_vec()).expect("text");
    survey.commits.iter().map(|one| text(&one.body)).collect()
}

/// SEC-55: an end of a log that the server cannot read is no shorter log and no absent one; what can be read before it is read,
/// nothing is stored behind it by who does not know of it, and one commit can be by who does.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_an_end_that_cannot_be_read_is_not_taken_for_none() {
    let (mut nats, first) = mesh().await;
    let id = session("s");
    let other = beside(&id);
    let seqs = store(&first, &id, &other, 4).await;
    drop(first);
    let mesh = rot(&mut nats, &id, &seqs[3..]).await;
    let log = mesh.log();
    let error = log.tail(&id).await.expect_err("it cannot be read");
    let Error::Unreadable {
        stored,
        unreadable,
        last,
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!((*stored, *unreadable, *last), (4, 1, seqs[2]));
    let fault = teamster_protocol::Fault::from(error);
    assert_eq!(fault.code, "session.log_damaged");
    assert!(
        fault
            .hint
            .is_some_and(|hint| hint.contains("accept-loss") && hint.ends_with(" s`"))
    );
    assert!(log.tail(&other).await.expect("a tail").is_some());
    assert_eq!(log.tail(&session("new")).await.expect("none"), None);

    let found = survey(&mesh, &id).await;
    assert_eq!(bodies(&found), ["commit 1", "commit 2", "commit 3"]);
    assert!(found.is_end_unreadable && found.unreadable == 1 && found.last == seqs[2]);
    for expected in [seqs[3], seqs[2]] {
        let refused = log.commit(&id, Bytes::from("late"), expected).await;
        assert!(
            matches!(refused, Err(CommitError::Unreadable)),
            "{refused:?}"
        );
    }
    assert_eq!(log.at(&id, seqs[3]).await.expect("an answer"), None);

    let body = Bytes::from("behind");
    let seq = log.commit_behind(&id, body.clone(), &found).await;
    let seq = seq.expect("stored");
    let tail = log.tail(&id).await.expect("a tail").expect("a commit");
    assert_eq!((tail.seq, &tail.body), (seq, &body));
    // What the survey saw has moved.
    let again = log.commit_behind(&id, "again".into(), &found).await;
    assert!(
        matches!(again, Err(CommitError::Fenced { .. })),
        "{again:?}"
    );
    let now = survey(&mesh, &id).await;
    assert_eq!((now.unreadable, now.is_end_unreadable), (1, false));
}

/// SEC-55: commits that cannot be read are counted wherever they lie, and everything else of the log is read.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_what_cannot_be_read_is_counted_wherever_it_lies() {
    let (mut nats, mesh) = mesh().await;
    let all = [session("a"), session("b"), session("c")];
    let mut places = Vec::new();
    for id in &all {
        places.push(store(&mesh, id, &beside(id), 4).await);
    }
    drop(mesh);
    nats.stop().await;
    for (id, seqs, bad) in [
        (&all[0], &places[0], vec![0]),
        (&all[1], &places[1], vec![1, 2]),
        (&all[2], &places[2], vec![0, 1, 2, 3]),
    ] {
        for index in bad {
            nats.damage(&stream(id), seqs[index]);
        }
    }
    nats.restart().await;
    let mesh = join(&nats, "harness").await;
    let found = survey(&mesh, &all[0]).await;
    assert_eq!(bodies(&found), ["commit 2", "commit 3", "commit 4"]);
    assert_eq!((found.unreadable, found.is_end_unreadable), (1, false));
    let found = survey(&mesh, &all[1]).await;
    assert_eq!(bodies(&found), ["commit 1", "commit 4"]);
    assert_eq!((found.unreadable, found.is_end_unreadable), (2, false));
    let found = survey(&mesh, &all[2]).await;
    assert!(found.commits.is_empty() && found.is_end_unreadable);
    assert_eq!((found.unreadable, found.last), (4, 0));
    let tail = mesh.log().tail(&all[2]).await;
    assert!(matches!(tail, Err(Error::Unreadable { last: 0, .. })));
    let body = Bytes::from("behind all");
    let stored = mesh.log().commit_behind(&all[2], body, &found).await;
    stored.expect("stored");
    assert!(mesh.log().tail(&all[2]).await.expect("a tail").is_some());
}

/// SEC-55: readers of all logs come to their end although a stream's first, last and other messages cannot be read, bring
/// everything else, and the sessions of which nothing is brought are listed.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_readers_come_to_an_end_over_damaged_messages() {
    let (mut nats, first) = mesh().await;
    let id = session("s");
    let other = beside(&id);
    let seqs = store(&first, &id, &other, 4).await;
    drop(first);
    let mesh = rot(&mut nats, &id, &[1, seqs[1], seqs[3]]).await;
    let mut follow = mesh
        .log()
        .follow(From::Start, false)
        .await
        .expect("a reader");
    let mut read: BTreeMap<SessionId, u64> = BTreeMap::new();
    wait::within(LIMIT, "the end", async {
        while let Some(next) = follow.next().await {
            *read.entry(next.expect("read").0).or_default() += 1;
        }
    })
    .await;
    assert_eq!((read[&id], read[&other]), (2, 3));

    let mut follow = mesh
        .log()
        .follow(From::LastOfEach, false)
        .await
        .expect("a reader");
    let mut lasts = Vec::new();
    wait::within(LIMIT, "the end", async {
        while let Some(next) = follow.next().await {
            lasts.push(next.expect("read").0);
        }
    })
    .await;
    assert_eq!(lasts, std::slice::from_ref(&other));
    let listed = mesh.log().sessions(1000).await.expect("a list");
    assert!(listed.contains(&id) && listed.contains(&other));
}

/// DUR-7: a reader that is to come to an end says so where the server is silent, and names the streams.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_reader_gives_up_where_the_server_is_silent() {
    let (mut nats, first) = mesh().await;
    let id = session("s");
    let seqs = store(&first, &id, &beside(&id), 2).await;
    drop(first);
    let mesh = rot(&mut nats, &id, &seqs[1..]).await;
    let follow = mesh.log().follow(From::Start, false).await;
    let mut follow = follow
        .expect("a reader")
        .give_up_after(Duration::from_millis(300));
    nats.pause();
    let error = wait::within(LIMIT, "it gives up", async {
        loop {
            match follow.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("nobody said that this is the end"),
            }
        }
    })
    .await;
    nats.resume();
    let text = error.to_string();
    assert!(text.contains("the server is silent"), "{text}");
    assert!(
        text.contains(stream(&id).trim_start_matches("LOG_")),
        "{text}"
    );
}

/// DUR-7: a message of a queue that cannot be read is told, and what lies behind it is handed out.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_damaged_message_of_a_queue_is_told_and_others_go_on() {
    let (mut nats, mesh) = mesh().await;
    let (id, other) = (session("s"), session("other"));
    let mut seqs = Vec::new();
    for (session, text) in [(&id, "one"), (&id, "two"), (&other, "three")] {
        let message = crate::fixture::message(text);
        let sent = mesh.lanes().send(session, &message, text.into()).await;
        seqs.push(sent.expect("stored").seq);
    }
    assert!(mesh.lanes().unreadable().await.expect("a list").is_empty());
    drop(mesh);
    nats.stop().await;
    nats.damage("TURNS", seqs[0]);
    nats.restart().await;
    let mesh = join(&nats, "harness").await;
    let unreadable = mesh.lanes().unreadable().await.expect("a list");
    assert_eq!(unreadable, BTreeMap::from([(id.clone(), 1)]));
    let next = mesh.lanes().next(&id, teamster_protocol::Lane::In, 0).await;
    assert_eq!(next.expect("read").map(|one| one.seq), Some(seqs[1]));
    let mut bells = teamster_mesh::bell::Bells::open(&mesh, 8)
        .await
        .expect("bells");
    let mut rung = Vec::new();
    wait::within(LIMIT, "what can be read rings", async {
        while rung.len() < 2 {
            let bell = bells.next().await.expect("a ring");
            rung.push(bell.seq);
        }
    })
    .await;
    assert_eq!(rung, seqs[1..]);
}

/// What docs/operations.md says of a server that was killed: it gives up everything that lies in the same block behind a damaged
/// message, of all sessions, when it starts again. If a newer server keeps it, that page is to be changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_gives_up_what_lies_behind_a_damaged_message() {
    let (mut nats, first) = mesh().await;
    let id = session("s");
    let other = beside(&id);
    let seqs = store(&first, &id, &other, 4).await;
    drop(first);
    nats.kill().await;
    nats.damage(&stream(&id), seqs[1]);
    nats.restart().await;
    let mesh = join(&nats, "harness").await;
    let found = survey(&mesh, &id).await;
    assert_eq!(bodies(&found), ["commit 1"]);
    assert_eq!((found.unreadable, found.is_end_unreadable), (0, false));
    assert_eq!(bodies(&survey(&mesh, &other).await), ["other 1", "other 2"]);
}

/// DUR-7: a damaged snapshot or head, wherever it lies in its stream, holds up none of the others: the server would stop at it when
/// one of its neighbours is replaced, so the stream is emptied when the topology is ensured, and filled anew.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_damaged_snapshot_or_head_holds_up_no_other() {
    for damaged in 0..3 {
        let (mut nats, mesh) = mesh().await;
        let session_worker = join(&nats, "session").await;
        let ids = ["a", "b", "c"].map(session);
        for id in &ids {
            mesh.snaps().put(id, &snapshot(1)).await.expect("told");
            let raised = session_worker.heads().raise(id, &head(1)).await;
            assert!(raised.expect("heads"));
        }
        mesh.flush().await.expect("flushed");
        drop((mesh, session_worker));
        nats.stop().await;
        nats.damage_last("SNAP", &subject::snap(&ids[damaged]));
        nats.damage_last("KV_heads", &subject::head(&ids[damaged]));
        nats.restart().await;
        let mesh = join(&nats, "harness").await;
        let session_worker = join(&nats, "session").await;
        ensure(&mesh, &Topology { replicas: 1 })
            .await
            .expect("ensured");
        wait::within(LIMIT, "nothing is held up", async {
            for n in 2..5 {
                for id in &ids {
                    mesh.snaps().put(id, &snapshot(n)).await.expect("told");
                    let raised = session_worker.heads().raise(id, &head(n)).await;
                    assert!(raised.expect("heads"));
                    mesh.flush().await.expect("flushed");
                    let found = mesh.snaps().get(id).await.expect("an answer");
                    assert_eq!(found.map(|found| found.mark.n), Some(n));
                    let kept = mesh.heads().get(id).await.expect("an answer");
                    assert_eq!(kept.map(|head| head.n), Some(n));
                }
            }
        })
        .await;
    }
}

/// DUR-7: a value whose stored bytes are damaged is not called absent, is not written over, and others are stored and read.
#[tokio::test(flavor = "multi_thread")]
async fn dur_7_a_damaged_value_is_told_and_not_written_over() {
    let (mut nats, mesh) = mesh().await;
    let three = mesh
        .blobs()
        .put(Bytes::from("three"))
        .await
        .expect("stored");
    drop(mesh);
    nats.stop().await;
    nats.damage_last("BLOBS", &subject::blob(&three.sha256));
    nats.restart().await;
    let mesh = join(&nats, "harness").await;
    let again = mesh.blobs().put(Bytes::from("three")).await;
    assert!(matches!(again, Err(Error::Damaged { .. })), "{again:?}");
    let read = mesh.blobs().get(&three).await;
    assert!(matches!(read, Err(Error::Damaged { .. })), "{read:?}");
    let fault = teamster_protocol::Fault::from(read.expect_err("damaged"));
    assert_eq!(fault.code, "mesh.damaged");
    let four = mesh.blobs().put(Bytes::from("four")).await.expect("stored");
    assert!(mesh.blobs().get(&four).await.expect("read").is_some());
    assert_eq!(mesh.blobs().list().await.expect("a list").len(), 2);
}

fn snapshot(n: u64) -> Snapshot {
    let mark = Mark {
        n,
        seq: n,
        hash: Digest::of("x"),
    };
    let state = Some(Bytes::from_static(b"[1,{}]"));
    Snapshot { mark, state }
}

fn head(n: u64) -> Head {
    Head {
        n,
        seq: n,
        hash: Digest::of("x"),
        at_ms: n,
    }
}

/// Who reads a log beside an owner who goes on is not told of damage that is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_grows_while_it_is_read_is_not_called_damaged() {
    let (nats, mesh) = mesh().await;
    let (owner, id) = (join(&nats, "owner").await, session("s"));
    let written = id.clone();
    let mut write = tokio::spawn(async move {
        let mut seq = 0;
        for n in 0..1000 {
            let body = format!("{n}").into();
            seq = owner
                .log()
                .commit(&written, body, seq)
                .await
                .expect("stored");
        }
    });
    loop {
        let found = tokio::select! {
            written = &mut write => break written.expect("all is written"),
            found = survey(&mesh, &id) => found,
        };
        assert_eq!((found.unreadable, found.is_end_unreadable), (0, false));
    }
    assert_eq!(survey(&mesh, &id).await.stored, 1000);
}
