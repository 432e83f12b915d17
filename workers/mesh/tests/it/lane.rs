//! The two lanes: storing once, order, bounds, listing.

use bytes::Bytes;
use teamster_mesh::{
    Error,
    lane::{Lanes, Queued},
};
use teamster_protocol::{
    Lane, SessionId,
    input::ControlKind,
    limits,
    subject::{self, partition},
};
use teamster_testkit::wait;

use crate::fixture::{LIMIT, mesh, message, session};

async fn all(lanes: &Lanes, session: &SessionId, lane: Lane) -> Vec<Queued> {
    let mut all = Vec::new();
    let mut after = 0;
    while let Some(next) = lanes.next(session, lane, after).await.expect("read") {
        after = next.seq;
        all.push(next);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_stored_once_and_read_in_order() {
    let (_nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("a b"));
    let first = lanes
        .send(&session, &message("1"), Bytes::from("one"))
        .await
        .expect("stored");
    let again = lanes
        .send(&session, &message("1"), Bytes::from("one"))
        .await
        .expect("stored");
    assert!(!first.is_duplicate && again.is_duplicate);
    assert_eq!(first.seq, again.seq);
    lanes
        .send(&session, &message("2"), Bytes::from("two"))
        .await
        .expect("stored");
    lanes
        .send(
            &crate::fixture::session("other"),
            &message("3"),
            Bytes::new(),
        )
        .await
        .expect("stored");
    for (n, kind) in [ControlKind::Stop, ControlKind::Decide, ControlKind::Result]
        .into_iter()
        .enumerate()
    {
        let id = message(&format!("c{n}"));
        lanes
            .control(&session, kind, &id, Bytes::from(kind.as_str()))
            .await
            .expect("stored");
        lanes.kick(&session, &format!("{n}")).await.expect("rung");
    }
    let bodies = |queued: &[Queued]| -> Vec<Bytes> {
        queued.iter().map(|queued| queued.body.clone()).collect()
    };
    let messages = all(&lanes, &session, Lane::In).await;
    assert_eq!(bodies(&messages), ["one", "two"]);
    assert!(messages.iter().all(|queued| queued.kind.is_none()));
    let control = all(&lanes, &session, Lane::Ctl).await;
    assert_eq!(bodies(&control), ["stop", "decide", "result"]);
    let kinds: Vec<_> = control.iter().filter_map(|queued| queued.kind).collect();
    assert_eq!(
        kinds,
        [ControlKind::Stop, ControlKind::Decide, ControlKind::Result]
    );
    assert_eq!(lanes.waiting(&session).await.expect("counted"), 2);
    lanes.remove(Lane::In, messages[0].seq).await;
    mesh.flush().await.expect("flushed");
    wait::until(LIMIT, "the input is removed", || async {
        lanes.waiting(&session).await.expect("counted") == 1
    })
    .await;
    assert_eq!(bodies(&all(&lanes, &session, Lane::In).await), ["two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_leaves_control_open() {
    let (_nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("s"));
    for n in 0..limits::QUEUE_PER_SESSION_MAX {
        lanes
            .send(&session, &message(&n.to_string()), Bytes::new())
            .await
            .expect("stored");
    }
    let refused = lanes.send(&session, &message("more"), Bytes::new()).await;
    assert!(matches!(refused, Err(Error::QueueFull)), "{refused:?}");
    lanes
        .control(&session, ControlKind::Stop, &message("c"), Bytes::new())
        .await
        .expect("stored");
    lanes
        .send(
            &crate::fixture::session("other"),
            &message("more"),
            Bytes::new(),
        )
        .await
        .expect("stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kick_of_one_cause_rings_once() {
    let (_nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("s"));
    for _ in 0..3 {
        lanes.kick(&session, "sweep 7").await.expect("rung");
    }
    lanes.kick(&session, "sweep 8").await.expect("rung");
    let mut bells = teamster_mesh::bell::Bells::open(&mesh, 8)
        .await
        .expect("bells");
    for _ in 0..2 {
        let ring = wait::within(LIMIT, "a kick", bells.next())
            .await
            .expect("a ring");
        assert!(ring.is_kick && ring.lane == Lane::Ctl && ring.session == session);
    }
    let third = tokio::time::timeout(std::time::Duration::from_millis(100), bells.next()).await;
    assert!(third.is_err(), "the broker's window makes repetitions one");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_with_anything_waiting_are_listed() {
    let (_nats, mesh) = mesh().await;
    let lanes = mesh.lanes();
    assert_eq!(lanes.sessions().await.expect("listed"), []);
    lanes
        .send(&session("in"), &message("1"), Bytes::new())
        .await
        .expect("stored");
    lanes
        .control(
            &session("ctl"),
            ControlKind::Stop,
            &message("2"),
            Bytes::new(),
        )
        .await
        .expect("stored");
    lanes.kick(&session("kick"), "x").await.expect("rung");
    assert_eq!(
        lanes.sessions().await.expect("listed"),
        [session("ctl"), session("in"), session("kick")]
    );
}

/// What lies in a lane and is no input of it is taken out and does not stop the lane.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_kind_of_input_is_removed() {
    let (_nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("s"));
    let strange = subject::turn_ctl(&session, ControlKind::Stop).replace(".stop", ".what");
    mesh.publish(strange, Bytes::from("x")).await.expect("sent");
    mesh.flush().await.expect("flushed");
    let stop = lanes
        .control(&session, ControlKind::Stop, &message("c"), Bytes::new())
        .await
        .expect("stored");
    let next = lanes.next(&session, Lane::Ctl, 0).await.expect("read");
    assert_eq!(next.expect("the stop").seq, stop.seq);
    assert!(partition(&session.token()) < limits::PARTITIONS);
}

/// The answer to a send is lost: the client's own repetition finds the message, and so does its user's.
#[tokio::test(flavor = "multi_thread")]
async fn a_send_whose_answer_is_lost_is_stored_once() {
    let (nats, direct) = mesh().await;
    let (proxy, mesh) = crate::fixture::behind(&nats, "harness").await;
    let session = session("s");
    let hold = proxy.hold_answer("turn.in.", 1);
    let sending = tokio::spawn({
        let (lanes, session) = (mesh.lanes(), session.clone());
        async move { lanes.send(&session, &message("1"), Bytes::from("x")).await }
    });
    hold.reached(LIMIT).await;
    hold.cut();
    let sent = wait::within(LIMIT, "the send", sending).await.expect("ran");
    let sent = sent.expect("stored");
    assert_eq!((sent.seq, sent.is_duplicate), (1, true));
    assert_eq!(direct.lanes().waiting(&session).await.expect("counted"), 1);
}

/// What a commit has consumed and the queue still holds does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn consumed_messages_that_are_not_removed_yet_do_not_wait() {
    let (_nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("s"));
    let mut seqs = Vec::new();
    for n in ["1", "2", "3"] {
        let sent = lanes.send(&session, &message(n), Bytes::from("x")).await;
        seqs.push(sent.expect("stored").seq);
    }
    for (cursor, left) in [(0, 3), (seqs[0], 2), (seqs[1], 1), (seqs[2], 0), (99, 0)] {
        let unconsumed = lanes.unconsumed(&session, cursor).await;
        assert_eq!(unconsumed.expect("counted"), left, "{cursor}");
    }
    lanes.remove(Lane::In, seqs[0]).await;
    mesh.flush().await.expect("flushed");
    let unconsumed = lanes.unconsumed(&session, seqs[1]).await;
    assert_eq!(unconsumed.expect("counted"), 1);
}
