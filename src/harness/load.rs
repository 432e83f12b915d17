//! A session's state from its log, with the snapshot as a shortcut, and with snapshot and second head as witnesses of what the log
//! must hold.

use teamster_core::turn::{Fold, State, fold::Damage, state::FOLD_VERSION};
use teamster_mesh::{
    Mesh,
    log::Stored,
    snap::{Mark, Snapshot},
};
use teamster_protocol::{Digest, SessionId};

use super::witness::{Witness, Witnesses};

/// Why a session cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The broker could not be asked.
    #[error("the log could not be read")]
    Mesh(#[from] teamster_mesh::Error),
    /// The log is not what it was known to be: the session stops until an operator has looked.
    #[error("the log is damaged: {0}")]
    Damaged(String),
    /// A stored value that the session begins with is not there, or is not what the log says.
    #[error("the stored value {value} cannot be used: {why}", value = value.short())]
    ValueMissing {
        /// Its digest.
        value: Digest,
        /// What is wrong.
        why: String,
    },
}

impl From<Box<Damage>> for Error {
    fn from(damage: Box<Damage>) -> Self {
        Self::Damaged(damage.why)
    }
}

/// Reads what is new since `known`, or everything. What was known and is not there any more is remembered as a witness against
/// the log.
pub(super) async fn load(
    mesh: &Mesh,
    witnesses: &Witnesses,
    session: &SessionId,
    known: Option<State>,
) -> Result<State, Error> {
    if let Some(state) = known {
        let tail = mesh.log().tail(session).await?;
        let witness = Witness::of(&state);
        match extend(mesh, state, tail.as_ref()).await {
            Err(Error::Damaged(_)) => witnesses.note(session, witness),
            other => return other,
        }
    }
    // Before the log: what it says was there then.
    let head = head(mesh, session).await;
    let (tail_seq, snapshot) = tail_and_snapshot(mesh, session).await?;
    let state = begin(mesh, session, snapshot.as_ref(), tail_seq).await?;
    let mark = snapshot.as_ref().map(|found| Witness::from(&found.mark));
    let is_seen = |witness: &Witness| {
        [Some(Witness::of(&state)), mark]
            .into_iter()
            .flatten()
            .any(|seen| (seen.n, seen.seq, seen.hash) == (witness.n, witness.seq, witness.hash))
    };
    let remembered = witnesses.of(session);
    for witness in [head, remembered].into_iter().flatten() {
        if !is_seen(&witness) && !is_overruled(&witness, &state) {
            check(mesh, session, &witness, tail_seq).await?;
        }
    }
    if remembered.is_some() {
        witnesses.forget(session);
    }
    Ok(state)
}

/// What the second copy of a session's head says. Without it there is one witness less.
async fn head(mesh: &Mesh, session: &SessionId) -> Option<Witness> {
    match mesh.heads().get(session).await {
        Ok(head) => head.map(|head| Witness::from(&head)),
        Err(error) => {
            tracing::warn!(%session, error = %teamster_telemetry::chain(&error), "the second copy of a head cannot be read");
            None
        }
    }
}

/// Where the log ends, and the snapshot, which is never taken to be newer than that.
async fn tail_and_snapshot(
    mesh: &Mesh,
    session: &SessionId,
) -> Result<(u64, Option<Snapshot>), Error> {
    let (log, snaps) = (mesh.log(), mesh.snaps());
    let seq = |tail: Option<Stored>| tail.map_or(0, |stored| stored.seq);
    let (tail, snapshot) = tokio::join!(log.tail(session), snaps.get(session));
    let (tail_seq, snapshot) = (seq(tail?), snapshot?);
    if snapshot
        .as_ref()
        .is_some_and(|found| found.mark.seq > tail_seq)
    {
        // An owner may have moved between the two readings. A log that is shorter than its snapshot still is when it is read
        // after it.
        return Ok((seq(log.tail(session).await?), snapshot));
    }
    Ok((tail_seq, snapshot))
}

/// A known state and what came after it.
async fn extend(mesh: &Mesh, state: State, tail: Option<&Stored>) -> Result<State, Error> {
    let tail_seq = tail.map_or(0, |stored| stored.seq);
    if tail_seq < state.seq {
        return Err(went_back(&Witness::of(&state), tail_seq));
    }
    if let Some(tail) = tail
        && tail.seq == state.seq
    {
        return if Digest::of(&tail.body) == state.hash {
            Ok(state)
        } else {
            Err(replaced(state.n))
        };
    }
    let after = state.seq;
    fold_from(mesh, state, after, tail_seq).await
}

async fn fold_from(mesh: &Mesh, state: State, after: u64, upto: u64) -> Result<State, Error> {
    let session = state.session.clone();
    let mut fold = Fold::new(state);
    if after < upto {
        for stored in mesh.log().read(&session, after, upto).await? {
            fold.take(&stored.body, stored.seq);
        }
    }
    Ok(fold.finish()?)
}

