//! `engine::functions::list`: what the caller may call.

use teamster_core::turn::call::Allowed;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Contract, Fault, Visibility,
    function::engine::{Entry, ListReply, ListRequest},
    id::ParseError,
};

use super::discovery;

/// Entries of one answer.
const ENTRIES_MAX: usize = 200;

pub(super) fn function() -> Result<Function, ParseError> {
    let contract = discovery::<ListRequest, ListReply>(
        "engine::functions::list",
        "Lists the functions that you may call, by prefix, worker or a word. Ask engine::functions::info for arguments.",
    )?;
    Ok(Function::new(contract, list))
}

async fn list(ctx: Ctx, request: ListRequest) -> Result<ListReply, Fault> {
    let catalog = ctx.mesh.registry().await?.catalog();
    let may_see = visible(&ctx);
    let word = request.search.as_deref().map(str::to_lowercase);
    let functions = catalog
        .functions
        .values()
        .filter(|(contract, _)| may_see(contract))
        .filter(|(contract, _)| {
            request
                .prefix
                .as_ref()
                .is_none_or(|prefix| contract.id.as_str().starts_with(prefix))
        })
        .filter(|(_, worker)| {
            request
                .worker
                .as_ref()
                .is_none_or(|wanted| wanted == worker)
        })
        .filter(|(contract, _)| {
            word.as_ref().is_none_or(|word| {
                contract.id.as_str().contains(word)
                    || contract.description.to_lowercase().contains(word)
            })
        })
        .take(ENTRIES_MAX)
        .map(|(contract, worker)| Entry {
            function_id: contract.id.clone(),
            description: contract.description.clone(),
            class: contract.class,
            worker: worker.clone(),
        })
        .collect();
    Ok(ListReply { functions })
}

/// What the caller may see. A turn sees what its policy allows; a caller outside of any session, which no model is, sees all.
pub(super) fn visible(ctx: &Ctx) -> impl Fn(&Contract) -> bool + use<> {
    let allowed = ctx
        .session
        .is_some()
        .then(|| Allowed::compile(ctx.functions.as_ref()));
    move |contract| match &allowed {
        Some(allowed) => contract.visibility == Visibility::Agent && allowed.offers(contract),
        None => true,
    }
}
