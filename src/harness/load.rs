//! A session's state from its log, with the snapshot as a shortcut and as the witness of what the log must hold.

use teamster_core::turn::{
    State,
    state::{FOLD_VERSION, FoldError},
};
use teamster_mesh::{
    Mesh,
    log::Stored,
    snap::{Mark, Snapshot},
};
use teamster_protocol::{Commit, Digest, SessionId, commit::ReadError};

/// Why a session cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The broker could not be asked.
    #[error("the log could not be read")]
    Mesh(#[from] teamster_mesh::Error),
    /// The log is not what it was known to be: the session stops until an operator has looked.
    #[error("the log is damaged: {0}")]
    Damaged(String),
}

impl From<FoldError> for Error {
    fn from(error: FoldError) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        Self::Damaged(teamster_telemetry::chain(&error))
    }
}

/// Reads what is new since `known`, or everything.
pub(super) async fn load(
    mesh: &Mesh,
    session: &SessionId,
    known: Option<State>,
) -> Result<State, Error> {
    let log = mesh.log();
    let Some(state) = known else {
        return from_broker(mesh, session).await;
    };
    let tail = log.tail(session).await?;
    let tail_seq = tail.as_ref().map_or(0, |stored| stored.seq);
    if tail_seq < state.seq {
        return Err(Error::Damaged(format!(
            "it went back from sequence {} to {tail_seq}",
            state.seq
        )));
    }
    if let Some(tail) = &tail
        && tail.seq == state.seq
        && Digest::of(&tail.body) != state.hash
    {
        return Err(Error::Damaged(format!(
            "commit {} is not what it was",
            state.n
        )));
    }
    extend(mesh, state, tail_seq).await
}

/// Reads a session that nothing is known of.
async fn from_broker(mesh: &Mesh, session: &SessionId) -> Result<State, Error> {
    let (log, snaps) = (mesh.log(), mesh.snaps());
    let seq = |tail: Option<Stored>| tail.map_or(0, |stored| stored.seq);
    let (tail, snapshot) = tokio::join!(log.tail(session), snaps.get(session));
    let (mut tail_seq, snapshot) = (seq(tail?), snapshot?);
    if let Some(Snapshot { mark, .. }) = &snapshot
        && mark.seq > tail_seq
    {
        // An owner may have moved between the two readings. A log that is shorter than its snapshot still is when it is read
        // after it.
        tail_seq = seq(log.tail(session).await?);
    }
    let state = begin(mesh, session, snapshot.as_ref(), tail_seq).await?;
    if let Some(Snapshot { mark, .. }) = &snapshot
        && state.n < mark.n
    {
        return Err(Error::Damaged(format!(
            "it ends at commit {}, but commit {} was stored",
            state.n, mark.n
        )));
    }
    Ok(state)
}

async fn extend(mesh: &Mesh, mut state: State, upto: u64) -> Result<State, Error> {
    if state.seq < upto {
        for stored in mesh.log().read(&state.session, state.seq, upto).await? {
            absorb(&mut state, &stored)?;
        }
    }
    Ok(state)
}

async fn begin(
    mesh: &Mesh,
    session: &SessionId,
    snapshot: Option<&Snapshot>,
    tail_seq: u64,
) -> Result<State, Error> {
    let Some(Snapshot { mark, state }) = snapshot else {
        return extend(mesh, State::new(session.clone()), tail_seq).await;
    };
    if mark.seq > tail_seq {
        return Err(Error::Damaged(format!(
            "it ends at sequence {tail_seq}, but sequence {} was stored",
            mark.seq
        )));
    }
    let folded = state.as_ref().and_then(|bytes| read_snapshot(bytes, mark));
    let after = if folded.is_some() {
        mark.seq.saturating_sub(1)
    } else {
        0
    };
    let mut state = folded
        .clone()
        .unwrap_or_else(|| State::new(session.clone()));
    let mut is_witnessed = false;
    for stored in mesh.log().read(session, after, tail_seq).await? {
        if stored.seq == mark.seq {
            if Digest::of(&stored.body) != mark.hash {
                return Err(Error::Damaged(format!(
                    "commit {} is not what was stored",
                    mark.n
                )));
            }
            is_witnessed = true;
            if folded.is_some() {
                continue;
            }
        }
        absorb(&mut state, &stored)?;
    }
    if is_witnessed {
        Ok(state)
    } else {
        Err(Error::Damaged(format!("commit {} is gone", mark.n)))
    }
}

/// A snapshot of another version of the fold is worth nothing; the log is folded anew.
fn read_snapshot(bytes: &[u8], mark: &Mark) -> Option<State> {
    let (version, state): (u32, State) = serde_json::from_slice(bytes).ok()?;
    (version == FOLD_VERSION
        && state.n == mark.n
        && state.seq == mark.seq
        && state.hash == mark.hash)
        .then_some(state)
}

/// The body of a snapshot.
pub(super) fn write_snapshot(state: &State) -> Option<Vec<u8>> {
    serde_json::to_vec(&(FOLD_VERSION, state)).ok()
}

fn absorb(state: &mut State, stored: &Stored) -> Result<(), Error> {
    let commit = Commit::decode(&stored.body)?;
    state.absorb(&commit, Digest::of(&stored.body), stored.seq)?;
    Ok(())
}
