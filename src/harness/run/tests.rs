//! What becomes of a session whose run panics.

use teamster_mesh::{
    Connect, Mesh,
    bell::Bells,
    topology::{Topology, ensure},
};
use teamster_protocol::{MessageId, id::WorkerName};
use teamster_testkit::{Nats, wait};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::harness::{config::Config, desk::Admitted, shared::Shared};

const LIMIT: Duration = Duration::from_mins(1);

async fn connect(nats: &Nats, name: &str) -> Mesh {
    let connect = Connect {
        url: nats.url(),
        credentials: None,
    };
    let name = WorkerName::parse(name).expect("a name");
    Mesh::connect(&connect, name).await.expect("a connection")
}

/// UNI-1: a panic in one session's run gives that session back, whole: its doorbell comes again and begins a new run. Nobody
/// holds its lease for a run that is no more.
#[tokio::test(flavor = "multi_thread")]
async fn uni_1_a_session_whose_run_panics_is_run_again() {
    let nats = Nats::start().await;
    let topology = connect(&nats, "topology").await;
    ensure(&topology, &Topology { replicas: 1 })
        .await
        .expect("a topology");
    let mesh = connect(&nats, "harness").await;
    let harness = Harness {
        registry: mesh.registry().await.expect("a registry"),
        mesh: mesh.clone(),
        shared: Arc::new(Shared::new(&Config::default())),
        drain: CancellationToken::new(),
    };
    let session = SessionId::parse("s").expect("valid");
    let id = MessageId::parse("msg_1").expect("valid");
    let queued = mesh.lanes().send(&session, &id, "{}".into()).await;
    queued.expect("is queued");
    let mut bells = Bells::open(&mesh, 4).await.expect("bells");
    for _ in 0..2 {
        let ring = wait::within(LIMIT, "the doorbell rings", bells.next()).await;
        let held = Held::new(ring.expect("a doorbell"), bells.releaser());
        let Admitted::New(entry) = harness.shared.desk.admit(held) else {
            panic!("somebody still runs it");
        };
        let run = Run::new(harness.clone(), session.clone(), entry);
        let cut = AssertUnwindSafe(async { assert!("中".is_char_boundary(1), "cut inside") });
        let ended = cut.catch_unwind().await;
        assert!(ended.is_err());
        run.ended(ended).await;
        assert!(harness.shared.desk.get(&session).is_none());
    }
}
