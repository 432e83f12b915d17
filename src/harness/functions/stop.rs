//! `harness::stop`: a running turn comes to an end.

use std::sync::Arc;

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault, MessageId,
    function::harness::{StopReply, StopRequest},
    id::ParseError,
    input::{ControlKind, Stop},
};

use super::{Shared, exists, operator, principal, read};

pub(super) fn function(shared: &Arc<Shared>) -> Result<Function, ParseError> {
    let contract = operator::<StopRequest, StopReply>(
        "harness::stop",
        "Stops the turn that runs, never a later one. Stream and calls are cancelled; the turn ends within seconds.",
        Class::Write,
    )?;
    let shared = Arc::clone(shared);
    Ok(Function::new(contract, move |ctx, request| {
        stop(ctx, Arc::clone(&shared), request)
    }))
}

async fn stop(ctx: Ctx, shared: Arc<Shared>, request: StopRequest) -> Result<StopReply, Fault> {
    let from = principal(&ctx)?;
    let queued = ctx.mesh.lanes().waiting(&request.session_id).await?;
    let state = read(&ctx, &shared, &request.session_id).await?;
    exists(&state, queued)?;
    let running = state.turn.as_ref().map(|turn| turn.id.clone());
    let is_stopping = running.is_some()
        && request
            .turn_id
            .as_ref()
            .is_none_or(|turn| Some(turn) == running.as_ref());
    // Named, so that it can never end a turn that begins later.
    let turn = request.turn_id.or(running);
    let key = match (&ctx.call, &turn) {
        (Some(call), _) => call.clone(),
        (None, Some(turn)) => format!("{turn}-{}", uuid::Uuid::now_v7().simple()),
        (None, None) => uuid::Uuid::now_v7().simple().to_string(),
    };
    let id = MessageId::of_input(&request.session_id, "stop", &key);
    let body = serde_json::to_vec(&Stop {
        id: id.clone(),
        from,
        turn,
    })
    .map_err(|error| Fault::internal("harness.encode", error))?;
    let accepted = ctx
        .mesh
        .lanes()
        .control(&request.session_id, ControlKind::Stop, &id, body.into())
        .await?;
    Ok(StopReply {
        stopping: is_stopping,
        seq: accepted.seq,
    })
}
