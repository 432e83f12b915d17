//! Durable timers: they fire, are replaced, are cancelled.

use bytes::Bytes;
use teamster_mesh::lane::{Lanes, Queued};
use teamster_protocol::{ApprovalId, Lane, SessionId, input::ControlKind};
use teamster_testkit::wait;

use crate::fixture::{LIMIT, mesh, session};

fn approval(text: &str) -> ApprovalId {
    ApprovalId::parse(format!("apr_{text}")).expect("an approval id")
}

fn in_ms(ms: u64) -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("fits") + ms
}

async fn fired(lanes: &Lanes, session: &SessionId, after: u64) -> Queued {
    wait::some(LIMIT, "the timer fires", || async {
        lanes.next(session, Lane::Ctl, after).await.expect("read")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_stores_its_input_at_its_time() {
    let (_nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("s"));
    let at = in_ms(1200);
    lanes
        .set_timer(&session, &approval("1"), at, Bytes::from("body"))
        .await
        .expect("set");
    assert_eq!(
        lanes.next(&session, Lane::Ctl, 0).await.expect("read"),
        None
    );
    let input = fired(&lanes, &session, 0).await;
    assert_eq!(input.kind, Some(ControlKind::Timer));
    assert_eq!(input.body, "body");
    assert!(in_ms(0) >= at, "not before its time");
    assert_eq!(
        lanes
            .next(&session, Lane::Ctl, input.seq)
            .await
            .expect("read"),
        None,
        "it fires once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_of_the_past_fires_at_once() {
    let (_nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("s"));
    lanes
        .set_timer(&session, &approval("1"), 1000, Bytes::from("late"))
        .await
        .expect("set");
    assert_eq!(fired(&lanes, &session, 0).await.body, "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_is_replaced_and_cancelled() {
    let (mut nats, mesh) = mesh().await;
    let (lanes, session) = (mesh.lanes(), session("s"));
    for (id, at, body) in [
        ("kept", in_ms(3_600_000), "old"),
        ("kept", in_ms(1000), "new"),
        ("gone", in_ms(1000), "cancelled"),
    ] {
        lanes
            .set_timer(&session, &approval(id), at, Bytes::from(body))
            .await
            .expect("set");
    }
    for _ in 0..2 {
        lanes
            .cancel_timer(&session, &approval("gone"))
            .await
            .expect("cancelled");
    }
    nats.restart().await;
    let input = fired(&lanes, &session, 0).await;
    assert_eq!(input.body, "new");
    // A later timer shows that the cancelled one would have fired by now.
    lanes
        .set_timer(
            &session,
            &approval("last"),
            in_ms(1100),
            Bytes::from("last"),
        )
        .await
        .expect("set");
    assert_eq!(fired(&lanes, &session, input.seq).await.body, "last");
    assert_eq!(lanes.sessions().await.expect("listed"), [session]);
}
