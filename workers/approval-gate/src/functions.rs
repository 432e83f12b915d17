//! The functions of the gate, one file each.

pub(crate) mod explain;
pub(crate) mod gate;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod resolve;

use std::{sync::Arc, time::Duration};

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{ApprovalId, Fault, id::ParseError};
use tokio::time::Instant;

use crate::{Gate, inbox::Found, query};

/// What is left of a caller's patience for the way back.
const ANSWER_MARGIN: Duration = Duration::from_millis(500);

/// All functions.
pub(crate) fn all(gate: &Arc<Gate>) -> Result<Vec<Function>, ParseError> {
    Ok(vec![
        gate::function(gate)?,
        list::function(gate)?,
        get::function(gate)?,
        resolve::function(gate)?,
        explain::function(gate)?,
    ])
}

/// When an answer must be on its way.
fn until(ctx: &Ctx) -> Instant {
    ctx.deadline
        .checked_sub(ANSWER_MARGIN)
        .unwrap_or(ctx.deadline)
}

/// A request by its id: from the inbox, else from the log.
async fn find(gate: &Gate, ctx: &Ctx, approval: &ApprovalId) -> Result<Found, Fault> {
    let found = match gate.inbox.find(approval) {
        Some(found) => Some(found),
        None => query::anywhere(&ctx.mesh, approval, until(ctx)).await?,
    };
    found.ok_or_else(|| {
        Fault::gone(
            "approval.not_found",
            format_args!("there is no approval {approval}"),
        )
        .hint("`teamster approvals ls` lists what waits.")
    })
}
