//! `session::approvals`: requests for a person's decision, and what became of them.

use std::sync::Arc;

use rusqlite::params;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{ApprovalsReply, ApprovalsRequest},
    id::ParseError,
    limits,
};

use crate::{
    error::StoreError,
    projection::{About, Projection},
    store::{Db, number},
};

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<ApprovalsRequest, ApprovalsReply>(
        "session::approvals",
        "Lists requests for a person's decision with what became of them, newest first: as many as were asked for and as one \
         reply can hold. Those of deleted sessions are left as digests.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, request| {
        approvals(Arc::clone(&projection), ctx, request)
    }))
}

async fn approvals(
    projection: Arc<Projection>,
    ctx: Ctx,
    request: ApprovalsRequest,
) -> Result<ApprovalsReply, Fault> {
    let session = request.session_id.clone();
    let about = session.as_ref().map_or(About::All, About::Session);
    projection
        .ask(&ctx, about, move |db| newest(db, &request))
        .await
}

fn newest(db: &Db, request: &ApprovalsRequest) -> Result<ApprovalsReply, StoreError> {
    let asked = request
        .limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(limits::APPROVALS_HISTORY_DEFAULT);
    let count = asked.clamp(1, limits::APPROVALS_LISTED_MAX) as u64;
    let name = request.session_id.as_ref().map(|id| id.as_str().to_owned());
    let mut statement = db.connection()?.prepare_cached(
        "SELECT entry FROM approval
         WHERE ?1 IS NULL OR session = (SELECT id FROM session WHERE name = ?1)
         ORDER BY requested_at_ms DESC, approval.id DESC LIMIT ?2",
    )?;
    let mut rows = statement.query(params![name, number(count)])?;
    let mut entries = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let entry: String = row.get(0)?;
        bytes += entry.len();
        if bytes > limits::LISTING_BYTES_MAX && !entries.is_empty() {
            break;
        }
        entries.push(serde_json::from_str(&entry)?);
    }
    Ok(ApprovalsReply { entries })
}
