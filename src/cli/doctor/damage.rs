//! Which sessions are damaged: as the session worker knows, or as their logs show it.

use std::collections::{BTreeMap, HashMap};

use futures::{StreamExt as _, TryStreamExt as _};
use teamster_core::turn::{fold::Fold, state::State};
use teamster_mesh::log::From as Begin;
use teamster_protocol::{Digest, SessionId, function::session::ListRequest, limits};

use crate::{
    cli::failure::Failure,
    client::Client,
    witness::{self, Witness},
};

/// How the logs are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Health {
    /// Sessions that are there.
    pub(super) there: u64,
    /// Those whose logs do not fold.
    pub(super) damaged: Vec<SessionId>,
    /// Whether all logs were read for that.
    pub(super) is_read: bool,
    /// Sessions with messages in their queues that cannot be read, and how many.
    pub(super) queued: BTreeMap<SessionId, u64>,
}

/// Asks the session worker, which has folded each commit when it came; where none answers, or where `deep` is wanted, all logs
/// are read.
pub(super) async fn look(client: &Client, deep: bool) -> Result<Health, Failure> {
    let mut health = match known(client).await {
        Some(health) if !deep => health,
        _ => read(client).await?,
    };
    // What cannot be read at its end looks like a shorter log to whoever only reads.
    health.damaged.extend(ends(client).await?);
    health.damaged.sort();
    health.damaged.dedup();
    health.queued = client.mesh().lanes().unreadable().await?;
    Ok(health)
}

/// The sessions whose logs cannot be read to their end.
async fn ends(client: &Client) -> Result<Vec<SessionId>, Failure> {
    let log = client.mesh().log();
    let mut unseen = log.sessions(limits::VALUES_LISTED_MAX).await?;
    let mut follow = log.follow(Begin::LastOfEach, false).await?;
    while let Some(next) = follow.next().await {
        unseen.remove(&next?.0);
    }
    let mut ends = Vec::new();
    for session in unseen {
        match log.tail(&session).await {
            Err(teamster_mesh::Error::Unreadable { .. }) => ends.push(session),
            tail => drop(tail?),
        }
    }
    Ok(ends)
}

/// What the session worker knows; `None` where none answers for all that is committed.
async fn known(client: &Client) -> Option<Health> {
    let mut request = ListRequest {
        status: Some("damaged".to_owned()),
        limit: Some(limits::SESSIONS_LISTED_MAX),
        ..ListRequest::default()
    };
    let mut damaged = Vec::new();
    loop {
        let reply = client.sessions(&request).await.ok()?;
        damaged.extend(reply.sessions.into_iter().map(|session| session.session_id));
        request.after = reply.next;
        if request.after.is_none() {
            break;
        }
    }
    Some(Health {
        there: client.projection().await.ok()?.sessions,
        damaged,
        is_read: false,
        queued: BTreeMap::new(),
    })
}

/// Logs whose witnesses are asked for at once.
const ASKED_AT_ONCE: usize = 16;

/// What is known of a log, and what was read of it.
#[derive(Default)]
struct Read {
    fold: Option<Fold>,
    /// What its witnesses saw and what was not met yet.
    unmet: Vec<Witness>,
}

/// Reads every log to its end, and holds it against what was known of it before.
async fn read(client: &Client) -> Result<Health, Failure> {
    let mut sessions = witnesses(client).await?;
    let mut follow = client.mesh().log().follow(Begin::Start, false).await?;
    while let Some(stored) = follow.next().await {
        let (id, stored) = stored?;
        let read = sessions.entry(id.clone()).or_default();
        read.take(&id, &stored.body, stored.seq);
    }
    Ok(judge(sessions))
}

async fn witnesses(client: &Client) -> Result<HashMap<SessionId, Read>, Failure> {
    let mesh = client.mesh();
    let mut names = mesh.log().sessions(limits::VALUES_LISTED_MAX).await?;
    names.extend(mesh.heads().sessions(limits::VALUES_LISTED_MAX).await?);
    let asked = futures::stream::iter(names).map(|session| async move {
        let unmet = witness::all(mesh, &session).await?;
        Ok::<_, teamster_mesh::Error>((session, Read { fold: None, unmet }))
    });
    let asked: Vec<_> = asked.buffer_unordered(ASKED_AT_ONCE).try_collect().await?;
    Ok(asked.into_iter().collect())
}

impl Read {
    /// Takes the next stored commit, and keeps nothing of what was said.
    fn take(&mut self, session: &SessionId, bytes: &[u8], seq: u64) {
        let fold = self
            .fold
            .get_or_insert_with(|| Fold::new(State::new(session.clone())));
        fold.take(bytes, seq);
        drop(fold.unload());
        let is_met = |witness: &Witness| witness.seq == seq && witness.hash == Digest::of(bytes);
        self.unmet.retain(|witness| !is_met(witness));
    }

