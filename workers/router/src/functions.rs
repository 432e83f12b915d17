//! The functions that the router serves, one file each.

use std::sync::Arc;

use schemars::JsonSchema;
use teamster_mesh::Function;
use teamster_protocol::{Class, Contract, Data, FunctionId, Trust, Visibility, id::ParseError};

use crate::run::Router;

mod abort;
mod chat;
mod complete;
mod models_get;
mod models_list;

/// All functions.
pub(crate) fn all(router: &Arc<Router>) -> Result<Vec<Function>, ParseError> {
    Ok(vec![
        chat::function(router)?,
        complete::function(router)?,
        abort::function(router)?,
        models_list::function(router)?,
        models_get::function(router)?,
    ])
}

/// The contract of a generation: what is said leaves the owner's systems, and what comes back was written by a model.
fn generation<Request: JsonSchema, Reply: JsonSchema>(
    id: &str,
    description: &str,
) -> Result<Contract, ParseError> {
    Ok(Contract {
        class: Class::Egress,
        data: Data::Personal,
        trust: Trust::Untrusted,
        target: Some("/model".to_owned()),
        idempotent: true,
        timeout_ms: u64::try_from(teamster_protocol::limits::GENERATION_MAX.as_millis()).ok(),
        visibility: Visibility::Worker,
        ..Contract::new::<Request, Reply>(FunctionId::parse(id)?, description)
    })
}

/// The contract of a look into the catalogue.
fn catalogue<Request: JsonSchema, Reply: JsonSchema>(
    id: &str,
    description: &str,
) -> Result<Contract, ParseError> {
    Ok(Contract {
        class: Class::Read,
        data: Data::Business,
        trust: Trust::Trusted,
        idempotent: true,
        visibility: Visibility::Worker,
        ..Contract::new::<Request, Reply>(FunctionId::parse(id)?, description)
    })
}
