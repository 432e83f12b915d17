//! `session::append`: adds messages to a transcript.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{AppendRequest, ChangeReply},
    id::ParseError,
    input::{self, AdminAction},
};

use crate::admin::{self, Change};

/// The function.
pub(super) fn function() -> Result<Function, ParseError> {
    let contract = super::change::<AppendRequest, ChangeReply>(
        "session::append",
        "Adds messages to a transcript, between steps of a turn that runs. They begin no turn.",
        Class::Write,
    )?;
    Ok(Function::new(contract, append))
}

async fn append(ctx: Ctx, request: AppendRequest) -> Result<ChangeReply, Fault> {
    let by = admin::principal(&ctx)?;
    if let Some(fault) = input::appended_fault(&request.messages) {
        return Err(admin::invalid(fault));
    }
    let key = admin::key(&ctx, "append", request.key.as_deref())?;
    admin::must_exist(&ctx, &request.session_id).await?;
    let change = Change {
        ctx: &ctx,
        session: &request.session_id,
        by,
        key,
    };
    let action = AdminAction::Append {
        messages: request.messages,
    };
    super::changed(&change, action).await
}
