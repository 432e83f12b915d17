//! Makes the announced calls, and finds out what became of calls that an earlier owner made.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use teamster_core::context;
use teamster_core::turn::{HookNote, Outcome, call::admit, state::Call as Open};
use teamster_mesh::connection::Call;
use teamster_protocol::{
    CallId, Contract, Digest, Fault, FunctionId,
    hook::{self, CallResult, Point, Verdict},
    limits,
    message::ResultKind,
};
use tokio::time::Instant;

use super::{
    Interrupt, decide,
    hook::{Deaf, hear, request},
    interrupted,
    whole::{Kept, keep},
};
use crate::harness::{
    clock,
    work::{GiveUp, Work},
};

/// How long a function may be absent before its call fails.
const ABSENCE: Duration = Duration::from_secs(2);
/// Pause between two questions whether it is back.
const PAUSE: Duration = Duration::from_millis(50);
/// How long calls may go on after a stop; then they are abandoned.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long calls may go on when this harness ends.
const DRAIN_GRACE: Duration = Duration::from_secs(6);
/// How long a lost call that still runs somewhere is waited for, beyond its own limit.
const RECOVER_MAX: Duration = Duration::from_mins(1);

/// Makes the announced calls, all at once.
pub(super) async fn invoke(work: &mut Work<'_>, ids: &[CallId]) -> Result<Vec<Outcome>, GiveUp> {
    let mut outcomes = Vec::new();
    let mut running: BTreeSet<CallId> = ids.iter().cloned().collect();
    let mut interrupt = None;
    {
        let shared = &*work;
        let mut calls: FuturesUnordered<_> = ids.iter().map(|id| run(shared, id)).collect();
        let mut ends: Option<Instant> = None;
        loop {
            tokio::select! {
                done = calls.next() => match done {
                    Some((id, outcome)) => {
                        running.remove(&id);
                        outcomes.extend(outcome);
                    }
                    None => break,
                },
                cut = interrupted(shared), if interrupt.is_none() => {
                    interrupt = Some(cut);
                    ends = Some(Instant::now() + if cut == Interrupt::Stop { STOP_GRACE } else { DRAIN_GRACE });
                    if cut == Interrupt::Stop {
                        cancel(shared, &running).await;
                    }
                }
                () = until(ends), if ends.is_some() => break,
            }
        }
    }
    match interrupt {
        Some(Interrupt::Stop) => work.drain_strictly = true,
        Some(Interrupt::Drain) if !running.is_empty() => {
            // What has come back is stored; the rest goes on, and whoever has the session next asks for it.
            for outcome in &outcomes {
                work.take(outcome).await?;
            }
            if !work.draft.is_empty() {
                work.commit().await?;
            }
            return Err(GiveUp::Handover);
        }
        _ => {}
    }
    Ok(outcomes)
}

async fn until(ends: Option<Instant>) {
    match ends {
        Some(ends) => tokio::time::sleep_until(ends).await,
        None => std::future::pending().await,
    }
}

async fn cancel(work: &Work<'_>, running: &BTreeSet<CallId>) {
    for id in running {
        if let Some(function) = work.draft.state().call(id).and_then(Open::function) {
            work.harness.mesh.cancel_call(function, id.as_str()).await;
        }
    }
}

async fn run(work: &Work<'_>, id: &CallId) -> (CallId, Option<Outcome>) {
    let Some(open) = work.draft.state().call(id) else {
        return (id.clone(), None);
    };
    let Some(contract) = contract(work, open) else {
        let text = "the function is not there any more; the call did not run";
        return (id.clone(), Some(finished(id, Came::error(text), 0)));
    };
    let begun = Instant::now();
    let answer = match call_with_patience(work, open, &contract).await {
        // Only its answer may be lost: whoever ran the call remembers it.
        Err(fault) if fault.code == "mesh.callee_lost" && !open.is_repeatable => {
            let known = outcome_elsewhere(work, open, &contract.id).await;
            known.unwrap_or(Err(fault))
        }
        answer => answer,
    };
    let came = come_to(work, open, Some(&contract), answer).await;
    let duration_ms = clock::millis(begun.elapsed());
    (id.clone(), Some(finished(id, came, duration_ms)))
}

/// What a call came to.
struct Came {
    kind: ResultKind,
    kept: Kept,
    notes: Vec<HookNote>,
}

