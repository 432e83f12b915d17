//! Doorbells: credit, leases, and consumers that are lost.

use std::time::Duration;

use bytes::Bytes;
use teamster_mesh::{
    Mesh,
    bell::{Bells, Ring},
};
use teamster_protocol::{Lane, input::ControlKind};
use teamster_testkit::{wait, wait::within};

use crate::fixture::{LIMIT, join, mesh, message, session};

async fn send(mesh: &Mesh, session: &str, id: &str) -> u64 {
    let session = crate::fixture::session(session);
    let accepted = mesh
        .lanes()
        .send(&session, &message(id), Bytes::from("x"))
        .await;
    accepted.expect("stored").seq
}

async fn next(bells: &mut Bells) -> Ring {
    within(LIMIT, "a doorbell", bells.next())
        .await
        .expect("a ring")
}

async fn is_quiet(bells: &mut Bells) -> bool {
    let ring = tokio::time::timeout(Duration::from_millis(150), bells.next()).await;
    ring.is_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn doorbells_of_both_streams_ring_within_the_credit() {
    let (_nats, mesh) = mesh().await;
    let mut bells = Bells::open(&mesh, 4).await.expect("bells");
    for n in 0..6 {
        send(&mesh, &format!("s{n}"), &n.to_string()).await;
    }
    let mut rings = Vec::new();
    for _ in 0..3 {
        rings.push(next(&mut bells).await);
    }
    assert!(
        is_quiet(&mut bells).await,
        "one credit is kept for control inputs"
    );
    mesh.lanes()
        .control(
            &session("s0"),
            ControlKind::Stop,
            &message("c"),
            Bytes::new(),
        )
        .await
        .expect("stored");
    let control = next(&mut bells).await;
    assert_eq!((control.lane, control.is_kick), (Lane::Ctl, false));
    assert_eq!(control.session, session("s0"));
    assert!(is_quiet(&mut bells).await, "the credit is used up");
    for ring in &rings {
        assert_eq!((ring.lane, ring.delivered), (Lane::In, 1));
        ring.ack().await;
        bells.release();
    }
    control.ack().await;
    bells.release();
    let mut seen: Vec<u64> = rings.iter().map(|ring| ring.seq).collect();
    for _ in 0..3 {
        let ring = next(&mut bells).await;
        seen.push(ring.seq);
        ring.ack().await;
        bells.release();
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credit_of_one_hears_both_streams() {
    let (_nats, mesh) = mesh().await;
    let mut bells = Bells::open(&mesh, 1).await.expect("bells");
    send(&mesh, "s", "1").await;
    mesh.lanes().kick(&session("s"), "x").await.expect("rung");
    let mut lanes = Vec::new();
    for _ in 0..2 {
        let ring = next(&mut bells).await;
        assert!(is_quiet(&mut bells).await);
        lanes.push(ring.lane);
        ring.ack().await;
        bells.release();
    }
    lanes.sort_unstable();
    assert_eq!(lanes, [Lane::In, Lane::Ctl]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doorbell_that_is_given_back_rings_elsewhere() {
    let (nats, mesh) = mesh().await;
    let seq = send(&mesh, "s", "1").await;
    let mut bells = Bells::open(&mesh, 8).await.expect("bells");
    let first = next(&mut bells).await;
    first.progress().await;
    first.nak(Duration::from_millis(100)).await;
    drop(bells);
    let other = join(&nats, "harness").await;
    let mut bells = Bells::open(&other, 8).await.expect("bells");
    let again = wait::within(LIMIT, "the doorbell again", async {
        loop {
            let ring = next(&mut bells).await;
            if ring.delivered > 1 {
                return ring;
            }
        }
    })
    .await;
    assert_eq!((again.seq, again.session.clone()), (seq, session("s")));
    again.ack().await;
    assert!(is_quiet(&mut bells).await);
}

/// BUS-2: a consumer that goes on waiting after the broker restarted, or after its durable was deleted, hears nothing for ever.
#[tokio::test(flavor = "multi_thread")]
async fn bus_2_doorbells_survive_restarts_of_the_broker_and_the_loss_of_their_consumer() {
    let (mut nats, mesh) = mesh().await;
    let mut bells = Bells::open(&mesh, 16).await.expect("bells");
    let mut ring_one = async |id: &str| {
        let seq = send(&mesh, "s", id).await;
        mesh.lanes().kick(&session("s"), id).await.expect("rung");
        let (mut is_message, mut is_kick) = (false, false);
        while !(is_message && is_kick) {
            let ring = next(&mut bells).await;
            is_message |= ring.lane == Lane::In && ring.seq == seq;
            is_kick |= ring.is_kick;
            ring.ack().await;
            mesh.lanes().remove(ring.lane, ring.seq).await;
            bells.release();
        }
    };
    ring_one("1").await;
    nats.restart().await;
    ring_one("2").await;
    let plain = async_nats::connect(nats.url()).await.expect("connected");
    let jetstream = async_nats::jetstream::new(plain);
    for stream in ["TURNS", "CONTROL"] {
        jetstream
            .delete_consumer_from_stream("bell", stream)
            .await
            .expect("deleted");
    }
    ring_one("3").await;
    nats.kill().await;
    nats.restart().await;
    ring_one("4").await;
}

/// What is no session's input is taken out of the stream instead of ringing for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_doorbell_under_the_wrong_partition_is_removed() {
    let (_nats, mesh) = mesh().await;
    let right = teamster_protocol::subject::turn_in(&session("s"));
    let wrong = if right.contains(".07.") {
        "turn.in.08.s"
    } else {
        "turn.in.07.s"
    };
    mesh.publish(wrong.to_owned(), Bytes::from("x"))
        .await
        .expect("sent");
    mesh.flush().await.expect("flushed");
    let mut bells = Bells::open(&mesh, 8).await.expect("bells");
    send(&mesh, "s", "1").await;
    assert_eq!(next(&mut bells).await.session, session("s"));
    let listed = mesh.lanes().sessions().await.expect("listed");
    assert_eq!(listed, [session("s")]);
}
