//! Decides whether a call may run: what the turn allows, then the shaping hooks, then the judges.

use teamster_core::{
    schema,
    turn::{
        Decided, HookNote, Outcome,
        call::{Allowed, admit},
        state::{Call, CallState},
    },
};
use teamster_mesh::registry::Catalog;
use teamster_protocol::{
    Arguments, CallId, Contract, FunctionId,
    hook::{self, Binding, Point, Stage, Verdict},
    limits,
    message::ResultKind,
    policy::Judgement,
    text,
};
use tokio::time::Instant;

use super::hook::{Deaf, hear, request};
use crate::harness::{clock, work::Work};

/// Decides one call.
pub(super) async fn decide(work: &Work<'_>, id: &CallId) -> Option<Outcome> {
    let state = work.draft.state();
    let call = state.call(id)?;
    let catalog = work.catalog();
    let allowed = work.allowed();
    let mut notes = Vec::new();
    let decided = match admit(&call.meant, &allowed, &offered(&catalog, &allowed)) {
        Ok(contract) => match misfit(contract, arguments(call), "") {
            // Nobody is asked about a call that the function cannot take.
            Some(refused) => refused,
            None => judge(work, call, contract, &mut notes).await,
        },
        Err(refusal) => Decided::Refuse {
            outcome: refusal.outcome,
            text: refusal.text,
            judgement: None,
        },
    };
    Some(Outcome::Decided {
        call: id.clone(),
        decided,
        notes,
    })
}

/// The answer to a call whose arguments the function's schema excludes; `whose` says who made them, if not the model.
fn misfit(contract: &Contract, arguments: Option<&Arguments>, whose: &str) -> Option<Decided> {
    let found = schema::violation(contract, arguments?)?;
    let text = format!(
        "the arguments{whose} do not fit the schema of {}: {found}. The call did not run and nobody was asked.",
        contract.id
    );
    Some(Decided::Refuse {
        outcome: ResultKind::Invalid,
        text: text::cut(&text, limits::FAULT_TEXT_BYTES_MAX),
        judgement: None,
    })
}

/// What the catalog offers to a turn that may call what is `allowed`.
pub(super) fn offered<'c>(catalog: &'c Catalog, allowed: &Allowed) -> Vec<&'c Contract> {
    let contracts = catalog.functions.values().map(|(contract, _)| &**contract);
    contracts
        .filter(|contract| allowed.offers(contract))
        .collect()
}

/// Which hooks are still to be heard.
struct Chain<'a> {
    shape: Vec<&'a Binding>,
    judge: Vec<&'a Binding>,
}

/// Why no call may count as judged now, if so.
fn unguarded(work: &Work<'_>, catalog: &Catalog) -> Option<String> {
    if let Some(name) = catalog.unreadable_hooks.first() {
        let name = text::operand(name);
        return Some(format!(
            "which hooks a worker has bound cannot be read: start it again, or remove them with `teamster workers unbind {name}`"
        ));
    }
    let is_bound = |required: &String| {
        let mut hooks = catalog.hooks.iter();
        hooks.any(|(binding, worker)| binding.point == Point::PreTrigger && worker == required)
    };
    let missing = work
        .required_hooks()
        .into_iter()
        .find(|required| !is_bound(required));
    missing.map(|required| format!("the required worker {required} has bound no hook"))
}

