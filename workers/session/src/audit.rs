//! The look for logs that end otherwise than it seems: whose end the server cannot read, or that are shorter than they were.
//!
//! A break in the middle shows by itself: what comes next does not follow. Behind the end nothing comes. So each log's end is
//! asked for whenever reading begins anew (the server was restarted, or this worker was), and before stored values are swept; and what is
//! kept of heads outside of the logs is held against them.

use std::collections::BTreeMap;

use teamster_mesh::{Error, Mesh, head::Head, log::From as Begin};
use teamster_protocol::{Fault, SessionId, limits};
use tokio_util::sync::CancellationToken;

use crate::{apply, error::StoreError, projection::Projection};

/// The wait before a look that came to nothing is tried again.
const RETRY: std::time::Duration = std::time::Duration::from_secs(5);

/// Why a look came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error("the broker does not do its part")]
    Mesh(#[from] Error),
    #[error("the projection does not answer: {0}")]
    Projection(Fault),
    #[error("what was found cannot be noted")]
    Store(#[from] StoreError),
}

/// Looks whenever reading began anew, until cancelled.
pub(crate) async fn run(mesh: &Mesh, projection: &Projection, cancel: &CancellationToken) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = projection.begun_anew() => {}
        }
        loop {
            let looked = tokio::select! {
                () = cancel.cancelled() => return,
                looked = look(mesh, projection) => looked,
            };
            let Err(stop) = looked else { break };
            tracing::debug!(error = %teamster_telemetry::chain(&stop), "the look at the ends of the logs is put off");
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }
}

/// Looks once, and notes in the projection which sessions are damaged at their end, and which are no more.
pub(crate) async fn look(mesh: &Mesh, projection: &Projection) -> Result<(), Stop> {
    // In this order: a head is older than what the projection holds when it is asked about it, and that than the logs' ends.
    let heads = heads(mesh).await?;
    let projected = projection.store().run(|db| apply::heads(db)).await?;
    let Ends { last, doubts: ends } = ends(mesh).await?;
    let behind = projection
        .ask_all(mesh, move |db| apply::behind(db, &heads))
        .await
        .map_err(Stop::Projection)?;
    let shorter = shorter(projected, &last);
    // The harness knows of heads alone.
    projection.heads().copy(mesh, shorter.clone()).await;
    let mut doubts = behind;
    doubts.extend(shorter.into_iter().map(|(session, head)| {
        let words = format!(
            "the log ends before commit {}, which was stored at sequence {}",
            head.n, head.seq
        );
        (session, words)
    }));
    doubts.extend(ends);
    let again = projection
        .store()
        .run(move |db| apply::doubt(db, &doubts))
        .await?;
    for session in again {
        tracing::error!(%session, code = "session.log_damaged", "the end of a log is not what it was, or cannot be read");
    }
    Ok(())
}

/// Where logs are known to have stood.
async fn heads(mesh: &Mesh) -> Result<Vec<(SessionId, Head)>, Error> {
    let mut heads = Vec::new();
    for session in mesh.heads().sessions(limits::VALUES_LISTED_MAX).await? {
        if let Some(head) = mesh.heads().get(&session).await? {
            heads.push((session, head));
        }
    }
    Ok(heads)
}

/// How the logs end.
struct Ends {
    /// The sequence of each log's last message that can be read.
    last: BTreeMap<SessionId, u64>,
    /// The logs whose end cannot be read, and why not.
    doubts: BTreeMap<SessionId, String>,
}

async fn ends(mesh: &Mesh) -> Result<Ends, Error> {
    let mut unseen = mesh.log().sessions(limits::VALUES_LISTED_MAX).await?;
    let mut follow = mesh.log().follow(Begin::LastOfEach, false).await?;
    let mut ends = Ends {
        last: BTreeMap::new(),
        doubts: BTreeMap::new(),
    };
    while let Some(next) = follow.next().await {
        let (session, stored) = next?;
        unseen.remove(&session);
        ends.last.insert(session, stored.seq);
    }
    for session in unseen {
        match mesh.log().tail(&session).await {
            Err(error @ Error::Unreadable { .. }) => {
                ends.doubts.insert(session, error.to_string());
            }
            tail => {
                if let Some(stored) = tail? {
                    ends.last.insert(session, stored.seq);
                }
            }
        }
    }
    Ok(ends)
}

/// The logs that are shorter than they were when they were projected.
fn shorter(
    mut projected: Vec<(SessionId, Head)>,
    last: &BTreeMap<SessionId, u64>,
) -> Vec<(SessionId, Head)> {
    projected.retain(|(session, head)| last.get(session).is_none_or(|last| *last < head.seq));
    projected
}
