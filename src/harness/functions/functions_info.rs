//! `engine::functions::info`: one function's contract.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Fault,
    function::engine::{InfoReply, InfoRequest},
    id::ParseError,
};

use super::{discovery, functions_list::visible};

pub(super) fn function() -> Result<Function, ParseError> {
    let contract = discovery::<InfoRequest, InfoReply>(
        "engine::functions::info",
        "Shows a function's contract: what it does, and the schemas of its arguments and of its answer.",
    )?;
    Ok(Function::new(contract, info))
}

async fn info(ctx: Ctx, request: InfoRequest) -> Result<InfoReply, Fault> {
    let catalog = ctx.mesh.registry().await?.catalog();
    let may_see = visible(&ctx);
    let found = catalog
        .functions
        .get(&request.function_id)
        .filter(|(contract, _)| may_see(contract));
    let Some((contract, worker)) = found else {
        return Err(Fault::gone(
            "engine.function_not_found",
            format_args!(
                "there is no function {} that you may call",
                request.function_id
            ),
        )
        .hint("list what there is with engine::functions::list"));
    };
    Ok(InfoReply {
        contract: (**contract).clone(),
        worker: worker.clone(),
    })
}