async fn judge(
    work: &Work<'_>,
    call: &Call,
    contract: &Contract,
    notes: &mut Vec<HookNote>,
) -> Decided {
    let catalog = work.catalog();
    let bound: Vec<&Binding> = catalog
        .hooks_at(Point::PreTrigger)
        .filter(|binding| concerns(binding, &contract.id))
        .take(limits::HOOKS_PER_POINT_MAX)
        .collect();
    if let Some(why) = unguarded(work, &catalog) {
        return unavailable(&why);
    }
    let chain = match chain(call, &bound) {
        Ok(chain) => chain,
        Err(missing) => return unavailable(&format!("the hook {missing} is bound no more")),
    };
    let Ok(meant) = &call.meant else {
        return unavailable("the call has no meaning");
    };
    let ends = Instant::now() + limits::HOOK_CHAIN;
    let mut told = request(work, Point::PreTrigger);
    let mut asked = hook::Call {
        id: call.id.clone(),
        function: contract.id.clone(),
        arguments: meant.arguments.clone(),
        contract: contract.clone(),
        approved: call.approved,
    };
    for binding in chain.shape {
        told.call = Some(asked.clone());
        match hear(work, binding, &told, ends).await {
            Ok(Verdict::Continue {
                mutations,
                annotation,
                ..
            }) => {
                push_note(notes, binding, annotation);
                if let Some(arguments) = mutations.arguments {
                    asked.arguments = arguments;
                }
            }
            Ok(Verdict::Deny { reason, judgement }) => {
                return denied(&reason, judgement);
            }
            Ok(Verdict::Hold { .. }) => {
                return unavailable("a shaping hook held the call");
            }
            Err(Deaf::Closed(why)) => return unavailable(&why),
            Err(Deaf::Open(why)) => push_note(notes, binding, Some(why)),
        }
    }
    if asked.arguments != meant.arguments
        && let Some(refused) = misfit(contract, Some(&asked.arguments), " that a hook made")
    {
        return refused;
    }
    told.call = Some(asked.clone());
    let mut judgement = None;
    for (index, binding) in chain.judge.iter().enumerate() {
        match hear(work, binding, &told, ends).await {
            Ok(Verdict::Continue {
                annotation,
                judgement: why,
                ..
            }) => {
                push_note(notes, binding, annotation);
                judgement = stricter(judgement, why);
            }
            Ok(Verdict::Deny { reason, judgement }) => {
                return denied(&reason, judgement);
            }
            Ok(Verdict::Hold { judgement }) => {
                let rest = chain
                    .judge
                    .iter()
                    .skip(index + 1)
                    .map(|later| later.function.clone())
                    .collect();
                return hold(work, asked, judgement, &binding.function, rest);
            }
            Err(Deaf::Closed(why)) => return unavailable(&why),
            Err(Deaf::Open(why)) => push_note(notes, binding, Some(why)),
        }
    }
    let is_changed = asked.arguments != meant.arguments;
    Decided::Allow {
        class: contract.class,
        is_repeatable: contract.is_repeatable(),
        timeout_ms: clock::millis(contract.timeout()),
        arguments: is_changed.then_some(asked.arguments),
        judgement,
    }
}

/// A fresh call meets all hooks; a released one only the judges after the one that held it; an edited one all judges.
fn chain<'a>(call: &Call, bound: &[&'a Binding]) -> Result<Chain<'a>, FunctionId> {
    let of = |stage: Stage| {
        bound
            .iter()
            .copied()
            .filter(move |binding| binding.stage == stage)
            .collect::<Vec<_>>()
    };
    match &call.state {
        CallState::Released { rest: Some(rest) } => {
            let judge =
                rest.iter()
                    .map(|id| {
                        let found = bound.iter().copied().find(|binding| {
                            binding.stage == Stage::Judge && binding.function == *id
                        });
                        found.ok_or_else(|| id.clone())
                    })
                    .collect::<Result<Vec<_>, _>>()?;
            Ok(Chain {
                shape: Vec::new(),
                judge,
            })
        }
        CallState::Released { rest: None } => Ok(Chain {
            shape: Vec::new(),
            judge: of(Stage::Judge),
        }),
        _ => Ok(Chain {
            shape: of(Stage::Shape),
            judge: of(Stage::Judge),
        }),
    }
}

/// Whether a binding means calls of a function. A glob that cannot be read means all.
pub(super) fn concerns(binding: &Binding, id: &FunctionId) -> bool {
    binding.functions.is_empty()
        || binding.functions.iter().any(|glob| {
            globset::Glob::new(glob)
                .map_or(true, |glob| glob.compile_matcher().is_match(id.as_str()))
        })
}

fn hold(
    work: &Work<'_>,
    asked: hook::Call,
    mut judgement: Judgement,
    holder: &FunctionId,
    rest: Vec<FunctionId>,
) -> Decided {
    judgement
        .ask_ttl_ms
        .get_or_insert(work.settings().turn.approval_ttl_ms);
    Decided::Hold {
        function: asked.function,
        arguments: asked.arguments,
        judgement,
        holder: holder.clone(),
        rest,
    }
}

fn denied(reason: &str, judgement: Option<Judgement>) -> Decided {
    Decided::Refuse {
        outcome: ResultKind::DeniedByPolicy,
        text: text::cut(reason, limits::FAULT_TEXT_BYTES_MAX),
        judgement,
    }
}

fn unavailable(why: &str) -> Decided {
    Decided::Refuse {
        outcome: ResultKind::GateUnavailable,
        text: format!("denied: gate_unavailable. {why}"),
        judgement: None,
    }
}

fn stricter(one: Option<Judgement>, other: Option<Judgement>) -> Option<Judgement> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.effect > one.effect {
            other
        } else {
            one
        }),
        (one, other) => one.or(other),
    }
}

fn push_note(notes: &mut Vec<HookNote>, binding: &Binding, annotation: Option<String>) {
    if annotation.is_some() {
        notes.push(HookNote {
            function: Some(binding.function.clone()),
            annotation,
            ..HookNote::default()
        });
    }
}

/// The arguments that will run.
pub(super) fn arguments(call: &Call) -> Option<&Arguments> {
    call.meant.as_ref().ok().map(|meant| &meant.arguments)
}
