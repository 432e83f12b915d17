//! `router::chat`: one generation, with deltas on the session's LIVE subject.

use std::sync::Arc;

use teamster_mesh::Function;
use teamster_protocol::{
    function::router::{ChatRequest, Completion},
    id::ParseError,
};

use crate::run::Router;

pub(crate) fn function(router: &Arc<Router>) -> Result<Function, ParseError> {
    let contract = super::generation::<ChatRequest, Completion>(
        "router::chat",
        "Generates one answer with a model. The same request id is answered from what is kept, joined while it runs, or \
         started again. What is said meanwhile goes to the session's live subject.",
    )?;
    let router = Arc::clone(router);
    Ok(Function::near(
        contract,
        move |ctx, request: ChatRequest| Arc::clone(&router).answer(ctx, request),
    ))
}
