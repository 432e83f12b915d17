//! `router::complete`: one generation without deltas.

use std::sync::Arc;

use teamster_mesh::Function;
use teamster_protocol::{
    function::router::{ChatRequest, Completion},
    id::ParseError,
};

use crate::run::Router;

pub(crate) fn function(router: &Arc<Router>) -> Result<Function, ParseError> {
    let contract = super::generation::<ChatRequest, Completion>(
        "router::complete",
        "Generates one answer with a model, as router::chat does, but sends nothing before it is whole.",
    )?;
    let router = Arc::clone(router);
    Ok(Function::new(contract, move |ctx, request: ChatRequest| {
        let silent = ChatRequest {
            session_id: None,
            ..request
        };
        Arc::clone(&router).answer(ctx, silent)
    }))
}
