//! What a generation is made of: asks the context worker for a plan and applies it to the history that is folded here.
//!
//! The worker is a soft dependency. Without an answer in time the model gets the bounded raw history.

use std::{collections::BTreeSet, sync::Arc};

use teamster_core::{
    context::{self, Ask, Window},
    turn::{Sent, State, history},
};
use teamster_mesh::connection::Call;
use teamster_protocol::{
    Fault, FunctionId, Message, SessionId,
    function::{
        context::{AssembleReply, AssembleRequest, History, Plan},
        router::{CompletionError, ErrorKind, Tool},
    },
    limits, text,
};

use super::generate::{system_prompt, tools};
use crate::harness::work::Work;

/// What a generation is made of.
pub(super) struct Prepared {
    pub(super) model: String,
    pub(super) system_prompt: String,
    pub(super) tools: Vec<Tool>,
    pub(super) messages: Vec<Arc<Message>>,
    /// Tokens that the answer may take.
    pub(super) output: u64,
    pub(super) sent: Sent,
}

/// The request's parts that no plan changes.
struct Fixed {
    model: String,
    system_prompt: String,
    tools: Vec<Tool>,
    tools_bytes: u64,
    output: u64,
}

impl Fixed {
    fn of(work: &Work<'_>) -> Self {
        let state = work.draft.state();
        let settings = &work.settings().turn;
        let tools = tools(state, &work.allowed(), &work.catalog());
        Self {
            model: state
                .options
                .model
                .clone()
                .unwrap_or_else(|| settings.model.clone()),
            system_prompt: system_prompt(state),
            tools_bytes: serde_json::to_vec(&tools).map_or(0, |json| json.len() as u64),
            tools,
            output: state
                .options
                .max_output_tokens
                .unwrap_or(settings.output_tokens),
        }
    }

    /// Estimated tokens of the request with these messages.
    fn with(&self, messages: &[Arc<Message>]) -> u64 {
        self.without()
            + messages
                .iter()
                .map(|message| context::of_message(message))
                .sum::<u64>()
    }

    /// Tokens that the answer may take after so many refusals.
    fn halved(&self, refused: u32) -> u64 {
        self.output.checked_shr(refused).unwrap_or(0).max(1)
    }

    fn without(&self) -> u64 {
        context::of_text(&self.system_prompt) + context::of_bytes(self.tools_bytes)
    }

    fn prepared(self, messages: Vec<Arc<Message>>, estimated: u64, plan: Option<Plan>) -> Prepared {
        let plan = plan.unwrap_or_default();
        Prepared {
            model: self.model,
            system_prompt: self.system_prompt,
            tools: self.tools,
            messages,
            output: self.output,
            sent: Sent {
                masked: plan.mask,
                tokens_before: plan.tokens_before,
                tokens_after: plan.tokens_after,
                estimated,
            },
        }
    }
}

/// What the announced generation is made of; an error where it cannot fit into the model's window.
pub(super) async fn prepare(work: &Work<'_>) -> Result<Prepared, CompletionError> {
    let state = work.draft.state();
    let mut fixed = Fixed::of(work);
    if let Some(small) = small(work, &fixed) {
        fixed.output = fixed.output.min(small.left);
        return Ok(fixed.prepared(small.messages, small.estimated, None));
    }
    match ask(work, &fixed).await {
        Ok(plan) => {
            let rooms = &work.harness.shared.rooms;
            if state.refused() == 0 {
                rooms.note(&fixed.model, fixed.output, &plan);
            }
            // Some servers refuse a request for the sake of the answer that it allows.
            let left = plan.window.saturating_sub(plan.tokens_after);
            fixed.output = fixed.halved(state.refused()).min(left);
            let messages = applied(state, &plan);
            let estimated = fixed.with(&messages);
            Ok(fixed.prepared(messages, estimated, Some(plan)))
        }
        Err(fault) if fault.code == "context.overflow" => Err(CompletionError {
            kind: ErrorKind::ContextOverflow,
            message: fault.message,
            hint: fault.hint,
        }),
        Err(fault) => {
            tracing::warn!(session = %work.session, error = %fault, "no context worker: the model gets the raw history");
            raw(work, fixed)
        }
    }
}

/// A request that is far below the window, as far as the window is known. No plan would change anything.
struct Small {
    messages: Vec<Arc<Message>>,
    /// Tokens of the request.
    estimated: u64,
    /// Tokens that are left for the answer.
    left: u64,
}

