//! `session::create`: begins a session, and refuses one that is there.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{CreateReply, CreateRequest},
    id::ParseError,
    input::AdminAction,
};

use crate::admin::{self, Change, Outcome};

/// The function.
pub(super) fn function() -> Result<Function, ParseError> {
    let contract = super::change::<CreateRequest, CreateReply>(
        "session::create",
        "Begins a session that waits for its first message. One that is there is refused.",
        Class::Write,
    )?;
    Ok(Function::new(contract, create))
}

async fn create(ctx: Ctx, request: CreateRequest) -> Result<CreateReply, Fault> {
    begin(&ctx, request, "create").await
}

/// Begins a session; the answer says that it was created, or the fault `session.exists` that it was not.
pub(super) async fn begin(
    ctx: &Ctx,
    request: CreateRequest,
    verb: &str,
) -> Result<CreateReply, Fault> {
    let by = admin::principal(ctx)?;
    if let Some(fault) = request.session.fault() {
        return Err(admin::invalid(fault));
    }
    let session_id = request
        .session_id
        .unwrap_or_else(|| admin::made_up(ctx, &by));
    let change = Change {
        ctx,
        session: &session_id,
        by,
        key: admin::key(ctx, verb, None)?,
    };
    let action = AdminAction::Create {
        session: request.session,
    };
    match change.submit(action).await? {
        Outcome::Taken(_) => Ok(CreateReply {
            created: true,
            session_id,
        }),
        Outcome::Dropped(why) => Err(change.refused(why)),
        Outcome::Stored => Err(Fault::busy(
            "session.not_committed_yet",
            format_args!("that {session_id} begins is stored and will be done, but no harness has committed it yet"),
        )
        .hint("Start a harness, for example with `teamster up`; `teamster sessions show` says when the session is there.")),
    }
}