async fn begin(
    mesh: &Mesh,
    session: &SessionId,
    snapshot: Option<&Snapshot>,
    tail_seq: u64,
) -> Result<State, Error> {
    let Some(Snapshot { mark, state }) = snapshot else {
        return fold_from(mesh, State::new(session.clone()), 0, tail_seq).await;
    };
    let witness = Witness::from(mark);
    if mark.seq > tail_seq {
        return Err(went_back(&witness, tail_seq));
    }
    let folded = state.as_ref().and_then(|bytes| read_snapshot(bytes, mark));
    let after = if folded.is_some() {
        mark.seq.saturating_sub(1)
    } else {
        0
    };
    let is_folded = folded.is_some();
    let mut fold = Fold::new(folded.unwrap_or_else(|| State::new(session.clone())));
    let mut is_witnessed = false;
    for stored in mesh.log().read(session, after, tail_seq).await? {
        if stored.seq == mark.seq {
            if Digest::of(&stored.body) != mark.hash {
                return Err(replaced(mark.n));
            }
            is_witnessed = true;
            if is_folded {
                continue;
            }
        }
        fold.take(&stored.body, stored.seq);
    }
    let state = fold.finish()?;
    if is_witnessed || is_overruled(&witness, &state) {
        Ok(state)
    } else {
        Err(replaced(mark.n))
    }
}

/// Whether the log holds what a witness saw.
async fn check(
    mesh: &Mesh,
    session: &SessionId,
    witness: &Witness,
    tail_seq: u64,
) -> Result<(), Error> {
    if witness.seq > tail_seq {
        return Err(went_back(witness, tail_seq));
    }
    let after = witness.seq.saturating_sub(1);
    let stored = mesh.log().read(session, after, witness.seq).await?;
    let is_there = |stored: &Stored| Digest::of(&stored.body) == witness.hash;
    if stored.first().is_some_and(is_there) {
        Ok(())
    } else {
        Err(replaced(witness.n))
    }
}

/// Whether what a witness saw need not be there: an operator has accepted its loss, or the session was deleted since.
fn is_overruled(witness: &Witness, state: &State) -> bool {
    let is_lost = state
        .loss
        .is_some_and(|loss| witness.n >= loss.from && witness.at_ms <= loss.at_ms);
    let is_erased = state
        .deleted
        .is_some_and(|tombstone| witness.n < tombstone.n && witness.seq < tombstone.seq);
    is_lost || is_erased
}

fn went_back(witness: &Witness, tail_seq: u64) -> Error {
    Error::Damaged(format!(
        "it ends at sequence {tail_seq}, but commit {} was stored at sequence {}",
        witness.n, witness.seq
    ))
}

fn replaced(n: u64) -> Error {
    Error::Damaged(format!("commit {n} is not what was stored"))
}

/// A session's whole log, read past every snapshot: what is wrong with it, where its stored bytes end, and what the next commit
/// must follow. `None` as damage: nothing is wrong.
pub(super) async fn examine(
    mesh: &Mesh,
    witnesses: &Witnesses,
    session: &SessionId,
    known: Option<&State>,
) -> Result<(Option<Damage>, u64), Error> {
    let head = head(mesh, session).await;
    let (tail_seq, snapshot) = tail_and_snapshot(mesh, session).await?;
    let mut seen: Vec<Witness> = Vec::new();
    seen.extend(head);
    seen.extend(snapshot.map(|one| Witness::from(&one.mark)));
    seen.extend(known.map(Witness::of));
    seen.extend(witnesses.of(session));
    let mut missing: Vec<&Witness> = seen.iter().collect();
    let mut fold = Fold::new(State::new(session.clone()));
    if tail_seq > 0 {
        for stored in mesh.log().read(session, 0, tail_seq).await? {
            let hash = Digest::of(&stored.body);
            missing.retain(|witness| witness.seq != stored.seq || witness.hash != hash);
            fold.take(&stored.body, stored.seq);
        }
    }
    let n_max = seen.iter().map(|witness| witness.n).max().unwrap_or(0);
    let damage = match fold.finish() {
        Err(mut damage) => {
            damage.n_max = damage.n_max.max(n_max);
            Some(*damage)
        }
        Ok(state) => {
            missing.retain(|witness| !is_overruled(witness, &state));
            missing.first().map(|witness| {
                let error = if witness.seq > tail_seq {
                    went_back(witness, tail_seq)
                } else {
                    replaced(witness.n)
                };
                Damage::of(state, n_max, error.to_string())
            })
        }
    };
    Ok((damage, tail_seq))
}

/// A snapshot of another version of the fold is worth nothing; the log is folded anew.
fn read_snapshot(bytes: &[u8], mark: &Mark) -> Option<State> {
    let (version, state): (u32, State) = serde_json::from_slice(bytes).ok()?;
    let is_of_mark = state.n == mark.n && state.seq == mark.seq && state.hash == mark.hash;
    (version == FOLD_VERSION && is_of_mark).then_some(state)
}

/// The body of a snapshot.
pub(super) fn write_snapshot(state: &State) -> Option<Vec<u8>> {
    serde_json::to_vec(&(FOLD_VERSION, state)).ok()
}
