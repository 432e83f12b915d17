//! `session::delete`: deletes a session for good.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{ChangeReply, DeleteRequest},
    id::ParseError,
    input::AdminAction,
};

use crate::admin::{self, Change, Outcome};

/// The function.
pub(super) fn function() -> Result<Function, ParseError> {
    let contract = super::change::<DeleteRequest, ChangeReply>(
        "session::delete",
        "Deletes a session for good: its turn ends, its queue, transcript, events and results are gone. Decisions stay as digests.",
        Class::Destructive,
    )?;
    Ok(Function::new(contract, delete))
}

async fn delete(ctx: Ctx, request: DeleteRequest) -> Result<ChangeReply, Fault> {
    let by = admin::principal(&ctx)?;
    if !request.confirm {
        return Err(Fault::caller(
            "session.confirm_delete",
            format_args!(
                "{} is deleted for good, so that it must be confirmed",
                request.session_id
            ),
        )
        .hint("Look at what is in it first; then ask again with `confirm`."));
    }
    let change = Change {
        ctx: &ctx,
        session: &request.session_id,
        by,
        key: admin::key(&ctx, "delete", None)?,
    };
    if !admin::is_there(&ctx, change.session).await? {
        // A repeated call finds the session gone by its own hand.
        return match change.before().await? {
            Some(Outcome::Taken(commit)) => Ok(ChangeReply {
                commit: Some(commit),
                session_id: request.session_id,
            }),
            _ => Err(super::unknown(&request.session_id)),
        };
    }
    admin::must_be_sound(&ctx, change.session).await?;
    super::changed(&change, AdminAction::Delete).await
}
