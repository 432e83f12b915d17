//! The rows of commits: places, messages, generations, and the session itself.

use rusqlite::{Connection, params};
use teamster_core::turn::spent;
use teamster_mesh::log::Stored;
use teamster_protocol::{BlobRef, Commit, Event, usage::Spent};

use super::Cursor;
use crate::{
    account::{Account, Counted},
    error::StoreError,
    store::number,
};

/// Where a commit that counts lies in the log.
pub(super) fn place(
    connection: &Connection,
    id: i64,
    stored: &Stored,
    commit: &Commit,
) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO place (session, n, seq, bytes) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![
            id,
            number(commit.n),
            number(stored.seq),
            number(stored.body.len() as u64)
        ])?;
    Ok(())
}

/// The stored values that a commit names.
pub(super) fn values(connection: &Connection, id: i64, commit: &Commit) -> Result<(), StoreError> {
    for value in commit.events.iter().flat_map(BlobRef::named_by) {
        connection
            .prepare_cached("INSERT OR IGNORE INTO value (session, sha256) VALUES (?1, ?2)")?
            .execute(params![id, value.sha256.to_string()])?;
    }
    Ok(())
}

/// The messages that a commit adds.
pub(super) fn messages(
    connection: &Connection,
    id: i64,
    counted: &Counted,
) -> Result<(), StoreError> {
    for (place, message) in (counted.first..).zip(&counted.messages) {
        connection
            .prepare_cached(
                "INSERT INTO message (session, place, n, at_ms, role, text, rest) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                id,
                number(place),
                number(counted.commit.n),
                number(counted.commit.at_ms),
                message.role,
                message.text,
                serde_json::to_string(&message.rest)?,
            ])?;
        connection
            .prepare_cached("INSERT INTO search (rowid, text) VALUES (?1, ?2)")?
            .execute(params![connection.last_insert_rowid(), message.text])?;
    }
    Ok(())
}

/// What a commit's generations came to, the interrupted ones included.
pub(super) fn generations(
    connection: &Connection,
    id: i64,
    counted: &Counted,
) -> Result<(), StoreError> {
    let commit = &counted.commit;
    for (i, event) in (0_i64..).zip(&commit.events) {
        if let Some(spent) = spent::of_event(event, counted.asked_model.as_deref(), commit.at_ms) {
            write_spent(connection, id, (commit.n, i), &spent, false)?;
        }
    }
    Ok(())
}

/// Notes a deletion, and what the tombstone says that the session spent: its own generations are in no log any more.
pub(super) fn bury(connection: &Connection, id: i64, commit: &Commit) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO tombstone (session, n, at_ms) VALUES (?1, ?2, ?3)")?
        .execute(params![id, number(commit.n), number(commit.at_ms)])?;
    let rows = commit.events.iter().flat_map(|event| match event {
        Event::SessionDeleted { spent, .. } => spent.as_slice(),
        _ => &[],
    });
    for (i, spent) in (0_i64..).zip(rows) {
        write_spent(connection, id, (commit.n, i), spent, true)?;
    }
    Ok(())
}

/// Puts in the place of what a part of the log says was spent, which does not count any more, what its acceptance says.
pub(super) fn accept_loss(
    connection: &Connection,
    id: i64,
    commit: &Commit,
) -> Result<(), StoreError> {
    let Some(Event::LossAccepted {
        lost_from, spent, ..
    }) = commit.events.first()
    else {
        return Ok(());
    };
    connection
        .prepare_cached("DELETE FROM generation WHERE session = ?1 AND n >= ?2 AND NOT buried")?
        .execute(params![id, number(*lost_from)])?;
    for (i, row) in (0_i64..).zip(spent) {
        // Before the commit's own events, which have places from 0 on.
        write_spent(connection, id, (commit.n, -1 - i), row, false)?;
    }
    Ok(())
}

fn write_spent(
    connection: &Connection,
    id: i64,
    (n, i): (u64, i64),
    spent: &Spent,
    is_buried: bool,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO generation (session, n, i, at_ms, model, count, attempts, usage, cost, unpriced, buried)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            id,
            number(n),
            i,
            number(spent.at_ms),
            spent.model,
            number(spent.generations),
            number(spent.attempts),
            serde_json::to_string(&spent.usage)?,
            number(spent.cost.0),
            number(spent.unpriced),
            is_buried,
        ])?;
    Ok(())
}

/// The session's own row.
pub(super) fn write_account(
    connection: &Connection,
    id: i64,
    account: &Account,
) -> Result<(), StoreError> {
    let info = account.info();
    connection
        .prepare_cached(
            "UPDATE session SET status = ?2, updated_at_ms = ?3, account = ?4, info = ?5 WHERE id = ?1",
        )?
        .execute(params![
            id,
            info.status,
            number(info.updated_at_ms),
            serde_json::to_string(account)?,
            serde_json::to_string(&info)?,
        ])?;
    Ok(())
}

/// Removes a session's rows, except its own and those of its approvals.
pub(super) fn clear(connection: &Connection, id: i64) -> Result<(), StoreError> {
    for statement in [
        // The index holds no text of its own, so that it must be told what to take out.
        "INSERT INTO search (search, rowid, text) SELECT 'delete', id, text FROM message WHERE session = ?1",
        "DELETE FROM message WHERE session = ?1",
        "DELETE FROM place WHERE session = ?1",
        "DELETE FROM generation WHERE session = ?1",
        "DELETE FROM value WHERE session = ?1",
        "DELETE FROM tombstone WHERE session = ?1",
    ] {
        connection.prepare_cached(statement)?.execute([id])?;
    }
    Ok(())
}

/// How far a log stream is taken in.
pub(super) fn write_cursor(
    connection: &Connection,
    k: u64,
    cursor: &Cursor,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO stream (k, made, seq, digest) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (k) DO UPDATE SET seq = ?3, digest = ?4",
        )?
        .execute(params![
            number(k),
            cursor.made,
            number(cursor.seq),
            cursor.digest.map(|digest| digest.to_string()),
        ])?;
    Ok(())
}
