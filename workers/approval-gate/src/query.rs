//! Questions to the log itself, for what the inbox does not hold: old requests, the history, the last word after a wait.

use std::collections::BTreeMap;

use teamster_core::turn::fold::counting;
use teamster_mesh::{Mesh, log::From};
use teamster_protocol::{
    ApprovalId, Commit, Fault, SessionId, function::approval::GetReply, limits,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    inbox::Found,
    ledger::{Ledger, resolved_at_ms},
};

/// What the log of one session says; `None` for a session without one.
pub(crate) async fn ledger(mesh: &Mesh, session: &SessionId) -> Result<Option<Ledger>, Fault> {
    let log = mesh.log();
    let Some(tail) = log.tail(session).await? else {
        return Ok(None);
    };
    let mut ledger = Ledger::default();
    let stored = log.read(session, 0, tail.seq).await?;
    let bytes: Vec<(u64, &[u8])> = stored.iter().map(|one| (one.seq, &*one.body)).collect();
    let commits = counting(session, &bytes).map_err(|(seq, error)| {
        Fault::internal(
            "approval.log_unreadable",
            format_args!("commit {seq} of session {session} cannot be read: {error}"),
        )
    })?;
    for (_, commit) in &commits {
        ledger.apply(session, commit);
    }
    Ok(Some(ledger))
}

/// One request of a session whose log has it.
pub(crate) async fn in_session(
    mesh: &Mesh,
    session: &SessionId,
    approval: &ApprovalId,
) -> Result<Option<Found>, Fault> {
    let Some(ledger) = ledger(mesh, session).await? else {
        return Ok(None);
    };
    Ok(ledger.get(approval).map(|entry| Found {
        entry: entry.clone(),
        workspace: ledger.workspace().map(str::to_owned),
    }))
}

/// One request of any session, found by reading all logs.
pub(crate) async fn anywhere(
    mesh: &Mesh,
    approval: &ApprovalId,
    until: Instant,
) -> Result<Option<Found>, Fault> {
    let wanted = format!(r#""approval":"{approval}""#);
    let search = async {
        let mut reader = mesh.log().follow(From::Start, false).await?;
        while let Some(next) = reader.next().await {
            let (session, stored) = next?;
            if contains(&stored.body, &wanted) {
                return in_session(mesh, &session, approval).await;
            }
        }
        Ok(None)
    };
    in_time(until, search).await
}

/// The newest decisions of one session or of all, newest first.
pub(crate) async fn history(
    mesh: &Mesh,
    session: Option<&SessionId>,
    count: usize,
    until: Instant,
) -> Result<Vec<GetReply>, Fault> {
    let search = async {
        let sessions = match session {
            Some(session) => vec![session.clone()],
            None => deciding_sessions(mesh, count).await?,
        };
        let mut found = Vec::new();
        for session in sessions {
            let Some(ledger) = ledger(mesh, &session).await? else {
                continue;
            };
            let resolved = ledger
                .entries()
                .rev()
                .filter_map(|entry| Some((resolved_at_ms(entry.resolution.as_ref()?), entry)));
            found.extend(resolved.map(|(at_ms, entry)| (at_ms, entry.clone())));
            newest(&mut found, count);
        }
        Ok(found.into_iter().map(|(_, entry)| entry).collect())
    };
    in_time(until, search).await
}

/// Keeps the newest, newest first, as many as were asked for and as one reply can hold.
fn newest(found: &mut Vec<(u64, GetReply)>, count: usize) {
    found.sort_by(|(one_ms, one), (two_ms, two)| {
        (two_ms, &two.request.approval_id).cmp(&(one_ms, &one.request.approval_id))
    });
    found.truncate(count);
    let mut bytes = 0;
    let fitting = found
        .iter()
        .take_while(|(_, entry)| {
            bytes += entry.request.arguments.as_str().len();
            bytes <= limits::APPROVALS_LISTED_BYTES_MAX
        })
        .count();
    found.truncate(fitting);
}

/// The sessions with the newest decisions; as many as there can be among the newest `count`.
async fn deciding_sessions(mesh: &Mesh, count: usize) -> Result<Vec<SessionId>, Fault> {
    // The last decision of each session by the session; the oldest go when there are more than asked for.
    let mut latest: BTreeMap<SessionId, u64> = BTreeMap::new();
    let mut reader = mesh.log().follow(From::Start, false).await?;
    while let Some(next) = reader.next().await {
        let (session, stored) = next?;
        let decides = contains(&stored.body, r#""type":"approval_resolved""#)
            || contains(&stored.body, r#""type":"approval_expired""#);
        if !decides {
            continue;
        }
        let Ok(commit) = Commit::decode(&stored.body) else {
            tracing::error!(%session, seq = stored.seq, "a commit cannot be read; the history leaves it out");
            continue;
        };
        latest.insert(session, commit.at_ms);
        if latest.len() > count
            && let Some(oldest) = latest
                .iter()
                .min_by_key(|(_, at_ms)| **at_ms)
                .map(|(session, _)| session.clone())
        {
            latest.remove(&oldest);
        }
    }
    Ok(latest.into_keys().collect())
}

fn contains(body: &[u8], wanted: &str) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| text.contains(wanted))
}

async fn in_time<T>(
    until: Instant,
    search: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    timeout_at(until, search).await.unwrap_or_else(|_| {
        Err(
            Fault::busy("approval.too_slow", "the log could not be searched in time")
                .hint("Ask for one session's approvals, or with a longer time."),
        )
    })
}
