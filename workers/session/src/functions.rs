//! The functions of the worker, one file each.

mod append;
mod approvals;
mod cost;
mod create;
mod delete;
mod ensure;
mod events;
mod fork;
mod get;
mod list;
mod messages;
mod page;
mod search;
mod set_meta;
mod status;

use std::sync::Arc;

use teamster_mesh::Function;
use teamster_protocol::{
    Class, Contract, Fault, Visibility, function::session::ChangeReply, id::ParseError,
    input::AdminAction,
};

use crate::{
    admin::{Change, Outcome},
    projection::Projection,
};

pub(crate) use get::unknown;

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
        create::function()?,
        ensure::function()?,
        append::function()?,
        set_meta::function()?,
        fork::function()?,
        delete::function()?,
    ])
}

/// Administers, and says which commit took the change.
async fn changed(change: &Change<'_>, action: AdminAction) -> Result<ChangeReply, Fault> {
    let commit = match change.submit(action).await? {
        Outcome::Taken(commit) => Some(commit),
        Outcome::Stored => None,
        Outcome::Dropped(why) => return Err(change.refused(why)),
    };
    Ok(ChangeReply {
        session_id: change.session.clone(),
        commit,
    })
}

/// The contract of a function that changes sessions.
fn change<Request, Reply>(id: &str, description: &str, class: Class) -> Result<Contract, ParseError>
where
    Request: schemars::JsonSchema,
    Reply: schemars::JsonSchema,
{
    let mut contract = contract::<Request, Reply>(id, description, class)?;
    contract.timeout_ms = Some(30_000);
    Ok(contract)
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
    Contract::of_house::<Request, Reply>(id, description, class, Visibility::Operator)
}
