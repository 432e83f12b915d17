//! The task that keeps the inbox: reads the last commit of each session and then every new one, and where that concerns
//! approvals, what the log holds of that session since the last look.

use std::time::Duration;

use teamster_core::turn::fold::{counting, damage_of};
use teamster_mesh::{
    Error, Mesh,
    log::{From, Stored},
};
use teamster_protocol::SessionId;
use tokio_util::sync::CancellationToken;

use crate::inbox::Inbox;

/// The first wait after the reader failed.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// The longest wait after the reader failed.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Keeps the inbox until cancelled.
pub(crate) async fn run(mesh: &Mesh, inbox: &Inbox, cancel: &CancellationToken) {
    let mut wait = RETRY_FIRST;
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            ended = follow(mesh, inbox, &mut wait) => match ended {
                Ok(()) => tracing::warn!("the reader of the log ended; it is made anew"),
                Err(error) => tracing::warn!(
                    error = %teamster_telemetry::chain(&error),
                    "the log cannot be followed; trying again"
                ),
            },
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(RETRY_MAX),
        }
    }
}

async fn follow(mesh: &Mesh, inbox: &Inbox, wait: &mut Duration) -> Result<(), Error> {
    let mut reader = mesh.log().follow(From::LastOfEach, true).await?;
    while let Some(next) = reader.next().await {
        let (session, stored) = match next {
            Ok(read) => read,
            Err(error) => {
                // The reader goes on by itself, behind what it has read.
                tracing::warn!(error = %teamster_telemetry::chain(&error), "a log stream cannot be read now");
                continue;
            }
        };
        *wait = RETRY_FIRST;
        match concern(&stored.body) {
            Concern::Deleted => inbox.forget(&session),
            Concern::Approvals => catch_up(mesh, inbox, &session, &stored).await?,
            // Of a session with open requests nothing is missed, even if the reader was away in between.
            Concern::Nothing if inbox.is_waiting(&session) => {
                catch_up(mesh, inbox, &session, &stored).await?;
            }
            Concern::Nothing => {}
        }
    }
    Ok(())
}

/// Folds a session's commits up to and including `last`.
async fn catch_up(
    mesh: &Mesh,
    inbox: &Inbox,
    session: &SessionId,
    last: &Stored,
) -> Result<(), Error> {
    let after = inbox.seq(session);
    if last.seq <= after {
        return Ok(());
    }
    let mut stored = mesh.log().read(session, after, last.seq).await?;
    if after > 0 && stored.iter().any(|one| accepts_loss(&one.body)) {
        // Which commits count is told from the whole log; those that are folded already change nothing.
        stored = mesh.log().read(session, 0, last.seq).await?;
    }
    let bytes: Vec<(u64, &[u8])> = stored.iter().map(|one| (one.seq, &*one.body)).collect();
    if after == 0 || stored.iter().any(|one| accepts_loss(&one.body)) {
        // Where a log goes on behind a damage, what was asked in the part that is missing is not known here.
        inbox.note_damage(session, damage_of(session, &bytes));
    }
    match counting(session, &bytes) {
        Ok(commits) => inbox.fold(session, commits.iter().map(|(seq, commit)| (*seq, commit))),
        // One session that cannot be read must not hide the requests of the others.
        Err((seq, error)) => tracing::error!(
            %session,
            seq,
            error = %teamster_telemetry::chain(&error),
            "a commit cannot be read; the session's requests are not listed"
        ),
    }
    Ok(())
}

fn accepts_loss(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| text.contains(r#""type":"loss_accepted""#))
}

/// What a commit means for the inbox.
#[derive(Debug, PartialEq, Eq)]
enum Concern {
    /// It may change which requests are open.
    Approvals,
    /// The session is gone.
    Deleted,
    /// It says nothing about approvals.
    Nothing,
}

/// Told from the text, because most commits of a busy log have nothing to do with approvals and need not be parsed. A text
/// that only looks so costs one read.
fn concern(body: &[u8]) -> Concern {
    let Ok(text) = std::str::from_utf8(body) else {
        return Concern::Nothing;
    };
    if text.contains(r#""phase":"deleted""#) {
        Concern::Deleted
    } else if text.contains(r#""phase":"parked""#)
        || text.contains(r#""type":"approval_"#)
        || accepts_loss(body)
    {
        Concern::Approvals
    } else {
        Concern::Nothing
    }
}
