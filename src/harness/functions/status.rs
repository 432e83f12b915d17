//! `harness::status`: what a session does.

use std::sync::Arc;

use teamster_core::turn::{
    State,
    state::{Call, CallState},
};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::harness::{CallStatus, StatusReply, StatusRequest, TurnStatus},
    id::ParseError,
};

use super::{Shared, exists, operator, read};

pub(super) fn function(shared: &Arc<Shared>) -> Result<Function, ParseError> {
    let contract = operator::<StatusRequest, StatusReply>(
        "harness::status",
        "Says what a session does: its turn, what waits for a person, what waits in its queue, what it has cost.",
        Class::Read,
    )?;
    let shared = Arc::clone(shared);
    Ok(Function::new(contract, move |ctx, request| {
        status(ctx, Arc::clone(&shared), request)
    }))
}

async fn status(
    ctx: Ctx,
    shared: Arc<Shared>,
    request: StatusRequest,
) -> Result<StatusReply, Fault> {
    // Whether anything waits is read first: what has left the queue by then stands in the log that is read after it.
    let lanes = ctx.mesh.lanes();
    let session = &request.session_id;
    let waiting = lanes.waiting(session).await?;
    let state = read(&ctx, &shared, session).await?;
    exists(&state, waiting)?;
    if waiting == 0 {
        return Ok(reply(&state, 0));
    }
    match lanes.unconsumed(session, state.cursor.input).await? {
        // What has left the queue since the log was read stands in the log now.
        0 => Ok(reply(&read(&ctx, &shared, session).await?, 0)),
        queued => Ok(reply(&state, queued)),
    }
}

fn reply(state: &State, queued: u64) -> StatusReply {
    let approvals: Vec<_> = state
        .held()
        .map(|(_, held)| held.approval.clone())
        .collect();
    let status = match (&state.turn, approvals.is_empty()) {
        (Some(_), false) => "awaiting_approval",
        (Some(_), true) => "running",
        (None, _) if queued > 0 && state.is_unanswered => "running",
        (None, _) => "idle",
    };
    let calls = state
        .turn
        .iter()
        .flat_map(|turn| &turn.calls)
        .filter_map(call_status)
        .collect();
    StatusReply {
        session_id: state.session.clone(),
        status: status.to_owned(),
        title: state
            .origin
            .as_ref()
            .and_then(|origin| origin.title.clone()),
        workspace: state
            .origin
            .as_ref()
            .and_then(|origin| origin.workspace.clone()),
        turn: turn_status(state),
        commits: state.commits(),
        turns: state.turns,
        queued,
        approvals,
        calls,
        usage: state.usage,
        cost: state.cost,
        cost_is_partial: state.is_cost_partial,
    }
}

fn turn_status(state: &State) -> Option<TurnStatus> {
    let model = state.options.model.clone().unwrap_or_default();
    if let Some(turn) = &state.turn {
        return Some(TurnStatus {
            turn_id: turn.id.clone(),
            number: turn.number,
            step: turn.step(),
            reason: None,
            model,
        });
    }
    state.last.as_ref().map(|last| TurnStatus {
        turn_id: last.id.clone(),
        number: last.number,
        step: last.steps.saturating_sub(1),
        reason: Some(last.reason.clone()),
        model,
    })
}

fn call_status(call: &Call) -> Option<CallStatus> {
    let state = match call.state {
        CallState::Proposed | CallState::Released { .. } => "proposed",
        CallState::Held(_) => "held",
        CallState::Allowed => "allowed",
        CallState::Started { .. } => "started",
        CallState::Done => return None,
    };
    Some(CallStatus {
        call_id: call.id.clone(),
        function: call.function().cloned(),
        state: state.to_owned(),
    })
}
