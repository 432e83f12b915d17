//! Gathers what a run left behind: the log, the copied head, the queues, the effects.

use teamster_mesh::{log::Stored, snap::Snapshot};
use teamster_protocol::{Commit, Lane, SessionId, function::harness::SendReply};
use teamster_testkit::wait;

use crate::{
    outside::Effect,
    verify,
    world::{LIMIT, World},
};

/// What a run left behind of one session.
#[derive(Clone)]
pub struct Evidence {
    pub session: SessionId,
    /// The messages that were accepted, in the order of their sequences.
    pub accepted: Vec<SendReply>,
    pub stored: Vec<Stored>,
    pub commits: Vec<Commit>,
    pub snapshot: Option<Snapshot>,
    /// Whether a lane holds an input beyond its cursor.
    pub has_unread: bool,
    pub effects: Vec<Effect>,
}

impl Evidence {
    pub async fn gather(world: &World, session: &SessionId, accepted: &[SendReply]) -> Self {
        wait::some(LIMIT, "the session is read", || Self::read(world, session, accepted)).await
    }

    async fn read(world: &World, session: &SessionId, accepted: &[SendReply]) -> Option<Self> {
        let mesh = world.client.mesh();
        // In this order: the head is a lower bound of the log that is read after it.
        let snapshot = mesh.snaps().get(session).await.ok()?;
        let upto = mesh.log().tail(session).await.ok()?.map_or(0, |stored| stored.seq);
        let stored = mesh.log().read(session, 0, upto).await.ok()?;
        let commits: Vec<Commit> =
            stored.iter().map(|stored| Commit::decode(&stored.body).expect("a commit")).collect();
        let cursor = commits.last().map(|commit| commit.head.cursor).unwrap_or_default();
        let mut has_unread = false;
        for lane in [Lane::In, Lane::Ctl] {
            has_unread |= mesh.lanes().next(session, lane, cursor.of(lane)).await.ok()?.is_some();
        }
        let mut accepted = accepted.to_vec();
        accepted.sort_by_key(|reply| reply.seq);
        Some(Self {
            session: session.clone(),
            accepted,
            stored,
            commits,
            snapshot,
            has_unread,
            effects: world.outside.effects_of(session),
        })
    }
}

/// Checks everything that must hold of a session at rest.
pub async fn verify(world: &World, session: &SessionId, accepted: &[SendReply]) -> Evidence {
    let evidence = Evidence::gather(world, session, accepted).await;
    let found = verify::check(&evidence);
    assert!(found.is_empty(), "{session}: {found:#?}\n{}", dump(&evidence));
    evidence
}

/// The log for whoever reads a failure.
fn dump(evidence: &Evidence) -> String {
    let commits = evidence.stored.iter().map(|stored| String::from_utf8_lossy(&stored.body).into_owned());
    let effects = evidence.effects.iter().map(|effect| format!("{effect:?}"));
    commits.chain(effects).collect::<Vec<_>>().join("\n")
}
