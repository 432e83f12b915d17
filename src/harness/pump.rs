//! Takes doorbells in, starts runs, renews leases, and hands everything over at the end.

use std::{sync::Arc, time::Duration};

use teamster_mesh::{Mesh, bell::Bells};
use teamster_protocol::limits;
use teamster_telemetry::task;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    desk::{Admitted, Held},
    own, run,
    shared::{Harness, Shared},
    sweep,
};

/// How long a harness waits before it opens its queues again after that failed.
const REOPEN: Duration = Duration::from_secs(1);
/// Doorbells of one session that wait for the next commit before the claim is proven by a reading.
const PROOF_AT: usize = 8;

/// Runs the harness until it is told to stop; then its sessions are handed over.
pub(super) async fn run(mesh: Mesh, shared: Arc<Shared>, cancel: CancellationToken) {
    let registry = loop {
        match mesh.registry().await {
            Ok(registry) => break registry,
            Err(error) => {
                tracing::warn!(error = %teamster_telemetry::chain(&error), "the registry cannot be read yet");
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(REOPEN) => {}
        }
    };
    let harness = Harness {
        mesh,
        registry,
        shared,
        drain: cancel.clone(),
    };
    let background = CancellationToken::new();
    start_background(&harness, &background);
    let runs = TaskTracker::new();
    while !cancel.is_cancelled() {
        if let Err(error) = serve(&harness, &runs, &cancel).await {
            tracing::warn!(error = %teamster_telemetry::chain(&error), "the queues cannot be read yet");
            tokio::select! {
                () = cancel.cancelled() => {}
                () = tokio::time::sleep(REOPEN) => {}
            }
        }
    }
    runs.close();
    if tokio::time::timeout(limits::DRAIN, runs.wait())
        .await
        .is_err()
    {
        tracing::warn!("some sessions did not come to a stop in time; their leases will lapse");
    }
    background.cancel();
    harness.shared.heads.keep(&harness.mesh, &background).await;
    let _ = harness.mesh.flush().await; // what is lost here comes back when its lease lapses
}

fn start_background(harness: &Harness, cancel: &CancellationToken) {
    let spawn = |name: &'static str, work: futures::future::BoxFuture<'static, ()>| {
        let cancel = cancel.clone();
        task::spawn(name, async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = work => {}
            }
        });
    };
    let h = harness.clone();
    spawn(
        "harness answers peers",
        Box::pin(async move { own::answer(&h).await }),
    );
    let h = harness.clone();
    spawn(
        "harness beats",
        Box::pin(async move { own::beat(&h).await }),
    );
    let h = harness.clone();
    spawn(
        "harness watches peers",
        Box::pin(async move { own::watch(&h).await }),
    );
    let h = harness.clone();
    spawn(
        "harness renews leases",
        Box::pin(async move { renew(&h).await }),
    );
    let h = harness.clone();
    spawn(
        "harness sweeps",
        Box::pin(async move {
            sweep::at_start(&h).await;
            sweep::keep(&h).await;
        }),
    );
    let (h, stop) = (harness.clone(), cancel.clone());
    spawn(
        "harness copies heads",
        Box::pin(async move { h.shared.heads.keep(&h.mesh, &stop).await }),
    );
}

async fn serve(
    harness: &Harness,
    runs: &TaskTracker,
    cancel: &CancellationToken,
) -> Result<(), teamster_mesh::Error> {
    // One more than sessions: a stop must be heard while all of them are at work.
    let credit = harness.shared.config.load().sessions.max(1) + 1;
    let mut bells = Bells::open(&harness.mesh, credit).await?;
    let releaser = bells.releaser();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            ring = bells.next() => {
                let Some(ring) = ring else { return Ok(()) };
                tracing::trace!(session = %ring.session, seq = ring.seq, kick = ring.is_kick, "a doorbell");
                admit(harness, runs, Held::new(ring, releaser.clone()));
            }
        }
    }
}

fn admit(harness: &Harness, runs: &TaskTracker, held: Held) {
    let session = held.ring.session.clone();
    match harness.shared.desk.admit(held) {
        Admitted::New(entry) => {
            let harness = harness.clone();
            runs.spawn(Box::pin(run::run(harness, session, entry)));
        }
        Admitted::Noted(entry, count) if count.is_multiple_of(PROOF_AT) => {
            let harness = harness.clone();
            runs.spawn(async move { run::prove(&harness, &session, &entry).await });
        }
        Admitted::Noted(..) => {}
    }
}

/// Renews everything that is held, long before it lapses.
async fn renew(harness: &Harness) {
    loop {
        tokio::time::sleep(limits::ACK_WAIT / 3).await;
        for held in harness.shared.desk.rings() {
            held.ring.progress().await;
        }
    }
}
