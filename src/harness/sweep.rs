//! Rings for sessions that nobody seems to serve. A needless ring costs one load.

use teamster_protocol::{SessionId, limits};

use super::{clock, own, shared::Harness};

/// Rings for everything that lies in a lane when this harness starts: whoever served it may be gone.
pub(super) async fn at_start(harness: &Harness) {
    let reason = format!("start-{}", harness.mesh.incarnation());
    ring(harness, &reason, |_| false).await;
}

/// Rings now and then; harnesses that sweep in the same period ring once.
pub(super) async fn keep(harness: &Harness) {
    loop {
        tokio::time::sleep(limits::SWEEP_EVERY).await;
        let period = clock::now_ms() / clock::millis(limits::SWEEP_EVERY);
        ring(harness, &format!("sweep-{period}"), |_| false).await;
    }
}

/// Rings for everything that lies in a lane and is served neither here nor, as far as `is_served` knows, elsewhere.
pub(super) async fn ring(
    harness: &Harness,
    reason: &str,
    is_served: impl Fn(&SessionId) -> bool + Send,
) {
    match harness.mesh.lanes().sessions().await {
        Ok(sessions) => {
            for session in sessions {
                if harness.shared.desk.get(&session).is_none() && !is_served(&session) {
                    own::kick(&harness.mesh, &session, reason).await;
                }
            }
        }
        Err(error) => {
            tracing::warn!(error = %teamster_telemetry::chain(&error), "the queues could not be listed");
        }
    }
}