impl Came {
    fn error(text: &str) -> Self {
        Self {
            kind: ResultKind::Error,
            kept: Kept {
                text: text.to_owned(),
                whole: None,
            },
            notes: Vec::new(),
        }
    }
}

/// What an answer means, and what the hooks make of it.
async fn come_to(
    work: &Work<'_>,
    open: &Open,
    contract: Option<&Contract>,
    answer: Result<bytes::Bytes, Fault>,
) -> Came {
    let (kind, full) = result(open, answer);
    let Some(contract) = contract.filter(|contract| is_heard(work, open, contract)) else {
        return Came {
            kind,
            kept: keep(work, &open.id, full).await,
            notes: Vec::new(),
        };
    };
    // A hook sees what would be stored, no more; what no hook has seen is not kept either.
    let seen = context::fit(&open.id, &full, None);
    let (kind, text, notes) = after(work, open, contract, kind, seen).await;
    Came {
        kind,
        kept: Kept { text, whole: None },
        notes,
    }
}

/// Whether a hook wants to see what a function answers.
fn is_heard(work: &Work<'_>, open: &Open, contract: &Contract) -> bool {
    decide::arguments(open).is_some()
        && work
            .catalog()
            .hooks_at(Point::PostTrigger)
            .take(limits::HOOKS_PER_POINT_MAX)
            .any(|binding| decide::concerns(binding, &contract.id))
}

fn finished(id: &CallId, came: Came, duration_ms: u64) -> Outcome {
    Outcome::Finished {
        call: id.clone(),
        outcome: came.kind,
        text: came.kept.text,
        whole: came.kept.whole,
        duration_ms,
        notes: came.notes,
    }
}

fn contract(work: &Work<'_>, open: &Open) -> Option<Contract> {
    let catalog = work.catalog();
    let allowed = work.allowed();
    let offered = decide::offered(&catalog, &allowed);
    admit(&open.meant, &allowed, &offered).ok().cloned()
}

