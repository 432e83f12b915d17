//! The tasks that make notices of commits: one a log stream, each commit under a lease that all session workers share.
//!
//! Notices of a commit are stored one after another before it is acknowledged, so that they stand in the log's order, each at least
//! once. A commit that comes again makes the same notices with the same ids.

use std::time::Duration;

use teamster_core::turn::admin::is_tombstone;
use teamster_mesh::{
    Error, Mesh,
    feed::{Fed, Feed},
};
use teamster_protocol::{
    Commit, SessionId,
    notice::{Notice, NoticeKind},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::projection::Projection;

/// The names of the tasks, by log stream.
pub(crate) const TASKS: [&str; crate::store::STREAMS] = [
    "notices 0",
    "notices 1",
    "notices 2",
    "notices 3",
    "notices 4",
    "notices 5",
    "notices 6",
    "notices 7",
];
/// How long a commit rests whose notices could not be stored.
const REST: Duration = Duration::from_millis(500);
/// The first pause before a notice is published again.
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// Makes notices of a log stream's commits until cancelled.
pub(crate) async fn run(
    mesh: &Mesh,
    projection: &Projection,
    stream: u8,
    cancel: &CancellationToken,
) {
    let mut feed = Feed::open(mesh, stream);
    loop {
        let commit = tokio::select! {
            () = cancel.cancelled() => return,
            commit = feed.next() => commit,
        };
        if deal(mesh, projection, &commit).await {
            commit.ack().await;
        } else {
            commit.nak(REST).await;
        }
    }
}

/// Makes the notices of a commit; `false` if not all of them could be stored.
async fn deal(mesh: &Mesh, projection: &Projection, fed: &Fed) -> bool {
    let Some((session, stored)) = &fed.commit else {
        return true;
    };
    match Commit::decode(&stored.body) {
        Ok(commit) => {
            for notice in notices(session, &commit) {
                if let Err(error) = publish(mesh, &notice, fed.until).await {
                    tracing::warn!(
                        %session,
                        n = commit.n,
                        error = %teamster_telemetry::chain(&error),
                        "a notice is not stored; its commit comes again"
                    );
                    return false;
                }
            }
            if is_tombstone(&commit) {
                projection.remains().notify_one();
            }
        }
        // It makes the session damaged; the notices of others go on.
        Err(error) => tracing::error!(
            %session,
            seq = stored.seq,
            error = %teamster_telemetry::chain(&error),
            "a commit cannot be read; it makes no notices"
        ),
    }
    true
}

/// What a commit says to consumers.
fn notices(session: &SessionId, commit: &Commit) -> impl Iterator<Item = Notice> {
    (0..)
        .zip(&commit.events)
        .filter(|(_, event)| NoticeKind::of(event).is_some())
        .map(|(i, event)| Notice {
            session: session.clone(),
            n: commit.n,
            i,
            at_ms: commit.at_ms,
            event: event.clone(),
        })
}

/// Stores a notice, trying for as long as the commit is ours.
async fn publish(mesh: &Mesh, notice: &Notice, until: Instant) -> Result<(), Error> {
    let mut pause = RETRY_FIRST;
    loop {
        match mesh.notices().publish(notice).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() + pause >= until => return Err(error),
            Err(_) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
    }
}
