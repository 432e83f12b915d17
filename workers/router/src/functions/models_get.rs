//! `router::models::get`: one model.

use std::{future::ready, sync::Arc};

use teamster_mesh::Function;
use teamster_protocol::{
    Fault,
    function::router::{Model, ModelsGetRequest, UNKNOWN_MODEL},
    id::ParseError,
};

use crate::run::Router;

pub(crate) fn function(router: &Arc<Router>) -> Result<Function, ParseError> {
    let contract = super::catalogue::<ModelsGetRequest, Model>(
        "router::models::get",
        "Says what is known about one model. A model of a configured provider need not be listed.",
    )?;
    let router = Arc::clone(router);
    Ok(Function::new(
        contract,
        move |_, request: ModelsGetRequest| {
            let model = router.engine.load().model(&request.model).map_err(|error| {
                let fault = Fault::caller(UNKNOWN_MODEL, error.message);
                match error.hint {
                    Some(hint) => fault.hint(hint),
                    None => fault,
                }
            });
            ready(model)
        },
    ))
}
