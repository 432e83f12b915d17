//! The functions of the worker, one file each.

mod approvals;
mod cost;
mod events;
mod get;
mod list;
mod messages;
mod search;
mod status;

use std::sync::Arc;

use teamster_mesh::Function;
use teamster_protocol::{Class, Contract, Data, FunctionId, Trust, Visibility, id::ParseError};

use crate::projection::Projection;

/// All functions.
pub(crate) fn all(projection: &Arc<Projection>) -> Result<Vec<Function>, ParseError> {
    Ok(vec![
        get::function(projection)?,
        list::function(projection)?,
        messages::function(projection)?,
        events::function(projection)?,
        search::function(projection)?,
        cost::function(projection)?,
        approvals::function(projection)?,
        status::function(projection)?,
    ])
}

/// The contract of a function of this worker.
fn contract<Request, Reply>(
    id: &str,
    description: &str,
    class: Class,
) -> Result<Contract, ParseError>
where
    Request: schemars::JsonSchema,
    Reply: schemars::JsonSchema,
{
    let mut contract = Contract::new::<Request, Reply>(FunctionId::parse(id)?, description);
    contract.class = class;
    contract.visibility = Visibility::Operator;
    // Transcripts are the owner's, and a model and functions wrote them.
    contract.data = Data::Personal;
    contract.trust = Trust::Untrusted;
    contract.idempotent = true;
    Ok(contract)
}
