//! Which sessions this process runs, with the doorbells that it holds for them and what it has promised.
//!
//! A doorbell of a session that runs here is noted, not acked: this process may have lost the session without knowing. It is
//! acked once a commit or a reading of the log, later than its arrival, has proven the claim; what was promised is owed until
//! the cursor has reached it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use teamster_mesh::bell::{Releaser, Ring};
use teamster_protocol::{Cursor, Lane, SessionId, commit::Bell};
use tokio::sync::Notify;

/// All runs of this process.
#[derive(Default)]
pub(super) struct Desk(Mutex<HashMap<SessionId, Arc<Entry>>>);

/// One run.
pub(super) struct Entry {
    inner: Mutex<Inner>,
    /// Rung when a doorbell came in, so that a generation or a call that runs can be stopped.
    pub(super) wake: Notify,
    /// The lease: the doorbell that began the run.
    pub(super) lease: Bell,
    /// Whether the lease is a kick.
    pub(super) is_kick: bool,
}

struct Inner {
    rings: Vec<Arc<Held>>,
    /// The lease and everything that came later and is not dealt with.
    promise: Cursor,
    /// Whether a doorbell was acked on the strength of a promise: then giving up must ring anew.
    has_acked: bool,
}

/// A doorbell that is held, and the credit that it uses up.
pub(super) struct Held {
    pub(super) ring: Ring,
    credit: Releaser,
}

impl Held {
    pub(super) fn new(ring: Ring, credit: Releaser) -> Self {
        Self { ring, credit }
    }

    pub(super) fn bell(&self) -> Bell {
        Bell {
            lane: self.ring.lane,
            seq: self.ring.seq,
        }
    }

    /// Gives the credit back; the doorbell comes back when its lease lapses.
    pub(super) fn forget(&self) {
        self.credit.release();
    }

    /// Dealt with.
    pub(super) async fn ack(&self) {
        self.ring.ack().await;
        self.forget();
    }

    /// Somebody else shall have it, after `delay`.
    pub(super) async fn give_back(&self, delay: std::time::Duration) {
        self.ring.nak(delay).await;
        self.forget();
    }
}

/// What became of a doorbell.
pub(super) enum Admitted {
    /// It began a run.
    New(Arc<Entry>),
    /// Its session runs here; this many are held for it now.
    Noted(Arc<Entry>, usize),
}

impl Desk {
    /// Takes a doorbell in.
    pub(super) fn admit(&self, held: Held) -> Admitted {
        let mut runs = self.runs();
        let session = held.ring.session.clone();
        if let Some(entry) = runs.get(&session) {
            let count = entry.note(held);
            return Admitted::Noted(Arc::clone(entry), count);
        }
        let entry = Arc::new(Entry::new(held));
        runs.insert(session, Arc::clone(&entry));
        Admitted::New(entry)
    }

    /// Ends a run if everything that it promised is dealt with, and returns the doorbells to ack; else `None`.
    pub(super) fn close(
        &self,
        session: &SessionId,
        entry: &Entry,
        is_done: impl Fn(&Cursor) -> bool,
    ) -> Option<Vec<Arc<Held>>> {
        let mut runs = self.runs();
        let mut inner = entry.inner();
        if !is_done(&inner.promise) {
            return None;
        }
        runs.remove(session);
        Some(std::mem::take(&mut inner.rings))
    }

    /// Ends a run in any case, and returns its doorbells with what it had promised.
    pub(super) fn abandon(&self, session: &SessionId, entry: &Entry) -> (Vec<Arc<Held>>, Cursor) {
        let mut runs = self.runs();
        let mut inner = entry.inner();
        runs.remove(session);
        (std::mem::take(&mut inner.rings), inner.promise)
    }

    /// The run of a session.
    pub(super) fn get(&self, session: &SessionId) -> Option<Arc<Entry>> {
        self.runs().get(session).cloned()
    }

    /// All sessions that run here.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.runs().keys().cloned().collect()
    }

    /// All doorbells that are held.
    pub(super) fn rings(&self) -> Vec<Arc<Held>> {
        let entries: Vec<Arc<Entry>> = self.runs().values().cloned().collect();
        entries
            .iter()
            .flat_map(|entry| entry.inner().rings.clone())
            .collect()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(held: Held) -> Self {
        let lease = held.bell();
        let mut promise = Cursor::default();
        if !held.ring.is_kick {
            promise.advance(lease.lane, lease.seq);
        }
        let is_kick = held.ring.is_kick;
        let inner = Inner {
            rings: vec![Arc::new(held)],
            promise,
            has_acked: false,
        };
        Self {
            inner: Mutex::new(inner),
            wake: Notify::new(),
            lease,
            is_kick,
        }
    }

    fn note(&self, held: Held) -> usize {
        let mut inner = self.inner();
        if !held.ring.is_kick {
            inner.promise.advance(held.ring.lane, held.ring.seq);
        }
        inner.rings.push(Arc::new(held));
        self.wake.notify_one();
        inner.rings.len()
    }

    /// Notes the word given to a peer.
    pub(super) fn promise(&self, lane: Lane, seq: u64) {
        let mut inner = self.inner();
        inner.promise.advance(lane, seq);
        inner.has_acked = true;
        self.wake.notify_one();
    }

    /// What is promised.
    pub(super) fn promised(&self) -> Cursor {
        self.inner().promise
    }

    /// The doorbells that are held now, the lease excepted: a proof of the claim that is made after this may ack them.
    pub(super) fn waiting(&self) -> Vec<Arc<Held>> {
        self.inner()
            .rings
            .iter()
            .filter(|held| held.bell() != self.lease)
            .cloned()
            .collect()
    }

    /// All doorbells that are held now.
    pub(super) fn held(&self) -> Vec<Arc<Held>> {
        self.inner().rings.clone()
    }

    /// Lets go of doorbells that are about to be acked.
    pub(super) fn release(&self, acked: &[Arc<Held>]) {
        let mut inner = self.inner();
        inner.has_acked |= !acked.is_empty();
        inner
            .rings
            .retain(|held| !acked.iter().any(|other| Arc::ptr_eq(held, other)));
    }

    /// Whether somebody has let a doorbell go on this process's word.
    pub(super) fn has_promised_to_peers(&self) -> bool {
        self.inner().has_acked
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
