//! The functions of the gate, one file each.

pub(crate) mod explain;
pub(crate) mod gate;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod resolve;

use std::{sync::Arc, time::Duration};

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{ApprovalId, Fault, function::approval::DamagedLog, id::ParseError, text};
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
        let damaged = gate.inbox.damaged(None);
        if let Some(first) = damaged.first() {
            return unreadable(approval, first, damaged.len());
        }
        Fault::gone(
            "approval.not_found",
            format_args!("there is no approval {approval}"),
        )
        .hint("`teamster approvals ls` lists what waits.")
    })
}

/// A request that is not found may stand in what cannot be read.
fn unreadable(approval: &ApprovalId, first: &DamagedLog, count: usize) -> Fault {
    let others = if count > 1 {
        format!(" (and {} others)", count - 1)
    } else {
        String::new()
    };
    let session = text::operand(first.session_id.as_str());
    Fault::internal(
        "session.log_damaged",
        format_args!(
            "{approval} is in no log that can be read; it may have been asked in session {}{others}, whose log is damaged: {}",
            first.session_id, first.message
        ),
    )
    .hint(format_args!(
        "`teamster sessions show {session}` shows what can be read; `teamster sessions accept-loss {session}` says what is given up, \
         what waits for a decision included."
    ))
}