/// Calls a function. One that is absent is waited for a little: the call has not begun. A call that may run again is made
/// again when whoever ran it was lost.
async fn call_with_patience(
    work: &Work<'_>,
    open: &Open,
    contract: &Contract,
) -> Result<bytes::Bytes, Fault> {
    let Some(arguments) = decide::arguments(open) else {
        return Err(Fault::caller(
            "harness.no_arguments",
            "the call has no arguments",
        ));
    };
    // What a person approved is what runs, byte for byte.
    if open
        .approved
        .is_some_and(|approved| approved != Digest::of(arguments.as_str()))
    {
        return Err(Fault::denied(
            "harness.approval_void",
            "the arguments are not those that were approved",
        ));
    }
    let state = work.draft.state();
    let begun = Instant::now();
    let limit = Duration::from_millis(open.timeout_ms).min(limits::CALL_TIMEOUT_MAX);
    loop {
        let call = Call {
            principal: None,
            call: Some(open.id.to_string()),
            session: Some(work.session.clone()),
            workspace: state
                .origin
                .as_ref()
                .and_then(|origin| origin.workspace.clone()),
            functions: (contract.id.namespace() == "engine")
                .then(|| state.options.functions.clone())
                .flatten(),
            // What may run twice may also be begun by an owner that has just lost the session, or again long after the proof.
            not_after_ms: (!open.is_repeatable).then(|| work.not_after_ms()),
            timeout: limit,
            trace: work.trace(Some(open.id.as_str())),
            ..Call::new(contract.id.clone(), arguments.as_str().to_owned())
        };
        let answer = work.harness.mesh.call(call).await;
        let may_repeat = match &answer {
            Err(fault) if fault.code == "mesh.no_responders" => true,
            Err(fault) if fault.code == "mesh.callee_lost" => open.is_repeatable,
            _ => false,
        };
        if !may_repeat || begun.elapsed() > ABSENCE.max(limits::CALL_SILENCE_MAX * 2) {
            return answer;
        }
        if matches!(&answer, Err(fault) if fault.code == "mesh.no_responders")
            && begun.elapsed() > ABSENCE
        {
            return answer;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What an answer means for a call. Where nobody can say whether a call that must not run twice took effect, that is said.
fn result(open: &Open, answer: Result<bytes::Bytes, Fault>) -> (ResultKind, String) {
    match answer {
        Ok(body) => match String::from_utf8(body.to_vec()) {
            Ok(text) => (ResultKind::Ok, text),
            Err(_) => (
                ResultKind::Error,
                "the function answered with bytes that are not text".to_owned(),
            ),
        },
        Err(fault) => {
            let is_lost = matches!(
                fault.code.as_str(),
                "mesh.callee_lost" | "mesh.timeout" | "mesh.cancelled" | "mesh.unavailable"
            );
            if is_lost && !open.is_repeatable {
                let text = format!(
                    "outcome unknown: {}. The call may or may not have taken effect; it was not and will not be repeated. \
                     Check before you do it again.",
                    fault.message
                );
                (ResultKind::OutcomeUnknown, text)
            } else {
                let hint = fault
                    .hint
                    .as_deref()
                    .map(|hint| format!(" {hint}"))
                    .unwrap_or_default();
                (
                    ResultKind::Error,
                    format!("{} ({}){hint}", fault.message, fault.code),
                )
            }
        }
    }
}

/// Lets the post-trigger hooks rewrite the result.
async fn after(
    work: &Work<'_>,
    open: &Open,
    contract: &Contract,
    mut kind: ResultKind,
    mut text: String,
) -> (ResultKind, String, Vec<HookNote>) {
    let catalog = work.catalog();
    let mut notes = Vec::new();
    let ends = Instant::now() + limits::HOOK_CHAIN;
    for binding in catalog
        .hooks_at(Point::PostTrigger)
        .take(limits::HOOKS_PER_POINT_MAX)
    {
        let Some(arguments) =
            decide::arguments(open).filter(|_| decide::concerns(binding, &contract.id))
        else {
            continue;
        };
        let mut told = request(work, Point::PostTrigger);
        told.call = Some(hook::Call {
            id: open.id.clone(),
            function: contract.id.clone(),
            arguments: arguments.clone(),
            contract: contract.clone(),
            approved: open.approved,
        });
        told.result = Some(CallResult {
            text: text.clone(),
            is_error: kind.is_error(),
        });
        let mut note = HookNote {
            function: Some(binding.function.clone()),
            ..HookNote::default()
        };
        match hear(work, binding, &told, ends).await {
            Ok(Verdict::Continue {
                mutations,
                annotation,
                ..
            }) => {
                note.annotation = annotation;
                if let Some(result) = mutations.result {
                    kind = rewritten(kind, result.is_error);
                    text = result.text;
                }
            }
            Ok(Verdict::Deny { reason, .. }) | Err(Deaf::Closed(reason)) => {
                kind = rewritten(kind, true);
                text = format!("the result was withheld: {reason}");
                note.annotation = Some(reason);
            }
            Ok(Verdict::Hold { .. }) => {
                note.annotation = Some("a hold means nothing here".to_owned());
            }
            Err(Deaf::Open(why)) => note.annotation = Some(why),
        }
        notes.push(note);
    }
    (kind, text, notes)
}

/// A hook may not turn an unknown outcome into a known one.
fn rewritten(kind: ResultKind, is_error: bool) -> ResultKind {
    match kind {
        ResultKind::OutcomeUnknown => kind,
        _ if is_error => ResultKind::Error,
        _ => ResultKind::Ok,
    }
}

/// Asks what became of calls that must not run twice.
pub(super) async fn recover(work: &Work<'_>, ids: &[CallId]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for id in ids {
        let Some(open) = work.draft.state().call(id) else {
            continue;
        };
        let contract = contract(work, open);
        let function = contract.as_ref().map(|contract| &contract.id);
        let known = match function.or_else(|| open.function()) {
            Some(function) => tokio::select! {
                known = outcome_elsewhere(work, open, function) => known,
                // A stopped turn is not held up by what an earlier owner began.
                _ = interrupted(work) => None,
            },
            None => None,
        };
        let answer = known.unwrap_or_else(|| {
            Err(Fault::gone(
                "mesh.callee_lost",
                "the harness or the function was lost in mid-call",
            ))
        });
        let came = come_to(work, open, contract.as_ref(), answer).await;
        outcomes.push(finished(id, came, 0));
    }
    outcomes
}

/// What a call came to by the memory of whoever ran it; waits while it runs. `None` if nobody knows of it.
async fn outcome_elsewhere(
    work: &Work<'_>,
    open: &Open,
    function: &FunctionId,
) -> Option<Result<bytes::Bytes, Fault>> {
    let limit = Duration::from_millis(open.timeout_ms).min(RECOVER_MAX);
    let mesh = &work.harness.mesh;
    let known = mesh.call_outcome(function, open.id.as_str(), limit).await;
    known.ok().flatten()
}
