//! Publishes what a commit wants published, afterwards and again by the next owner.

use teamster_core::turn::State;
use teamster_mesh::Error;
use teamster_protocol::{
    ApprovalId, MessageId,
    commit::{Bell, Outbox},
    input::Timer,
};

use super::{cleanup, shared::Harness};

/// Publishes what the last commit of a state wants published. Each item has an id of its own, so that a second time changes
/// nothing. `lease` is the doorbell that the caller holds.
pub(super) async fn publish(harness: &Harness, state: &State, lease: Bell) {
    for item in &state.outbox {
        let done = match item {
            Outbox::Timer { approval, at_ms } => set_timer(harness, state, approval, *at_ms).await,
            Outbox::CancelTimer { approval } => {
                let lanes = harness.mesh.lanes();
                lanes.cancel_timer(&state.session, approval).await
            }
            Outbox::CleanUp => cleanup::clean_up(harness, state, lease).await,
        };
        if let Err(error) = done {
            // The next owner publishes it again, and the sweeper finds a session past its deadline.
            tracing::warn!(session = %state.session, error = %teamster_telemetry::chain(&error), "what follows from a commit was not done");
        }
    }
}

async fn set_timer(
    harness: &Harness,
    state: &State,
    approval: &ApprovalId,
    at_ms: u64,
) -> Result<(), Error> {
    let session = &state.session;
    let id = MessageId::of_input(session, "timer", approval.as_str());
    let timer = Timer {
        id,
        approval: approval.clone(),
    };
    let Ok(body) = serde_json::to_vec(&timer) else {
        return Ok(());
    };
    let lanes = harness.mesh.lanes();
    lanes.set_timer(session, approval, at_ms, body.into()).await
}
