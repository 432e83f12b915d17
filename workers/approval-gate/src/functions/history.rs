//! `approval::history`: what was decided.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault, Visibility,
    function::approval::{HistoryReply, HistoryRequest},
    id::ParseError,
    limits,
};

use crate::query;

/// The function.
pub(super) fn function() -> Result<Function, ParseError> {
    let contract = super::contract::<HistoryRequest, HistoryReply>(
        "approval::history",
        "Lists decisions, newest first, as many as were asked for and one reply can hold.",
        Class::Read,
        Visibility::Operator,
    )?;
    Ok(Function::new(contract, history))
}

async fn history(ctx: Ctx, request: HistoryRequest) -> Result<HistoryReply, Fault> {
    let count = request
        .limit
        .map_or(limits::APPROVALS_HISTORY_DEFAULT, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        })
        .min(limits::APPROVALS_LISTED_MAX);
    let session = request.session_id.as_ref();
    let entries = query::history(&ctx.mesh, session, count, super::until(&ctx)).await?;
    Ok(HistoryReply { entries })
}
