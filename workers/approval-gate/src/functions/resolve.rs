//! `approval::resolve`: takes a person's decision.
//!
//! The decision is stored as an input of its session; the harness commits it, and what is answered is what the log says.
//! Before, the call is judged once more: an approval never carries a call past a policy that has become stricter.

use std::sync::Arc;

use teamster_core::{policy::LAYER_DEFAULTS, schema};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Arguments, Class, Contract, Digest, Fault, MessageId, Principal, Visibility,
    function::approval::{DamagedLog, Pending, Resolution, ResolveReply, ResolveRequest},
    id::ParseError,
    input::{ControlKind, Decide, Decision},
    limits,
    policy::{Effect, Judgement, Labels},
    text,
};
use tokio::time::{Instant, timeout_at};

use crate::{Gate, inbox::Found, query};

use super::explain::served;

/// The function.
pub(super) fn function(gate: &Arc<Gate>) -> Result<Function, ParseError> {
    let contract = Contract::of_house::<ResolveRequest, ResolveReply>(
        "approval::resolve",
        "Decides a call that waits. The first decision counts; the answer says whether it was this one.",
        Class::Write,
        Visibility::Operator,
    )?;
    let gate = Arc::clone(gate);
    Ok(Function::new(contract, move |ctx, request| {
        resolve(Arc::clone(&gate), ctx, request)
    }))
}

async fn resolve(
    gate: Arc<Gate>,
    ctx: Ctx,
    request: ResolveRequest,
) -> Result<ResolveReply, Fault> {
    let Some(by) = ctx.principal.clone() else {
        return Err(Fault::denied(
            "approval.no_principal",
            "only an operator decides",
        ));
    };
    check_form(&request)?;
    let found = super::find(&gate, &ctx, &request.approval_id).await?;
    if let Some(resolution) = found.entry.resolution {
        return Ok(answer(&by, &request, resolution));
    }
    let pending = &found.entry.request;
    check_pending(pending, &request, crate::now_ms())?;
    check_policy(&gate, &ctx, &found, &request.decision).await?;
    // From here on nothing of a change may be missed.
    let mut changes = gate.inbox.changes();
    publish(&ctx, pending, &by, &request).await?;
    tracing::info!(
        approval = %request.approval_id,
        session = %pending.session_id,
        %by,
        channel = request.channel,
        "a decision is stored"
    );
    let until = super::until(&ctx).min(Instant::now() + limits::DECISION_WAIT);
    let committed = async {
        loop {
            let seen = gate.inbox.find(&request.approval_id);
            if let Some(resolution) = seen.and_then(|found| found.entry.resolution) {
                return resolution;
            }
            if changes.changed().await.is_err() {
                // The inbox outlives its functions; without it nobody would tell more.
                std::future::pending::<()>().await;
            }
        }
    };
    let resolution = match timeout_at(until, committed).await {
        Ok(resolution) => Some(resolution),
        // The inbox may be behind or full; the log has the last word.
        Err(_) => query::in_session(&ctx.mesh, &pending.session_id, &request.approval_id)
            .await?
            .and_then(|found| found.entry.resolution),
    };
    let resolution = resolution.ok_or_else(|| {
        let damaged = gate.inbox.damaged(Some(&pending.session_id));
        if let Some(damaged) = damaged.first() {
            return stopped(damaged);
        }
        let approval = text::operand(request.approval_id.as_str());
        Fault::busy(
            "approval.not_committed_yet",
            "the decision is stored and will be applied, but no harness has committed it yet",
        )
        .hint(format_args!(
            "`teamster approvals show {approval}` says what became of it."
        ))
    })?;
    Ok(answer(&by, &request, resolution))
}

/// Nobody commits a decision where the log is damaged before its end.
fn stopped(damaged: &DamagedLog) -> Fault {
    let session = text::operand(damaged.session_id.as_str());
    Fault::internal(
        "session.log_damaged",
        format_args!(
            "the decision is stored, but nobody has committed it: the log of {} is damaged: {}",
            damaged.session_id, damaged.message
        ),
    )
    .hint(format_args!(
        "`teamster sessions accept-loss {session}` says what is given up to let the session go on; the request is withdrawn by that."
    ))
}

/// Whether the decision that counts is the one that was offered. The same one offered again counts as itself.
fn answer(by: &Principal, request: &ResolveRequest, resolution: Resolution) -> ResolveReply {
    let won = matches!(
        &resolution,
        Resolution::Decided { by: winner, channel, decision, .. }
            if winner == by && *channel == request.channel && *decision == request.decision
    );
    ResolveReply { won, resolution }
}

fn check_form(request: &ResolveRequest) -> Result<(), Fault> {
    let bad = |message: &str| Err(Fault::caller("approval.bad_request", message));
    let is_word = (1..=64).contains(&request.channel.len())
        && request.channel.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_word {
        return bad("the channel has 1 to 64 printable ASCII characters without spaces");
    }
    match &request.decision {
        Decision::Deny {
            reason: Some(reason),
        } if reason.len() > limits::FAULT_TEXT_BYTES_MAX => {
            bad("the reason has at most 2048 bytes")
        }
        Decision::Edit { arguments } if arguments.as_str().len() > limits::COMPLETION_BYTES_MAX => {
            bad("the edited arguments are longer than a model's may be")
        }
        _ => Ok(()),
    }
}

