//! `router::abort`: ends a generation, whichever router runs it.

use std::sync::Arc;

use teamster_mesh::Function;
use teamster_protocol::{
    Class, Contract, Data, FunctionId, Trust, Visibility,
    function::router::{AbortReply, AbortRequest},
    id::ParseError,
};

use crate::run::Router;

pub(crate) fn function(router: &Arc<Router>) -> Result<Function, ParseError> {
    let contract = Contract {
        class: Class::Write,
        data: Data::Public,
        trust: Trust::Trusted,
        idempotent: true,
        visibility: Visibility::Worker,
        ..Contract::new::<AbortRequest, AbortReply>(
            FunctionId::parse("router::abort")?,
            "Ends a running generation. Its completion says that it was aborted and holds what was said until then.",
        )
    };
    let router = Arc::clone(router);
    Ok(Function::new(
        contract,
        move |ctx, request: AbortRequest| {
            let router = Arc::clone(&router);
            async move { router.abort(&ctx.mesh, &request.request_id).await }
        },
    ))
}
