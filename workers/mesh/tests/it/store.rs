//! Snapshots, kept completions, live frames.

use bytes::Bytes;
use serde_json::json;
use teamster_mesh::{
    Mesh,
    snap::{Mark, Snapshot},
};
use teamster_protocol::{
    Digest, RequestId,
    function::router::{Completion, Delta, DeltaKind, Part},
    message::StopReason,
    usage::Usage,
};
use teamster_testkit::{wait, wait::within};

use crate::fixture::{LIMIT, mesh, session};

fn completion(text: &str) -> Completion {
    Completion {
        parts: vec![Part::Text {
            text: text.to_owned(),
        }],
        stop: StopReason::End,
        error: None,
        usage: Usage::default(),
        cost: None,
        model: "test/one".to_owned(),
        attempts: 1,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_replaced_and_read_back() {
    let (_nats, mesh) = mesh().await;
    let (snaps, session) = (mesh.snaps(), session("s"));
    assert_eq!(snaps.get(&session).await.expect("read"), None);
    for (n, state) in [
        (1, Some(Bytes::from("state"))),
        (2, None),
        (3, Some(Bytes::from("new"))),
    ] {
        let snapshot = Snapshot {
            mark: Mark {
                n,
                seq: n * 10,
                hash: Digest::of(n.to_be_bytes()),
            },
            state,
        };
        snaps.put(&session, &snapshot).await.expect("sent");
        wait::until(LIMIT, "the snapshot is stored", || async {
            snaps.get(&session).await.expect("read").as_ref() == Some(&snapshot)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_kept_until_those_of_their_session_are_removed() {
    let (_nats, mesh) = mesh().await;
    let generations = mesh.generations();
    let request = RequestId::of(&session("a b"), 3, 1);
    let (same, other) = (
        RequestId::of(&session("a b"), 3, 2),
        RequestId::of(&session("a"), 3, 1),
    );
    assert_eq!(generations.get(&request).await.expect("read"), None);
    generations
        .put(&request, &completion("one"))
        .await
        .expect("sent");
    for further in [&same, &other] {
        generations
            .put(further, &completion("two"))
            .await
            .expect("sent");
    }
    // Nobody waits for the storing: what is removed before it is stored would stay.
    for (stored, text) in [(&request, "one"), (&same, "two"), (&other, "two")] {
        let kept = wait::some(LIMIT, "the completion is kept", || async {
            generations.get(stored).await.expect("read")
        })
        .await;
        assert_eq!(kept, completion(text));
    }
    generations.remove(&session("a b")).await;
    for removed in [&request, &same] {
        wait::until(LIMIT, "the completion is removed", || async {
            generations.get(removed).await.expect("read").is_none()
        })
        .await;
    }
    assert_eq!(
        generations.get(&other).await.expect("read"),
        Some(completion("two"))
    );
}

fn frame(index: u64) -> Delta {
    Delta {
        request: RequestId::of(&session("s"), 1, 1),
        index,
        delta: DeltaKind::Text {
            text: format!("{index}"),
        },
    }
}

async fn publish(mesh: &Mesh, index: u64) {
    let sent = mesh.live().publish(&session("s"), &frame(index)).await;
    sent.expect("sent");
}

/// BUS-4: a reader that is slow holds nobody up and misses nothing that is kept.
#[tokio::test(flavor = "multi_thread")]
async fn bus_4_a_slow_reader_sees_all_frames_in_order() {
    let (nats, mesh) = mesh().await;
    let reader = crate::fixture::join(&nats, "operator").await;
    let mut deltas = reader.live().follow(&session("s")).await.expect("a reader");
    for index in 0..5000 {
        publish(&mesh, index).await;
    }
    mesh.flush().await.expect("flushed");
    for index in 0..5000 {
        let delta = within(LIMIT, "a frame", deltas.next()).await;
        assert_eq!(delta, Some(frame(index)));
    }
}

/// BUS-4: who was cut off for a moment reads from the stream what it missed, in its place and once.
#[tokio::test(flavor = "multi_thread")]
async fn bus_4_a_reader_that_was_cut_off_reads_what_it_missed() {
    let (nats, mesh) = mesh().await;
    let (proxy, reader) = crate::fixture::behind(&nats, "operator").await;
    publish(&mesh, 0).await;
    let mut deltas = reader.live().follow(&session("s")).await.expect("a reader");
    publish(&mesh, 1).await;
    for index in 0..2 {
        let delta = within(LIMIT, "a frame", deltas.next()).await;
        assert_eq!(delta, Some(frame(index)));
    }
    proxy.refuse();
    proxy.cut();
    for index in 2..6 {
        publish(&mesh, index).await;
    }
    mesh.flush().await.expect("flushed");
    proxy.accept();
    within(LIMIT, "the reader is back", async {
        while reader.flush().await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    publish(&mesh, 6).await;
    for index in 2..7 {
        let delta = within(LIMIT, "a frame", deltas.next()).await;
        assert_eq!(delta, Some(frame(index)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_are_read_from_the_first_that_is_kept_and_after_a_restart() {
    let (mut nats, mesh) = mesh().await;
    publish(&mesh, 0).await;
    publish(&mesh, 1).await;
    mesh.live()
        .publish(&session("other"), &frame(9))
        .await
        .expect("sent");
    // The server keeps a frame a moment after it has taken it.
    wait::until(LIMIT, "the frames are kept", || async {
        let live = json!({"subjects_filter": "live.>"}).to_string();
        let asked = mesh.request("$JS.API.STREAM.INFO.LIVE".to_owned(), live.into(), LIMIT);
        let info = asked.await.expect("an answer");
        let info: serde_json::Value = serde_json::from_slice(&info).expect("JSON");
        info["state"]["messages"] == 3
    })
    .await;
    let mut deltas = mesh.live().follow(&session("s")).await.expect("a reader");
    for index in 0..2 {
        let delta = within(LIMIT, "a frame", deltas.next()).await;
        assert_eq!(delta, Some(frame(index)));
    }
    publish(&mesh, 2).await;
    assert_eq!(
        within(LIMIT, "a frame", deltas.next()).await,
        Some(frame(2))
    );
    nats.restart().await;
    // The stream is in memory: it begins anew, and the reader with it. What comes until then may be missed.
    let mut index = 3;
    let next = loop {
        publish(&mesh, index).await;
        index += 1;
        let wait = std::time::Duration::from_millis(50);
        if let Ok(delta) = tokio::time::timeout(wait, deltas.next()).await {
            break delta.expect("a frame");
        }
        assert!(index < 600, "no frame after the restart");
    };
    assert!(next.index >= 3);
}
