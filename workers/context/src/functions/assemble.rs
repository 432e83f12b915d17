//! `context::assemble`: what a model may see of a history.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use teamster_core::context::{self, Ask, History as Held};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Fault, Message, Visibility,
    function::context::{AssembleReply, AssembleRequest, History},
    id::ParseError,
};

use crate::{Context, error};

/// The function.
pub(crate) fn function(context: &Arc<Context>) -> Result<Function, ParseError> {
    let contract = super::contract::<AssembleRequest, AssembleReply>(
        "context::assemble",
        "Fits a history into a model's window: says which results are left out and where results are cut, and gives the \
         messages.",
        Visibility::Worker,
    )?;
    let context = Arc::clone(context);
    Ok(Function::new(contract, move |ctx, request| {
        let context = Arc::clone(&context);
        // Boxed: it holds a folded session.
        async move { Box::pin(assemble(&context, &ctx, &request)).await }
    }))
}

async fn assemble(
    context: &Context,
    ctx: &Ctx,
    request: &AssembleRequest,
) -> Result<AssembleReply, Fault> {
    let (session, upto) = match &request.history {
        History::Inline { messages } => return inline(context, ctx, request, messages).await,
        History::Session { session_id, upto } => (session_id, *upto),
    };
    let until = super::until(ctx);
    let (held, window) = tokio::join!(
        context.sessions.at(&ctx.mesh, session, upto, until),
        context
            .windows
            .of(&ctx.mesh, &request.model, request.max_output_tokens),
    );
    let held = held?;
    let state = held.state();
    let ask = Ask {
        window,
        per_mille: state.per_mille(&request.model),
        refused: state.refused(),
        ..fixed(request, window)
    };
    let reply = answer(&state.history(), &ask, request);
    context.sessions.keep(held);
    reply
}

async fn inline(
    context: &Context,
    ctx: &Ctx,
    request: &AssembleRequest,
    messages: &[Message],
) -> Result<AssembleReply, Fault> {
    let window = context
        .windows
        .of(&ctx.mesh, &request.model, request.max_output_tokens)
        .await;
    let history = Held {
        messages,
        masked: &BTreeSet::new(),
        stored: &BTreeMap::new(),
        is_readable: false,
    };
    answer(&history, &fixed(request, window), request)
}

/// What is asked for besides the history.
fn fixed(request: &AssembleRequest, window: context::Window) -> Ask {
    Ask {
        window,
        system_prompt: request.system_prompt.as_deref().map_or(0, context::of_text),
        functions: context::of_bytes(request.functions_bytes),
        per_mille: 1000,
        refused: 0,
    }
}

fn answer(
    history: &Held<'_>,
    ask: &Ask,
    request: &AssembleRequest,
) -> Result<AssembleReply, Fault> {
    let plan = context::plan(history, ask)
        .map_err(|overflow| error::overflow(&request.model, &overflow))?;
    let messages = (!request.plan_only).then(|| {
        let mask = plan.mask.iter().cloned().collect();
        let cap = usize::try_from(plan.result_bytes_max).unwrap_or(usize::MAX);
        context::apply(history, &mask, cap)
    });
    Ok(AssembleReply { plan, messages })
}
