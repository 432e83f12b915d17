//! Runs the hooks of a point, one after another, each with its deadline and all within one.

use std::time::Duration;

use teamster_core::turn::{HookNote, Outcome, state::Turn};
use teamster_mesh::connection::Call;
use teamster_protocol::{
    Fault,
    hook::{Binding, Generate, Mutations, OnError, Point, Request, Verdict},
    limits,
};
use tokio::time::Instant;

use super::generate;
use crate::harness::work::Work;

/// How long a hook may be absent before it counts as failed.
const ABSENCE: Duration = Duration::from_secs(2);
/// A hook for which less than this is left of its point's time is not asked: it could not answer, and a callee's own deadline ends
/// in whole milliseconds, a little before the caller's.
const LEAST: Duration = Duration::from_millis(20);
/// Pause between two questions whether it is back.
const PAUSE: Duration = Duration::from_millis(50);

/// What a hook that could not be heard means.
pub(super) enum Deaf {
    /// It failed, and that is a denial: the reason names it.
    Closed(String),
    /// It failed, and that is nothing.
    Open(String),
}

/// Runs the hooks of a point at which a turn, not a call, is looked at.
pub(super) async fn run_point(work: &Work<'_>, point: Point) -> Outcome {
    let catalog = work.catalog();
    let ends = Instant::now() + limits::HOOK_CHAIN;
    let mut request = request(work, point);
    let mut notes = Vec::new();
    for binding in catalog.hooks_at(point).take(limits::HOOKS_PER_POINT_MAX) {
        let mut note = HookNote {
            function: Some(binding.function.clone()),
            ..HookNote::default()
        };
        match hear(work, binding, &request, ends).await {
            Ok(Verdict::Continue {
                mutations,
                annotation,
                ..
            }) => {
                note.annotation = annotation;
                if let Some(generate) = &mut request.generate
                    && let Some(prompt) = &mutations.system_prompt
                {
                    generate.system_prompt.clone_from(prompt);
                }
                note.system_prompt = mutations.system_prompt;
                note.append = mutations.append;
            }
            Ok(Verdict::Deny { reason, .. }) | Err(Deaf::Closed(reason)) => {
                note.denied = Some(reason);
            }
            Ok(Verdict::Hold { .. }) => {
                note.annotation = Some("a hold means nothing here".to_owned());
            }
            Err(Deaf::Open(why)) => note.annotation = Some(why),
        }
        let is_denied = note.denied.is_some();
        if is_denied && point == Point::PostGenerate {
            note.annotation = note.denied.take(); // it may only look
        }
        notes.push(note);
        if is_denied {
            break;
        }
    }
    Outcome::Hooks { point, notes }
}

/// What a hook is told, the part of its point left to the caller.
pub(super) fn request(work: &Work<'_>, point: Point) -> Request {
    let state = work.draft.state();
    let generate = (point == Point::PreGenerate).then(|| Generate {
        model: state.options.model.clone().unwrap_or_default(),
        system_prompt: generate::system_prompt(state),
    });
    let generated = (point == Point::PostGenerate)
        .then(|| state.transcript.last().map(|message| (**message).clone()))
        .flatten();
    Request {
        point,
        session: work.session.clone(),
        turn: match &state.turn {
            Some(turn) => turn.id.clone(),
            None => teamster_protocol::TurnId::of(&work.session, state.drafting(), 0),
        },
        step: state.turn.as_ref().map_or(0, Turn::step),
        workspace: state
            .origin
            .as_ref()
            .and_then(|origin| origin.workspace.clone()),
        generate,
        generated,
        call: None,
        result: None,
    }
}

/// Asks one hook. Time-out, absence, an unreadable answer and a change that the point does not allow are all failures.
pub(super) async fn hear(
    work: &Work<'_>,
    binding: &Binding,
    request: &Request,
    ends: Instant,
) -> Result<Verdict, Deaf> {
    let left = ends.saturating_duration_since(Instant::now());
    let timeout = binding.timeout().min(left);
    let answer = match serde_json::to_vec(request) {
        Ok(body) if left >= LEAST => {
            let call = Call {
                session: Some(work.session.clone()),
                timeout,
                // A call's own span stands when it has begun; until then hooks are the turn's.
                trace: work.trace(match (&request.call, binding.point) {
                    (Some(call), Point::PostTrigger) => Some(call.id.as_str()),
                    _ => None,
                }),
                ..Call::new(binding.function.clone(), body)
            };
            match tokio::time::timeout(timeout, ask(work, call)).await {
                Ok(Ok(body)) => read(&body, binding),
                Ok(Err(fault)) => Err(fault.to_string()),
                Err(_) => Err(format!(
                    "it did not answer within {} ms",
                    timeout.as_millis()
                )),
            }
        }
        Ok(_) => Err("the hooks of this point took too long".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match answer {
        Ok(verdict) => Ok(verdict),
        Err(why) => {
            tracing::warn!(session = %work.session, function = %binding.function, reason = %why, "a hook failed");
            let text = format!("the hook {} failed: {why}", binding.function);
            match binding.on_error() {
                OnError::FailClosed => Err(Deaf::Closed(text)),
                OnError::FailOpen => Err(Deaf::Open(text)),
            }
        }
    }
}

/// Asks, and waits a little for a hook that is absent: after a restart of the broker each worker comes back in its own time.
async fn ask(work: &Work<'_>, call: Call) -> Result<bytes::Bytes, Fault> {
    let begun = Instant::now();
    loop {
        match work.harness.mesh.call(call.clone()).await {
            Err(fault) if fault.code == "mesh.no_responders" && begun.elapsed() < ABSENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

fn read(body: &[u8], binding: &Binding) -> Result<Verdict, String> {
    if body.is_empty() {
        return Ok(Verdict::proceed());
    }
    if body.len() > limits::HOOK_REPLY_BYTES_MAX {
        return Err(format!(
            "its answer has {} bytes; {} are taken",
            body.len(),
            limits::HOOK_REPLY_BYTES_MAX
        ));
    }
    let verdict: Verdict = serde_json::from_slice(body)
        .map_err(|error| format!("its answer cannot be read: {error}"))?;
    if let Verdict::Continue { mutations, .. } = &verdict {
        check(mutations, binding)?;
    }
    Ok(verdict)
}

/// Each point allows its own changes; a judge allows none.
fn check(mutations: &Mutations, binding: &Binding) -> Result<(), String> {
    use teamster_protocol::hook::Stage;
    let allowed = match binding.point {
        Point::PreGenerate => Mutations {
            arguments: None,
            result: None,
            ..mutations.clone()
        },
        Point::PreTrigger if binding.stage == Stage::Shape => Mutations {
            arguments: mutations.arguments.clone(),
            ..Mutations::default()
        },
        Point::PostTrigger => Mutations {
            result: mutations.result.clone(),
            ..Mutations::default()
        },
        Point::PreTurn | Point::PreTrigger | Point::PostGenerate => Mutations::default(),
    };
    if *mutations == allowed {
        Ok(())
    } else {
        Err("it changes what its point does not allow".to_owned())
    }
}
