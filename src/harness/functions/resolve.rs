//! `harness::function::resolve`: a result for a held call comes from outside.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault, MessageId,
    function::harness::{ResolveReply, ResolveRequest},
    id::ParseError,
    input::{ControlKind, Deliver},
    limits, text,
};

use super::{operator, principal};

pub(super) fn function() -> Result<Function, ParseError> {
    let contract = operator::<ResolveRequest, ResolveReply>(
        "harness::function::resolve",
        "Delivers the result of a held call; the call itself does not run. The first delivery or decision counts.",
        Class::Write,
    )?;
    Ok(Function::new(contract, resolve))
}

async fn resolve(ctx: Ctx, request: ResolveRequest) -> Result<ResolveReply, Fault> {
    let from = principal(&ctx)?;
    // One delivery a call: the same id for every repetition, so that a lost answer may be asked for again.
    let id = MessageId::of_input(&request.session_id, "result", request.call_id.as_str());
    let deliver = Deliver {
        id: id.clone(),
        from,
        call: request.call_id,
        content: text::cut(&request.content, limits::RESULT_BYTES_MAX),
        is_error: request.is_error,
    };
    let body =
        serde_json::to_vec(&deliver).map_err(|error| Fault::internal("harness.encode", error))?;
    let accepted = ctx
        .mesh
        .lanes()
        .control(&request.session_id, ControlKind::Result, &id, body.into())
        .await?;
    Ok(ResolveReply { seq: accepted.seq })
}
