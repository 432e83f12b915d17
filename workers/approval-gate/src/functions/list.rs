//! `approval::list`: what waits for a person.

use std::sync::Arc;

use teamster_mesh::Function;
use teamster_protocol::{
    Class, Contract, Visibility,
    function::approval::{ListReply, ListRequest},
    id::ParseError,
};

use crate::Gate;

/// The function.
pub(super) fn function(gate: &Arc<Gate>) -> Result<Function, ParseError> {
    let contract = Contract::of_house::<ListRequest, ListReply>(
        "approval::list",
        "Lists the calls that wait for a person's decision, oldest first, as many as one reply can hold.",
        Class::Read,
        Visibility::Operator,
    )?;
    let gate = Arc::clone(gate);
    Ok(Function::new(contract, move |_, request: ListRequest| {
        let pending = gate
            .inbox
            .list(request.session_id.as_ref(), crate::now_ms());
        let damaged = gate.inbox.damaged(request.session_id.as_ref());
        async { Ok(ListReply { pending, damaged }) }
    }))
}
