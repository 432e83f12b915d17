//! `context::assemble`: what a model may see of a history.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use teamster_core::context::{self, Ask, History as Held, Overflow};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Contract, Fault, Message, Visibility,
    function::context::{AssembleReply, AssembleRequest, History},
    id::ParseError,
};

use crate::{Context, earlier, error};

/// The function.
pub(crate) fn function(context: &Arc<Context>) -> Result<Function, ParseError> {
    let contract = Contract::of_house::<AssembleRequest, AssembleReply>(
        "context::assemble",
        "Fits a history into a model's window: says which results are left out and where results are cut, and gives the \
         messages.",
        Class::Read,
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
    let made = plan(&state.history(), &ask, request);
    let per_mille = ask.per_mille.max(1);
    context.sessions.keep(held);
    let full = match made {
        Ok(reply) => return Ok(reply),
        Err(full) => full,
    };
    // Half of the room, so that what is begun there does not end the same way at once.
    let words_max = (full.room() / 2).saturating_mul(1000) / per_mille;
    let earlier = earlier::commit(&ctx.mesh, session, words_max, until).await;
    let known = Some((session, earlier));
    Err(error::overflow(known, &request.model, &full))
}

async fn inline(
    context: &Context,
    ctx: &Ctx,
    request: &AssembleRequest,
    messages: &[Arc<Message>],
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
    plan(&history, &fixed(request, window), request)
        .map_err(|full| error::overflow(None, &request.model, &full))
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

fn plan(
    history: &Held<'_>,
    ask: &Ask,
    request: &AssembleRequest,
) -> Result<AssembleReply, Overflow> {
    let plan = context::plan(history, ask)?;
    let messages = (!request.plan_only).then(|| {
        let mask = plan.mask.iter().cloned().collect();
        let cap = usize::try_from(plan.result_bytes_max).unwrap_or(usize::MAX);
        context::apply(history, &mask, cap)
    });
    Ok(AssembleReply { plan, messages })
}
