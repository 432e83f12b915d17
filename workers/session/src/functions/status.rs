//! `session::status`: how far the projection is.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{Class, Fault, function::session::StatusReply, id::ParseError};

use crate::{
    account::DELETED,
    error::StoreError,
    projection::{Projection, place},
    store::{Db, unsigned},
};

/// Nothing is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Request {}

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<Request, StatusReply>(
        "session::status",
        "Says how far the projection of the log is.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, _: Request| {
        status(Arc::clone(&projection), ctx)
    }))
}

/// Answers whatever the projection holds, and says how much that is.
async fn status(projection: Arc<Projection>, ctx: Ctx) -> Result<StatusReply, Fault> {
    let ends = ctx.mesh.log().ends().await?;
    let progress = *projection.store().progress().borrow();
    let mut behind = 0;
    for (k, end) in (0..).zip(&ends) {
        let at = place(&progress, k);
        // What was last in a stream may be gone.
        if at < end.last && ctx.mesh.log().look_at(k, at).await?.1 {
            behind += end.last - at;
        }
    }
    let (sessions, commits, file_bytes) = projection.store().run(|db| count(db)).await?;
    Ok(StatusReply {
        sessions,
        commits,
        behind,
        file_bytes,
    })
}

fn count(db: &Db) -> Result<(u64, u64, u64), StoreError> {
    let connection = db.connection()?;
    let one = |statement: &str, status: &[&str]| -> Result<u64, StoreError> {
        let found: i64 = connection
            .prepare_cached(statement)?
            .query_row(rusqlite::params_from_iter(status), |row| row.get(0))?;
        Ok(unsigned(found))
    };
    Ok((
        one(
            "SELECT count(*) FROM session WHERE status <> ?1",
            &[DELETED],
        )?,
        one("SELECT count(*) FROM place", &[])?,
        db.opened()?.bytes()?,
    ))
}
