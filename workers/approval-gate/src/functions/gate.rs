//! `approval::gate`: the hook that judges a call before it runs.

use std::sync::{Arc, PoisonError};

use teamster_core::policy::LAYER_BUILT_IN;
use teamster_mesh::Function;
use teamster_protocol::{
    Class, Contract, Fault, Visibility,
    hook::{Call, Mutations, Point, Request, Verdict},
    id::ParseError,
    limits,
    policy::{Effect, Judgement},
};

use crate::Gate;

/// Its id.
pub(crate) const ID: &str = "approval::gate";

/// The function.
pub(super) fn function(gate: &Arc<Gate>) -> Result<Function, ParseError> {
    let contract = Contract::of_house::<Request, Verdict>(
        ID,
        "Judges a call before it runs: lets it pass, denies it, or holds it for a person.",
        Class::Read,
        Visibility::Worker,
    )?;
    let gate = Arc::clone(gate);
    Ok(Function::new(contract, move |_, request| {
        let verdict = judge(&gate, &request, crate::now_ms());
        async { verdict }
    }))
}

fn judge(gate: &Gate, request: &Request, now_ms: u64) -> Result<Verdict, Fault> {
    let call = match &request.call {
        Some(call) if request.point == Point::PreTrigger => call,
        _ => return Err(bad("the gate judges calls at the point pre-trigger only")),
    };
    if call.contract.id != call.function {
        return Err(bad("the contract is not that of the called function"));
    }
    let judgement = gate.policies.judge_in(
        &request.turn,
        &call.contract,
        &call.arguments,
        request.workspace.as_deref(),
    );
    Ok(match judgement.effect {
        Effect::Allow => pass(judgement),
        Effect::Deny => Verdict::Deny {
            reason: reason(&judgement),
            judgement: Some(judgement),
        },
        Effect::Ask if is_approved(call) => pass(judgement),
        Effect::Ask => {
            let mut burst = gate.burst.lock().unwrap_or_else(PoisonError::into_inner);
            if burst.admit(&request.session, &call.id, now_ms) {
                Verdict::Hold { judgement }
            } else {
                too_many(judgement)
            }
        }
    })
}

/// Whether a person has approved exactly these bytes, before they came back here to be judged again.
fn is_approved(call: &Call) -> bool {
    call.approved == Some(call.arguments.digest())
}

fn pass(judgement: Judgement) -> Verdict {
    Verdict::Continue {
        mutations: Mutations::default(),
        annotation: None,
        judgement: Some(judgement),
    }
}

/// The reason as the model reads it.
fn reason(judgement: &Judgement) -> String {
    let about = judgement
        .target
        .as_ref()
        .map_or_else(String::new, |target| format!(" on {target:?}"));
    format!(
        "The policy denies this call{about}: rule `{}` of layer `{}`. The same call will be denied again.",
        judgement.rule, judgement.layer
    )
}

fn too_many(asked: Judgement) -> Verdict {
    let judgement = Judgement {
        effect: Effect::Deny,
        layer: LAYER_BUILT_IN.to_owned(),
        rule: format!(
            "2: deny more than {} questions of a session in a minute",
            limits::QUESTIONS_PER_MINUTE_MAX
        ),
        ask_ttl_ms: None,
        ..asked
    };
    Verdict::Deny {
        reason: "This call needs a person's decision, and this session has asked for too many within a minute. \
                 Do not repeat it now."
            .to_owned(),
        judgement: Some(judgement),
    }
}

fn bad(message: &str) -> Fault {
    Fault::caller("approval.bad_request", message)
}

#[cfg(test)]
mod tests;
