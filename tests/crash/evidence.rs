//! Gathers what a run left behind: the log, the copied head, the queues, the effects.

use teamster::client::Client;
use teamster_mesh::{log::Stored, snap::Snapshot};
use teamster_protocol::{
    ApprovalId, Commit, Event, Lane, Message, SessionId, function::harness::SendReply,
    message::ResultKind,
};
use teamster_testkit::wait;

use crate::{operator::LIMIT, outside::Effect, verify};

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
    /// The requests whose timers are set.
    pub timers: Vec<ApprovalId>,
    /// The messages that the session begins with, if it is a fork.
    pub base: Vec<Message>,
}

impl Evidence {
    /// What the calls came to, in the order in which they did.
    pub fn outcomes(&self) -> Vec<ResultKind> {
        let events = self.commits.iter().flat_map(|commit| &commit.events);
        events
            .filter_map(|event| match event {
                Event::CallFinished { outcome, .. } | Event::CallRefused { outcome, .. } => {
                    Some(*outcome)
                }
                _ => None,
            })
            .collect()
    }

    async fn read(
        client: &Client,
        session: &SessionId,
        accepted: &[SendReply],
        effects: &[Effect],
    ) -> Option<Self> {
        let mesh = client.mesh();
        // In this order: the head is a lower bound of the log that is read after it.
        let snapshot = mesh.snaps().get(session).await.ok()?;
        let upto = mesh
            .log()
            .tail(session)
            .await
            .ok()?
            .map_or(0, |stored| stored.seq);
        let stored = mesh.log().read(session, 0, upto).await.ok()?;
        let commits: Vec<Commit> = stored
            .iter()
            .map(|stored| Commit::decode(&stored.body).expect("a commit"))
            .collect();
        let cursor = commits
            .last()
            .map(|commit| commit.head.cursor)
            .unwrap_or_default();
        let mut has_unread = false;
        for lane in [Lane::In, Lane::Ctl] {
            has_unread |= mesh
                .lanes()
                .next(session, lane, cursor.of(lane))
                .await
                .ok()?
                .is_some();
        }
        let timers = mesh.lanes().timers(session).await.ok()?;
        let forked = commits.iter().flat_map(|commit| &commit.events);
        let fork = forked.clone().find_map(|event| match event {
            Event::SessionForked { fork, .. } => Some(fork),
            _ => None,
        });
        let base = match fork {
            Some(fork) => {
                let bytes = mesh.blobs().get(&fork.transcript).await.ok()??;
                serde_json::from_slice(&bytes).expect("messages")
            }
            None => Vec::new(),
        };
        let mut accepted = accepted.to_vec();
        accepted.sort_by_key(|reply| reply.seq);
        Some(Self {
            session: session.clone(),
            accepted,
            stored,
            commits,
            snapshot,
            has_unread,
            effects: effects.to_vec(),
            timers,
            base,
        })
    }
}

/// Checks everything that must hold of a session at rest.
pub async fn check(
    client: &Client,
    session: &SessionId,
    accepted: &[SendReply],
    effects: Vec<Effect>,
) -> Evidence {
    let evidence = wait::some(LIMIT, "the session is read", || {
        Evidence::read(client, session, accepted, &effects)
    })
    .await;
    let found = verify::check(&evidence);
    assert!(
        found.is_empty(),
        "{session}: {found:#?}\n{}",
        dump(&evidence)
    );
    evidence
}

/// The log for whoever reads a failure.
fn dump(evidence: &Evidence) -> String {
    let commits = evidence
        .stored
        .iter()
        .map(|stored| String::from_utf8_lossy(&stored.body).into_owned());
    let effects = evidence.effects.iter().map(|effect| format!("{effect:?}"));
    commits.chain(effects).collect::<Vec<_>>().join("\n")
}
