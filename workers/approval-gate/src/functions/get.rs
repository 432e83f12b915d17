//! `approval::get`: one request and what became of it.

use std::sync::Arc;

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Contract, Fault, Visibility,
    function::approval::{GetReply, GetRequest},
    id::ParseError,
};

use crate::{Gate, query};

/// The function.
pub(super) fn function(gate: &Arc<Gate>) -> Result<Function, ParseError> {
    let contract = Contract::of_house::<GetRequest, GetReply>(
        "approval::get",
        "Shows one request for a decision whole, and what became of it.",
        Class::Read,
        Visibility::Operator,
    )?;
    let gate = Arc::clone(gate);
    Ok(Function::new(contract, move |ctx, request| {
        get(Arc::clone(&gate), ctx, request)
    }))
}

async fn get(gate: Arc<Gate>, ctx: Ctx, request: GetRequest) -> Result<GetReply, Fault> {
    let found = super::find(&gate, &ctx, &request.approval_id).await?.entry;
    if found.resolution.is_none() {
        return Ok(found);
    }
    // The inbox does not follow what a decided call came to; the log knows.
    let session = &found.request.session_id;
    let latest = query::in_session(&ctx.mesh, session, &request.approval_id).await?;
    Ok(latest.map_or(found, |latest| latest.entry))
}
