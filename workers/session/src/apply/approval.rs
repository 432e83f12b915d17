//! Requests for a person's decision, and what became of them.

use rusqlite::{Connection, OptionalExtension as _, params};
use teamster_protocol::{
    ApprovalId, CallId, Commit, Event, SessionId, TurnId,
    event::Settled,
    function::{
        approval::{GetReply, Pending, Resolution},
        session::ApprovalEntry,
    },
    message::ResultKind,
};

use crate::{account::Counted, error::StoreError, store::number};

/// What a commit says about requests.
pub(super) fn take(
    connection: &Connection,
    id: i64,
    session: &SessionId,
    counted: &Counted,
) -> Result<(), StoreError> {
    let at_ms = counted.commit.at_ms;
    let mut turn = counted.turn.clone();
    for event in &counted.commit.events {
        match event {
            Event::TurnStarted { turn: begun, .. } => turn = Some(begun.clone()),
            Event::ApprovalRequested { .. } => {
                // Of one whose turn's beginning cannot be read nobody knows the turn.
                let turn = turn.clone().unwrap_or_else(TurnId::unknown);
                if let Some(request) = Pending::of(event, session, &turn, at_ms) {
                    let resolution = None;
                    insert(
                        connection,
                        id,
                        &GetReply {
                            request,
                            resolution,
                        },
                    )?;
                }
            }
            Event::ApprovalResolved { .. } | Event::ApprovalExpired { .. } => {
                if let Some((approval, resolution)) = Resolution::of(event, at_ms) {
                    resolve(connection, approval, &resolution)?;
                }
            }
            Event::CallFinished { call, outcome, .. }
            | Event::CallRefused { call, outcome, .. } => settle(connection, id, call, *outcome)?,
            // What was asked in the part that was given up is asked no more.
            Event::LossAccepted { .. } => {
                for approval in all(connection, id)? {
                    resolve(connection, &approval, &Resolution::Withdrawn { at_ms })?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn insert(connection: &Connection, id: i64, entry: &GetReply) -> Result<(), StoreError> {
    let request = &entry.request;
    connection
        .prepare_cached(
            "INSERT INTO approval (id, session, call, requested_at_ms, entry) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            request.approval_id.as_str(),
            id,
            request.call_id.as_str(),
            number(request.requested_at_ms),
            serde_json::to_string(&ApprovalEntry::Whole(Box::new(entry.clone())))?,
        ])?;
    Ok(())
}

/// The first resolution is the one that counts.
fn resolve(
    connection: &Connection,
    approval: &ApprovalId,
    resolution: &Resolution,
) -> Result<(), StoreError> {
    change(connection, approval, |entry| {
        if let ApprovalEntry::Whole(whole) = entry {
            whole.resolution.get_or_insert_with(|| resolution.clone());
        }
    })
}

/// Notes what a decided call came to.
fn settle(
    connection: &Connection,
    id: i64,
    call: &CallId,
    came_to: ResultKind,
) -> Result<(), StoreError> {
    let mut rows =
        connection.prepare_cached("SELECT id FROM approval WHERE session = ?1 AND call = ?2")?;
    let found: Vec<String> = rows
        .query_map(params![id, call.as_str()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for approval in found
        .into_iter()
        .filter_map(|text| ApprovalId::parse(text).ok())
    {
        change(connection, &approval, |entry| {
            if let ApprovalEntry::Whole(whole) = entry
                && let Some(Resolution::Decided { outcome, .. }) = &mut whole.resolution
            {
                *outcome = Some(came_to);
            }
        })?;
    }
    Ok(())
}

/// The requests of a session.
fn all(connection: &Connection, id: i64) -> Result<Vec<ApprovalId>, StoreError> {
    let mut rows = connection.prepare_cached("SELECT id FROM approval WHERE session = ?1")?;
    let found = rows.query_map([id], |row| row.get::<_, String>(0))?;
    let mut all = Vec::new();
    for text in found {
        all.extend(ApprovalId::parse(text?).ok());
    }
    Ok(all)
}

fn change(
    connection: &Connection,
    approval: &ApprovalId,
    change: impl FnOnce(&mut ApprovalEntry),
) -> Result<(), StoreError> {
    let found: Option<String> = connection
        .prepare_cached("SELECT entry FROM approval WHERE id = ?1")?
        .query_row([approval.as_str()], |row| row.get(0))
        .optional()?;
    let Some(text) = found else {
        return Ok(());
    };
    let mut entry: ApprovalEntry = serde_json::from_str(&text)?;
    change(&mut entry);
    connection
        .prepare_cached("UPDATE approval SET entry = ?2 WHERE id = ?1")?
        .execute(params![approval.as_str(), serde_json::to_string(&entry)?])?;
    Ok(())
}

/// Leaves digests of the requests of a session that is deleted: those that its tombstone names, so that whoever reads the log later,
/// when nothing else is left of it, knows the same.
pub(super) fn bury(
    connection: &Connection,
    id: i64,
    session: &SessionId,
    commit: &Commit,
) -> Result<(), StoreError> {
    clear(connection, id)?;
    let named = commit.events.iter().flat_map(|event| match event {
        Event::SessionDeleted { approvals, .. } => approvals.as_slice(),
        _ => &[],
    });
    for digest in named {
        let entry = ApprovalEntry::Digest {
            approval_id: digest.approval.clone(),
            session_id: session.clone(),
            function: digest.function.clone(),
            digest: digest.digest,
            settled: digest.settled.clone(),
        };
        // When it was asked is not told; its place is that of its end.
        let at_ms = digest.settled.as_ref().map_or(commit.at_ms, settled_at_ms);
        connection
            .prepare_cached(
                "INSERT INTO approval (id, session, call, requested_at_ms, entry) VALUES (?1, ?2, '', ?3, ?4)
                 ON CONFLICT (id) DO NOTHING",
            )?
            .execute(params![
                digest.approval.as_str(),
                id,
                number(at_ms),
                serde_json::to_string(&entry)?
            ])?;
    }
    Ok(())
}

fn settled_at_ms(settled: &Settled) -> u64 {
    match settled {
        Settled::Approved { at_ms, .. }
        | Settled::Edited { at_ms, .. }
        | Settled::Denied { at_ms, .. }
        | Settled::Expired { at_ms }
        | Settled::Withdrawn { at_ms } => *at_ms,
    }
}

/// Removes the requests of a session.
pub(super) fn clear(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM approval WHERE session = ?1")?
        .execute([id])?;
    Ok(())
}
