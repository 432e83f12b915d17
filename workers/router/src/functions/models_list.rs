//! `router::models::list`: the models that are known.

use std::{future::ready, sync::Arc};

use teamster_mesh::Function;
use teamster_protocol::{
    function::router::{ModelsListReply, ModelsListRequest},
    id::ParseError,
};

use crate::run::Router;

pub(crate) fn function(router: &Arc<Router>) -> Result<Function, ParseError> {
    let contract = super::catalogue::<ModelsListRequest, ModelsListReply>(
        "router::models::list",
        "Lists the models that are known, with windows and prices where these are known. A provider may have more.",
    )?;
    let router = Arc::clone(router);
    Ok(Function::new(
        contract,
        move |_, request: ModelsListRequest| {
            let models = router.engine.load().models(request.provider.as_deref());
            ready(Ok(ModelsListReply { models }))
        },
    ))
}