fn small(work: &Work<'_>, fixed: &Fixed) -> Option<Small> {
    let state = work.draft.state();
    if state.refused() > 0 {
        return None;
    }
    let room = work.harness.shared.rooms.of(&fixed.model, fixed.output)?;
    // A long history is not copied only to be found too long.
    if context::of_bytes(history::bytes(&state.history()) as u64) > room.usable {
        return None;
    }
    let per_mille = state.per_mille(&fixed.model);
    let messages = context::apply(&state.history(), &BTreeSet::new(), room.result_bytes_max);
    let estimated = fixed.with(&messages);
    let tokens = estimated.saturating_mul(per_mille) / 1000;
    (tokens <= room.usable / 2).then(|| Small {
        messages,
        estimated,
        left: room.window.saturating_sub(tokens),
    })
}

fn applied(state: &State, plan: &Plan) -> Vec<Arc<Message>> {
    let mask = plan.mask.iter().cloned().collect();
    let cap = usize::try_from(plan.result_bytes_max).unwrap_or(usize::MAX);
    context::apply(&state.history(), &mask, cap)
}

/// Asks the context worker for a plan.
async fn ask(work: &Work<'_>, fixed: &Fixed) -> Result<Plan, Fault> {
    let rooms = &work.harness.shared.rooms;
    if rooms.is_deaf() {
        return Err(Fault::busy(
            "mesh.timeout",
            "the context worker gave no answer a moment ago",
        ));
    }
    let state = work.draft.state();
    let request = AssembleRequest {
        history: History::Session {
            session_id: work.session.clone(),
            upto: Some(state.n),
        },
        model: fixed.model.clone(),
        system_prompt: Some(fixed.system_prompt.clone()),
        functions_bytes: fixed.tools_bytes,
        max_output_tokens: fixed.output,
        plan_only: true,
    };
    let invalid = |error: &dyn std::fmt::Display| Fault::internal("context.bad_reply", error);
    let function = FunctionId::parse("context::assemble").map_err(|error| invalid(&error))?;
    let body = serde_json::to_vec(&request).map_err(|error| invalid(&error))?;
    let generation = state
        .turn
        .as_ref()
        .and_then(|turn| turn.generation.as_ref());
    let call = Call {
        timeout: limits::CONTEXT_WAIT,
        trace: work.trace(generation.map(|open| open.request.as_str())),
        ..Call::new(function, body)
    };
    let reply = work.harness.mesh.call(call).await;
    let is_silent = reply.as_ref().is_err_and(|fault| {
        matches!(
            fault.code.as_str(),
            "mesh.timeout" | "mesh.callee_lost" | "context.not_yet"
        )
    });
    rooms.heard(is_silent);
    let reply: AssembleReply = serde_json::from_slice(&reply?).map_err(|error| invalid(&error))?;
    Ok(reply.plan)
}

/// The end of the raw history that fits into what is configured, masked as far as the log says so. After a refusal the
/// request is fitted here: the log says how often it was too large.
fn raw(work: &Work<'_>, mut fixed: Fixed) -> Result<Prepared, CompletionError> {
    let state = work.draft.state();
    let bytes_max = work.settings().turn.history_bytes;
    let mut plan = None;
    let messages = if state.refused() == 0 {
        context::apply(&state.history(), &BTreeSet::new(), limits::RESULT_BYTES_MAX)
    } else {
        let ask = Ask {
            window: Window::open(),
            system_prompt: context::of_text(&fixed.system_prompt),
            functions: context::of_bytes(fixed.tools_bytes),
            per_mille: state.per_mille(&fixed.model),
            refused: state.refused(),
        };
        let made =
            context::plan(&state.history(), &ask).map_err(|full| overflow(&work.session, &full))?;
        fixed.output = fixed.halved(state.refused());
        let messages = applied(state, &made);
        plan = Some(made);
        messages
    };
    let Some(window) = history::window(&messages, bytes_max) else {
        return Err(overflow(
            &work.session,
            &"this turn's messages alone are larger than the history that may be sent to a model",
        ));
    };
    let window = window.to_vec();
    let estimated = fixed.with(&window);
    Ok(fixed.prepared(window, estimated, plan))
}

fn overflow(session: &SessionId, why: &dyn std::fmt::Display) -> CompletionError {
    let session = text::operand(session.as_str());
    CompletionError {
        kind: ErrorKind::ContextOverflow,
        message: why.to_string(),
        hint: Some(format!(
            "go on from an earlier point: `teamster sessions fork --at COMMIT {session}` (`teamster sessions tail --after 0 \
             {session}` shows the numbers); or take a model with a larger window: `--model PROVIDER/NAME`"
        )),
    }
}
