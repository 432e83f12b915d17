//! What is known from outside of a log of what it must hold: the second copy of its head, and its snapshot's mark.
//!
//! A log that lost its end looks like a younger one to whoever reads it alone. So everybody who says whether a log is whole, or that a
//! session stands still, holds it against its witnesses. A witness is older than the log that it is held against: it is read first.
//!
//! Never: what is made of a log that is not whole.

use teamster_core::turn::State;
use teamster_mesh::{Error, Mesh, head::Head, snap::Mark};
use teamster_protocol::{Digest, SessionId};

/// A commit that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Witness {
    /// Its number.
    pub(crate) n: u64,
    /// Its stream sequence.
    pub(crate) seq: u64,
    /// SHA-256 of its bytes.
    pub(crate) hash: Digest,
    /// When it was made, in milliseconds since 1970; later than any acceptance where nobody knows.
    pub(crate) at_ms: u64,
}

impl Witness {
    /// What a state says about the log that it was folded from.
    pub(crate) fn of(state: &State) -> Self {
        Self {
            n: state.n,
            seq: state.seq,
            hash: state.hash,
            at_ms: state.at_ms,
        }
    }

    /// Whether what it saw need not be there: an operator has accepted its loss, or the session was deleted since.
    pub(crate) fn is_overruled(&self, state: &State) -> bool {
        let is_lost = state
            .loss
            .is_some_and(|loss| self.n >= loss.from && self.at_ms <= loss.at_ms);
        let is_erased = state
            .deleted
            .is_some_and(|tombstone| self.n < tombstone.n && self.seq < tombstone.seq);
        is_lost || is_erased
    }

    /// What is wrong with a log that ends at `last` and does not hold what it saw.
    pub(crate) fn words(&self, last: u64) -> String {
        let (n, seq) = (self.n, self.seq);
        if seq > last {
            format!("it ends at sequence {last}, but commit {n} was stored at sequence {seq}")
        } else {
            format!("commit {n} was stored at sequence {seq}, and nothing can be read there")
        }
    }
}

/// What is wrong with a log that folds, by its witnesses; `None` if it holds what they saw. `log` is what can be read of it, with the
/// sequences, and `state` what it folds to.
pub(crate) fn missing(seen: &[Witness], log: &[(u64, &[u8])], state: &State) -> Option<String> {
    let last = log.last().map_or(0, |(seq, _)| *seq);
    seen.iter()
        .filter(|witness| !witness.is_overruled(state))
        .find_map(|witness| {
            let found = log.iter().find(|(seq, _)| *seq == witness.seq);
            match found {
                Some((_, bytes)) if Digest::of(bytes) == witness.hash => None,
                Some(_) => Some(replaced(witness.n)),
                None => Some(witness.words(last)),
            }
        })
}

/// Something else lies where a commit was stored.
pub(crate) fn replaced(n: u64) -> String {
    format!("commit {n} is not what was stored")
}

impl From<&Mark> for Witness {
    fn from(mark: &Mark) -> Self {
        Self {
            n: mark.n,
            seq: mark.seq,
            hash: mark.hash,
            at_ms: u64::MAX,
        }
    }
}

impl From<&Head> for Witness {
    fn from(head: &Head) -> Self {
        Self {
            n: head.n,
            seq: head.seq,
            hash: head.hash,
            at_ms: head.at_ms,
        }
    }
}

/// What the second copy of a session's head says. Without it there is one witness less.
pub(crate) async fn head(mesh: &Mesh, session: &SessionId) -> Option<Witness> {
    match mesh.heads().get(session).await {
        Ok(head) => head.map(|head| Witness::from(&head)),
        Err(error) => {
            tracing::warn!(%session, error = %teamster_telemetry::chain(&error), "the second copy of a head cannot be read");
            None
        }
    }
}

/// All witnesses of a log outside of it. A snapshot that is none is one less.
pub(crate) async fn all(mesh: &Mesh, session: &SessionId) -> Result<Vec<Witness>, Error> {
    let snaps = mesh.snaps();
    let (head, snapshot) = tokio::join!(head(mesh, session), snaps.get(session));
    let snapshot = match snapshot {
        Err(Error::Malformed { .. }) => None,
        snapshot => snapshot?,
    };
    let mark = snapshot.map(|found| Witness::from(&found.mark));
    Ok([head, mark].into_iter().flatten().collect())
}