/// Whether the request still waits for what was shown.
fn check_pending(pending: &Pending, request: &ResolveRequest, now_ms: u64) -> Result<(), Fault> {
    if request.digest != pending.digest {
        return Err(Fault::caller(
            "approval.stale_digest",
            "the decision was made about other arguments than those that wait",
        )
        .hint("Look at the request again, then decide."));
    }
    if now_ms >= pending.expires_at_ms {
        return Err(Fault::gone(
            "approval.expired",
            "the wait for a decision is over; the call is answered as expired",
        )
        .hint("Send the session a message to let the model ask again."));
    }
    Ok(())
}

/// Whether what would run may still run. A denial needs no policy.
async fn check_policy(
    gate: &Gate,
    ctx: &Ctx,
    found: &Found,
    decision: &Decision,
) -> Result<(), Fault> {
    let pending = &found.entry.request;
    let arguments = match decision {
        Decision::Approve => &pending.arguments,
        Decision::Edit { arguments } => arguments,
        Decision::Deny { .. } => return Ok(()),
    };
    let contract = served(&ctx.mesh, &pending.function).await?.ok_or_else(|| {
        Fault::busy(
            "approval.function_absent",
            format_args!(
                "nobody serves {} now, so that the call cannot be judged again",
                pending.function
            ),
        )
        .hint("Start its worker, or deny.")
    })?;
    check_labels(pending, &contract)?;
    if let Decision::Edit { arguments } = decision {
        check_edit(&contract, arguments)?;
    }
    judge_again(gate, found, &contract, arguments)
}

/// An edit that the function cannot take would be answered to the model as its own mistake.
fn check_edit(contract: &Contract, arguments: &Arguments) -> Result<(), Fault> {
    let Some(found) = schema::violation(contract, arguments) else {
        return Ok(());
    };
    let function = text::operand(contract.id.as_str());
    Err(Fault::caller(
        "approval.arguments",
        format_args!(
            "the edited arguments do not fit the schema of {}: {found}",
            contract.id
        ),
    )
    .hint(format_args!(
        "Correct them and decide again: `teamster functions info {function}` shows their form."
    )))
}

fn judge_again(
    gate: &Gate,
    found: &Found,
    contract: &Contract,
    arguments: &Arguments,
) -> Result<(), Fault> {
    let judgement = gate
        .policies
        .judge(contract, arguments, found.workspace.as_deref());
    if judgement.effect != Effect::Deny {
        return Ok(());
    }
    let is_edited = arguments.digest() != found.entry.request.digest;
    let (code, what) = if is_edited {
        ("approval.edit_denied", "the edited call")
    } else {
        ("approval.void", "the call")
    };
    Err(Fault::denied(code, denial(what, &judgement)).hint("Deny it, or change the policy."))
}

fn denial(what: &str, judgement: &Judgement) -> String {
    if judgement.layer == LAYER_DEFAULTS {
        format!("the policy now denies {what}: default `{}`", judgement.rule)
    } else {
        format!(
            "the policy now denies {what}: rule `{}` of layer `{}`",
            judgement.rule, judgement.layer
        )
    }
}

/// An approval is for the labels that were shown. A function that has become stricter since is another one.
fn check_labels(pending: &Pending, contract: &Contract) -> Result<(), Fault> {
    let shown = pending.judgement.labels;
    let now = Labels {
        class: contract.class,
        data: contract.data,
        trust: contract.trust,
    };
    if now.class > shown.class || now.data > shown.data || now.trust > shown.trust {
        return Err(Fault::denied(
            "approval.void",
            format_args!(
                "the function {} has stricter labels now than when the decision was asked for",
                pending.function
            ),
        )
        .hint("Deny it; the model may call it again, and is judged by the new labels."));
    }
    Ok(())
}

async fn publish(
    ctx: &Ctx,
    pending: &Pending,
    by: &Principal,
    request: &ResolveRequest,
) -> Result<(), Fault> {
    let internal = |error: serde_json::Error| Fault::internal("approval.encode", error);
    let decision = serde_json::to_vec(&request.decision).map_err(internal)?;
    // The same decision offered again is one input.
    let key = Digest::of_fields(&[
        request.approval_id.as_str().as_bytes(),
        by.as_str().as_bytes(),
        request.channel.as_bytes(),
        request.digest.as_bytes(),
        &decision,
    ]);
    let session = &pending.session_id;
    let id = MessageId::of_input(session, "decide", &key.to_string());
    let decide = Decide {
        id: id.clone(),
        approval: request.approval_id.clone(),
        by: by.clone(),
        channel: request.channel.clone(),
        digest: request.digest,
        decision: request.decision.clone(),
    };
    let body = serde_json::to_vec(&decide).map_err(internal)?;
    ctx.mesh
        .lanes()
        .control(session, ControlKind::Decide, &id, body.into())
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests;
