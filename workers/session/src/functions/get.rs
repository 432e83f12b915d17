//! `session::get`: one session in short.

use std::sync::Arc;

use rusqlite::OptionalExtension as _;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault, SessionId,
    function::session::{GetRequest, SessionInfo},
    id::ParseError,
};

use crate::{
    account::DELETED,
    error::StoreError,
    projection::{About, Projection},
    store::Db,
};

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<GetRequest, SessionInfo>(
        "session::get",
        "Shows one session in short.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, request| {
        get(Arc::clone(&projection), ctx, request)
    }))
}

async fn get(
    projection: Arc<Projection>,
    ctx: Ctx,
    request: GetRequest,
) -> Result<SessionInfo, Fault> {
    let session = request.session_id.clone();
    let found = projection
        .ask(&ctx, About::Session(&request.session_id), move |db| {
            find(db, &session)
        })
        .await?;
    found
        .map(|(_, info)| info)
        .ok_or_else(|| unknown(&request.session_id))
}

/// A session and the number of its row; `None` for one that is not there or was deleted.
pub(super) fn find(db: &Db, session: &SessionId) -> Result<Option<(i64, SessionInfo)>, StoreError> {
    let found: Option<(i64, String)> = db
        .connection()?
        .prepare_cached("SELECT id, info FROM session WHERE name = ?1 AND status <> ?2")?
        .query_row([session.as_str(), DELETED], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    found
        .map(|(id, info)| Ok((id, serde_json::from_str(&info)?)))
        .transpose()
}

/// There is no such session.
pub(crate) fn unknown(session: &SessionId) -> Fault {
    Fault::gone(
        "session.not_found",
        format_args!("there is no session {session}"),
    )
    .hint("`teamster sessions ls` lists what there is.")
}
