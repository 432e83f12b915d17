//! The inbox: what waits for a person, folded from the log in memory. Bounded; what does not fit is still decided by its
//! id, from the log.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use teamster_protocol::{
    ApprovalId, Commit, SessionId,
    function::approval::{DamagedLog, GetReply, Pending},
    limits, text,
};
use tokio::sync::watch;

use crate::ledger::Ledger;

/// Sessions with damaged logs that one answer names.
const DAMAGED_LISTED_MAX: usize = 100;

/// The sessions that have or had open requests, each up to a sequence of its log.
pub(crate) struct Inbox {
    sessions: Mutex<Sessions>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Sessions {
    tracked: HashMap<SessionId, Tracked>,
    /// Bytes of arguments in all ledgers.
    bytes: usize,
    /// Counts the foldings; the greatest is the latest.
    clock: u64,
    /// Sessions of whose logs not everything can be read, and what is wrong.
    damaged: BTreeMap<SessionId, String>,
}

#[derive(Default)]
struct Tracked {
    /// The last sequence that is folded.
    seq: u64,
    ledger: Ledger,
    /// Bytes of arguments in the ledger.
    bytes: usize,
    touched: u64,
}

/// A request as the inbox or the log has it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The request and what became of it.
    pub(crate) entry: GetReply,
    /// The session's workspace.
    pub(crate) workspace: Option<String>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            sessions: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Inbox {
    /// The last sequence of a session that is folded; 0 for a session that is not tracked.
    pub(crate) fn seq(&self, session: &SessionId) -> u64 {
        self.lock()
            .tracked
            .get(session)
            .map_or(0, |tracked| tracked.seq)
    }

    /// Whether a session has open requests here.
    pub(crate) fn is_waiting(&self, session: &SessionId) -> bool {
        self.lock()
            .tracked
            .get(session)
            .is_some_and(|tracked| tracked.ledger.open().next().is_some())
    }

    /// Takes in commits of a session, in order; those that are folded already change nothing.
    pub(crate) fn fold<'a>(
        &self,
        session: &SessionId,
        commits: impl IntoIterator<Item = (u64, &'a Commit)>,
    ) {
        let mut sessions = self.lock();
        sessions.clock += 1;
        let clock = sessions.clock;
        let mut tracked = sessions.take(session).unwrap_or_default();
        tracked.touched = clock;
        for (seq, commit) in commits {
            if seq > tracked.seq {
                tracked.ledger.apply(session, commit);
                tracked.seq = seq;
            }
        }
        tracked.ledger.forget_resolved(limits::INBOX_DECIDED_MAX);
        tracked.bytes = tracked.ledger.bytes();
        sessions.put(session, tracked);
        sessions.make_room(session);
        drop(sessions);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Notes what is wrong with a session's log, or that nothing is.
    pub(crate) fn note_damage(&self, session: &SessionId, why: Option<String>) {
        let mut sessions = self.lock();
        match why {
            Some(why) if sessions.damaged.len() < limits::INBOX_SESSIONS_MAX => {
                sessions.damaged.insert(session.clone(), why);
            }
            Some(_) => {}
            None => drop(sessions.damaged.remove(session)),
        }
    }

    /// The sessions of whose logs not everything can be read, of one session or of all.
    pub(crate) fn damaged(&self, session: Option<&SessionId>) -> Vec<DamagedLog> {
        let sessions = self.lock();
        let mine = sessions.damaged.iter();
        mine.filter(|(id, _)| session.is_none_or(|wanted| wanted == *id))
            .take(DAMAGED_LISTED_MAX)
            .map(|(id, why)| DamagedLog {
                session_id: id.clone(),
                message: text::cut(why, limits::FAULT_TEXT_BYTES_MAX),
            })
            .collect()
    }

    /// Forgets a session.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.note_damage(session, None);
        self.lock().take(session);
        self.changed.send_modify(|version| *version += 1);
    }

    /// What waits at `now_ms` (milliseconds since 1970), oldest first, of one session or of all. A request whose time is
    /// over is left out, even before the log says so.
    pub(crate) fn list(&self, session: Option<&SessionId>, now_ms: u64) -> Vec<Pending> {
        let sessions = self.lock();
        let mut open: Vec<&Pending> = sessions
            .tracked
            .iter()
            .filter(|(id, _)| session.is_none_or(|wanted| wanted == *id))
            .flat_map(|(_, tracked)| tracked.ledger.open())
            .filter(|pending| now_ms < pending.expires_at_ms)
            .collect();
        open.sort_by(|one, two| {
            (one.requested_at_ms, &one.approval_id).cmp(&(two.requested_at_ms, &two.approval_id))
        });
        let mut bytes = 0;
        open.into_iter()
            .take(limits::APPROVALS_LISTED_MAX)
            .take_while(|pending| {
                bytes += pending.arguments.as_str().len();
                bytes <= limits::APPROVALS_LISTED_BYTES_MAX
            })
            .cloned()
            .collect()
    }

    /// One request, if it is here.
    pub(crate) fn find(&self, approval: &ApprovalId) -> Option<Found> {
        self.lock().tracked.values().find_map(|tracked| {
            Some(Found {
                entry: tracked.ledger.get(approval)?.clone(),
                workspace: tracked.ledger.workspace().map(str::to_owned),
            })
        })
    }

    /// Changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    fn put(&mut self, session: &SessionId, tracked: Tracked) {
        self.bytes += tracked.bytes;
        self.tracked.insert(session.clone(), tracked);
    }

    fn take(&mut self, session: &SessionId) -> Option<Tracked> {
        let tracked = self.tracked.remove(session)?;
        self.bytes = self.bytes.saturating_sub(tracked.bytes);
        Some(tracked)
    }

    /// Lets sessions go until the bounds hold: those without open requests first, then those that were touched longest ago,
    /// `kept` never.
    fn make_room(&mut self, kept: &SessionId) {
        while self.tracked.len() > limits::INBOX_SESSIONS_MAX
            || self.bytes > limits::INBOX_BYTES_MAX
        {
            let victim = self
                .tracked
                .iter()
                .filter(|(id, _)| *id != kept)
                .map(|(id, tracked)| {
                    let is_open = tracked.ledger.open().next().is_some();
                    (is_open, tracked.touched, id)
                })
                .min()
                .map(|(is_open, _, id)| (is_open, id.clone()));
            let Some((is_open, id)) = victim else {
                return;
            };
            if is_open {
                tracing::warn!(session = %id, "the inbox is full; the requests of a session are no longer listed");
            }
            self.take(&id);
        }
    }
}

#[cfg(test)]
mod tests;
