//! The second copy of heads: a lower bound that only rises.

use teamster_mesh::head::Head;
use teamster_protocol::{Digest, Phase};
use teamster_testkit::wait;

use crate::{
    ask::turn,
    rig::{LIMIT, Rig, Writer, created, said},
};

async fn rises_to(rig: &Rig, writer: &Writer) -> Head {
    wait::some(LIMIT, "the second copy of the head follows", || async {
        let kept = rig.mesh.heads().get(&writer.session).await.expect("heads");
        kept.filter(|head| head.n == writer.n)
    })
    .await
}

/// SEC-55: the second copy of a head follows its log, and a projection that is built anew from a log that went back does not lower it.
#[tokio::test(flavor = "multi_thread")]
async fn sec_55_the_second_copy_of_a_head_rises_and_never_falls() {
    let mut rig = Rig::start().await;
    let mut one = Writer::new(&rig.mesh, "one");
    one.commit(Phase::Idle, vec![created("one")]).await;
    let young = rises_to(&rig, &one).await;
    turn(&mut one, 1, "ask", "answer").await;
    let head = rises_to(&rig, &one).await;
    assert_eq!((head.seq, head.hash), (one.seq, one.prev));
    assert_eq!(head.at_ms, one.n * 1000);
    // What is known already, and another history of the same length, change nothing.
    let forged = Head {
        hash: Digest::of("another"),
        ..head
    };
    for other in [young, forged] {
        let heads = rig.mesh.heads();
        assert!(!heads.raise(&one.session, &other).await.expect("heads"));
    }
    rig.serve(None).await;
    one.commit(Phase::Idle, vec![said("more")]).await;
    assert_eq!(rises_to(&rig, &one).await.n, head.n + 1);
}
