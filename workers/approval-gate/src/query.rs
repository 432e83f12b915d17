//! Questions to the log itself, for what the inbox does not hold: old requests, the last word after a wait.

use teamster_core::turn::fold::counting;
use teamster_mesh::{Mesh, log::From};
use teamster_protocol::{ApprovalId, Commit, Event, Fault, SessionId, text};
use tokio::time::{Instant, timeout_at};

use crate::{inbox::Found, ledger::Ledger};

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
            if !contains(&stored.body, &wanted) {
                continue;
            }
            let found = in_session(mesh, &session, approval).await?;
            return match found {
                None if is_buried(&stored.body, approval) => Err(deleted(&session, approval)),
                found => Ok(found),
            };
        }
        Ok(None)
    };
    in_time(until, search).await
}

/// Whether a commit deletes the session that had the request.
fn is_buried(body: &[u8], approval: &ApprovalId) -> bool {
    Commit::decode(body).is_ok_and(|commit| {
        commit.events.iter().any(|event| match event {
            Event::SessionDeleted { approvals, .. } => {
                approvals.iter().any(|left| left.approval == *approval)
            }
            _ => false,
        })
    })
}

fn deleted(session: &SessionId, approval: &ApprovalId) -> Fault {
    let name = text::shell(session.as_str());
    Fault::gone(
        "approval.session_deleted",
        format_args!(
            "the session {session} of {approval} was deleted, and with it the call that was asked about"
        ),
    )
    .hint(format_args!(
        "`teamster approvals history --session={name}` shows the digest of it and what became of it."
    ))
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
