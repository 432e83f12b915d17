//! `session::set-meta`: changes title or metadata.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{ChangeReply, SetMetaRequest},
    id::ParseError,
    input::{self, AdminAction},
};

use crate::admin::{self, Change};

/// The function.
pub(super) fn function() -> Result<Function, ParseError> {
    let contract = super::change::<SetMetaRequest, ChangeReply>(
        "session::set-meta",
        "Changes the title or the metadata of a session, also while it waits for a person.",
        Class::Write,
    )?;
    Ok(Function::new(contract, set_meta))
}

async fn set_meta(ctx: Ctx, request: SetMetaRequest) -> Result<ChangeReply, Fault> {
    let by = admin::principal(&ctx)?;
    let SetMetaRequest {
        session_id,
        title,
        metadata,
    } = request;
    if title.is_none() && metadata.is_empty() {
        return Err(admin::invalid("there is nothing to change".to_owned()));
    }
    let notes = metadata.iter().map(|(name, value)| (name, value.as_ref()));
    let fault = input::title_fault(title.as_deref()).or_else(|| input::metadata_fault(notes));
    if let Some(fault) = fault {
        return Err(admin::invalid(fault));
    }
    admin::must_exist(&ctx, &session_id).await?;
    let change = Change {
        ctx: &ctx,
        session: &session_id,
        by,
        key: admin::key(&ctx, "set-meta", None)?,
    };
    super::changed(&change, AdminAction::SetMeta { title, metadata }).await
}
