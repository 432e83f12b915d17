//! `approval::explain`: how a call would be judged now, by what enforces.

use std::{sync::Arc, time::Duration};

use teamster_core::schema;
use teamster_mesh::{Ctx, Function, Mesh};
use teamster_protocol::{
    Class, Contract, Fault, FunctionId, Visibility,
    function::approval::{ExplainReply, ExplainRequest},
    id::ParseError,
};

use crate::Gate;

/// How long a function that is not served is waited for: its worker may just be starting.
const SERVED_WAIT: Duration = Duration::from_secs(2);

/// The function.
pub(super) fn function(gate: &Arc<Gate>) -> Result<Function, ParseError> {
    let contract = Contract::of_house::<ExplainRequest, ExplainReply>(
        "approval::explain",
        "Says how the policy would judge a call now, and by which rule.",
        Class::Read,
        Visibility::Operator,
    )?;
    let gate = Arc::clone(gate);
    Ok(Function::new(contract, move |ctx, request| {
        explain(Arc::clone(&gate), ctx, request)
    }))
}

async fn explain(
    gate: Arc<Gate>,
    ctx: Ctx,
    request: ExplainRequest,
) -> Result<ExplainReply, Fault> {
    let contract = served(&ctx.mesh, &request.function).await?.ok_or_else(|| {
        Fault::gone(
            "approval.unknown_function",
            format_args!("nobody serves the function {}", request.function),
        )
        .hint("`teamster functions ls` lists what is served.")
    })?;
    let note = gate.policies.note();
    Ok(ExplainReply {
        judgement: gate
            .policies
            .judge(&contract, &request.arguments, request.workspace.as_deref()),
        invalid: schema::violation(&contract, &request.arguments).map(|found| found.to_string()),
        file_gone: note.as_ref().is_some_and(|note| note.is_gone),
        note: note.map(|note| note.text),
    })
}

/// The contract of a function as the registry has it now.
pub(super) async fn served(
    mesh: &Mesh,
    function: &FunctionId,
) -> Result<Option<Arc<Contract>>, Fault> {
    let catalog = mesh
        .registry()
        .await?
        .wait(SERVED_WAIT, |catalog| {
            catalog.functions.contains_key(function)
        })
        .await;
    Ok(catalog
        .functions
        .get(function)
        .map(|(contract, _)| Arc::clone(contract)))
}
