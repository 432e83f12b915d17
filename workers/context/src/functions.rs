//! The functions of the context worker, one file each.

pub(crate) mod assemble;
pub(crate) mod read;

use std::{sync::Arc, time::Duration};

use teamster_mesh::{Ctx, Function};
use teamster_protocol::id::ParseError;
use tokio::time::Instant;

use crate::Context;

/// What is left of a caller's patience for the way back.
const ANSWER_MARGIN: Duration = Duration::from_millis(200);

/// All functions.
pub(crate) fn all(context: &Arc<Context>) -> Result<Vec<Function>, ParseError> {
    Ok(vec![assemble::function(context)?, read::function(context)?])
}

/// When an answer must be on its way.
fn until(ctx: &Ctx) -> Instant {
    ctx.deadline
        .checked_sub(ANSWER_MARGIN)
        .unwrap_or(ctx.deadline)
}