    fn is_damaged(&self) -> bool {
        match &self.fold {
            None => !self.unmet.is_empty(),
            Some(fold) => {
                let is_overruled = |witness: &Witness| witness.is_overruled(fold.state());
                fold.broken().is_some() || !self.unmet.iter().all(is_overruled)
            }
        }
    }
}

fn judge(sessions: HashMap<SessionId, Read>) -> Health {
    let mut health = Health {
        there: 0,
        damaged: Vec::new(),
        is_read: true,
        queued: BTreeMap::new(),
    };
    for (id, read) in sessions {
        let exists = read.fold.as_ref().is_some_and(|fold| fold.state().exists());
        let is_damaged = read.is_damaged();
        if is_damaged {
            health.damaged.push(id);
        }
        health.there += u64::from(is_damaged || exists);
    }
    health.damaged.sort();
    health
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{Event, Phase, Principal};
    use teamster_testkit::written;

    use super::*;

    fn owner() -> Principal {
        Principal::parse("owner").expect("valid")
    }

    fn session() -> SessionId {
        SessionId::parse("s").expect("valid")
    }

    fn created() -> Event {
        Event::SessionCreated {
            by: owner(),
            title: None,
            workspace: None,
            metadata: BTreeMap::new(),
        }
    }

    fn commit(n: u64, prev: Digest, phase: Phase, events: Vec<Event>) -> Vec<u8> {
        let commit = written::commit(&session(), n, prev, phase, events);
        commit.encode().expect("encodes")
    }

    fn health_of(log: &[Vec<u8>]) -> (u64, usize) {
        health_with(log, Vec::new())
    }

    fn health_with(log: &[Vec<u8>], unmet: Vec<Witness>) -> (u64, usize) {
        let mut read = Read { fold: None, unmet };
        for (seq, bytes) in (1..).zip(log) {
            read.take(&session(), bytes, seq);
        }
        let health = judge(HashMap::from([(session(), read)]));
        (health.there, health.damaged.len())
    }

    /// DUR-7: a log that lost its end, or all of it, folds; what was known of it tells.
    #[test]
    fn dur_7_a_log_that_lost_its_end_is_damaged_by_its_witness() {
        let first = commit(1, Digest::ZERO, Phase::Idle, vec![created()]);
        let second = commit(2, Digest::of(&first), Phase::Idle, Vec::new());
        let witness = Witness {
            n: 2,
            seq: 2,
            hash: Digest::of(&second),
            at_ms: 5,
        };
        let log = [first, second];
        for (length, damaged) in [(2, 0), (1, 1), (0, 1)] {
            assert_eq!(health_with(&log[..length], vec![witness]), (1, damaged));
        }
    }

    /// DUR-7: a session with a torn or foreign commit is damaged until its loss is accepted.
    #[test]
    fn dur_7_a_session_is_damaged_until_its_loss_is_accepted() {
        let first = commit(1, Digest::ZERO, Phase::Idle, vec![created()]);
        let foreign = commit(2, Digest::of("other"), Phase::Idle, Vec::new());
        for broken in [b"\0\0\0".to_vec(), foreign] {
            let accepted = Event::LossAccepted {
                by: owner(),
                lost_from: 2,
                kept: Digest::of(&first),
                message: "torn".to_owned(),
                turns: 0,
                spent: Vec::new(),
                unknown: 0,
            };
            let acceptance = commit(9, Digest::of(&broken), Phase::Idle, vec![accepted]);
            let log = [first.clone(), broken, acceptance];
            let seen: Vec<_> = (1..=3).map(|count| health_of(&log[..count])).collect();
            assert_eq!(seen, [(1, 0), (1, 1), (1, 0)]);
        }
    }

    /// DUR-9: a deleted session is deleted and not damaged, whatever of its log before the tombstone is erased already, and one
    /// that was created anew on top of it is whole.
    #[test]
    fn dur_9_a_deleted_session_is_not_damaged() {
        let first = commit(1, Digest::ZERO, Phase::Idle, vec![created()]);
        let second = commit(2, Digest::of(&first), Phase::Idle, Vec::new());
        let deleted = Event::SessionDeleted {
            by: owner(),
            turns: 0,
            queued: 0,
            approvals: Vec::new(),
            keys: Vec::new(),
            spent: Vec::new(),
        };
        let tombstone = commit(3, Digest::of(&second), Phase::Deleted, vec![deleted]);
        let anew = commit(4, Digest::of(&tombstone), Phase::Idle, vec![created()]);
        let log = [first, second, tombstone, anew];
        for (from, to, want) in [
            (0, 3, (0, 0)),
            (1, 3, (0, 0)),
            (2, 3, (0, 0)),
            (2, 4, (1, 0)),
            (3, 4, (1, 1)),
        ] {
            assert_eq!(health_of(&log[from..to]), want, "{from}..{to}");
        }
    }
}
