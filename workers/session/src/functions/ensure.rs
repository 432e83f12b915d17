//! `session::ensure`: begins a session, or takes one that is there.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{CreateReply, CreateRequest},
    id::ParseError,
};

use crate::admin;

/// The function.
pub(super) fn function() -> Result<Function, ParseError> {
    let contract = super::change::<CreateRequest, CreateReply>(
        "session::ensure",
        "Begins a session that waits for its first message, or takes the one that is there, as it is.",
        Class::Write,
    )?;
    Ok(Function::new(contract, ensure))
}

async fn ensure(ctx: Ctx, request: CreateRequest) -> Result<CreateReply, Fault> {
    admin::principal(&ctx)?;
    let wanted = request.session_id.clone();
    if let Some(session_id) = &wanted
        && admin::is_there(&ctx, session_id).await?
    {
        return Ok(CreateReply {
            session_id: session_id.clone(),
            created: false,
        });
    }
    match (super::create::begin(&ctx, request, "ensure").await, wanted) {
        // Somebody was faster.
        (Err(fault), Some(session_id)) if fault.code == "session.exists" => Ok(CreateReply {
            session_id,
            created: false,
        }),
        (reply, _) => reply,
    }
}
