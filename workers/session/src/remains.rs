//! The task that removes what remains of deleted sessions beside their logs: their notices in EVENTS, and what the projection's file
//! held of them before.
//!
//! What it has to do follows from the tombstones that the projection knows, so that whoever dies in the middle leaves nothing undone:
//! the next one looks through those of the time for which notices are kept. The notice of the deletion stays, for consumers that were
//! away.
//!
//! Never: a notice of the session that has the name now.

use std::collections::HashSet;

use rusqlite::{Connection, params};
use teamster_mesh::{Error, Mesh};
use teamster_protocol::{SessionId, limits};
use tokio_util::sync::CancellationToken;

use crate::{
    error::StoreError,
    projection::Projection,
    store::{number, unsigned},
    values::now_ms,
};

/// Tombstones that one look regards, the newest first.
const TOMBSTONES_MAX: i64 = 10_000;

/// A deletion: whose, and by which commit.
type Deletion = (SessionId, u64);

#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("the broker does not do its part")]
    Mesh(#[from] Error),
    #[error("the projection does not do its part")]
    Store(#[from] StoreError),
}

/// Looks at the start, whenever a session was deleted, and now and then, until cancelled.
pub(crate) async fn run(mesh: &Mesh, projection: &Projection, cancel: &CancellationToken) {
    let mut done: HashSet<Deletion> = HashSet::new();
    loop {
        let wait = match look(mesh, projection, &mut done).await {
            Ok(()) => limits::VALUES_SWEEP_EVERY,
            Err(stop) => {
                tracing::warn!(
                    error = %teamster_telemetry::chain(&stop),
                    "what remains of a deleted session is removed later"
                );
                limits::VALUES_SWEEP_RETRY
            }
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = projection.remains().notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn look(
    mesh: &Mesh,
    projection: &Projection,
    done: &mut HashSet<Deletion>,
) -> Result<(), Stop> {
    let store = projection.store();
    let known = store
        .run(|db| deletions(db.connection()?, now_ms()))
        .await?;
    done.retain(|deletion| known.contains(deletion));
    let new: Vec<Deletion> = known
        .into_iter()
        .filter(|deletion| !done.contains(deletion))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    store.run(|db| forget(db.connection()?)).await?;
    for (session, n) in new {
        // Not yet: whoever stores the notice of the deletion tells.
        if let Some(erased) = mesh.notices().erase_before(&session, n).await? {
            if erased > 0 {
                tracing::info!(%session, erased, "the notices of a deleted session were erased");
            }
            done.insert((session, n));
        }
    }
    Ok(())
}

/// Deletions of which there may be notices still.
fn deletions(connection: &Connection, now_ms: u64) -> Result<Vec<Deletion>, StoreError> {
    let kept_ms = u64::try_from(limits::NOTICES_KEPT.as_millis()).unwrap_or(u64::MAX);
    let mut statement = connection.prepare_cached(
        "SELECT session.name, n FROM tombstone JOIN session ON session.id = tombstone.session
         WHERE at_ms >= ?1 ORDER BY at_ms DESC LIMIT ?2",
    )?;
    let mut rows = statement.query(params![
        number(now_ms.saturating_sub(kept_ms)),
        TOMBSTONES_MAX
    ])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let session = SessionId::parse(row.get::<_, String>(0)?).ok();
        let n = unsigned(row.get(1)?);
        found.extend(session.map(|session| (session, n)));
    }
    Ok(found)
}

/// Empties what lies beside the file and holds its pages as they were. Where another process reads just then, the next look does it,
/// or whoever closes the file.
fn forget(connection: &Connection) -> Result<(), StoreError> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
