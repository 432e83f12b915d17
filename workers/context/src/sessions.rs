//! Sessions as their logs say: folded once, then only what is new is read.

use std::sync::{Mutex, PoisonError};

use teamster_core::turn::{Fold, State, admin::read_base, kept::Kept};
use teamster_mesh::{Mesh, log::Stored};
use teamster_protocol::{Digest, Fault, SessionId};
use tokio::time::{Instant, timeout_at};

use crate::error;

/// The sessions that are folded in memory.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Kept>);

/// A session's state, out of the memory while it is looked at.
pub(crate) struct Held {
    state: Box<State>,
    /// Whether it is the newest that is known, and so worth keeping.
    is_newest: bool,
}

impl Held {
    pub(crate) fn state(&self) -> &State {
        &self.state
    }
}

impl Sessions {
    /// A session's state at commit `upto`, or at the newest. Waits for a commit that is not there yet.
    pub(crate) async fn at(
        &self,
        mesh: &Mesh,
        session: &SessionId,
        upto: Option<u64>,
        until: Instant,
    ) -> Result<Held, Fault> {
        let late = || error::not_yet(session, upto.unwrap_or_default());
        // Boxed: a state is large, and so is what reads one.
        timeout_at(until, Box::pin(self.read(mesh, session, upto)))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// Keeps what was looked at for the next question.
    pub(crate) fn keep(&self, held: Held) {
        if held.is_newest {
            self.kept().put(*held.state);
        }
    }

    async fn read(
        &self,
        mesh: &Mesh,
        session: &SessionId,
        upto: Option<u64>,
    ) -> Result<Held, Fault> {
        let known = self.kept().take(session);
        let (known, newer) = match known {
            Some(state) if upto.is_some_and(|upto| state.n > upto) => (None, Some(state)),
            known => (known, None),
        };
        let is_newest = newer.is_none();
        if let Some(newer) = newer {
            // An older state is asked for: it is folded anew.
            self.kept().put(newer);
        }
        let mut state = newest(mesh, session, known, upto).await?;
        if let Some(upto) = upto
            && state.n < upto
        {
            state = wait(mesh, state, upto).await?;
        }
        supply(mesh, &mut state).await?;
        Ok(Held {
            state: Box::new(state),
            is_newest,
        })
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known and what came after it, or the whole log where that does not follow.
async fn newest(
    mesh: &Mesh,
    session: &SessionId,
    known: Option<State>,
    upto: Option<u64>,
) -> Result<State, Fault> {
    let Some(tail) = mesh.log().tail(session).await? else {
        return Err(error::no_session(session));
    };
    if let Some(state) = known {
        if tail.seq == state.seq && Digest::of(&tail.body) == state.hash {
            return Ok(state);
        }
        // A log that was deleted and begun again does not follow from what is known.
        if tail.seq > state.seq
            && let Ok(state) = fold(mesh, state, tail.seq, upto).await?
        {
            return Ok(state);
        }
    }
    fold(mesh, State::new(session.clone()), tail.seq, upto)
        .await?
        .map_err(|why| error::damaged(session, why))
}

/// A state and the commits after it, up to commit `upto`; or why they do not follow.
async fn fold(
    mesh: &Mesh,
    state: State,
    tail_seq: u64,
    upto: Option<u64>,
) -> Result<Result<State, String>, Fault> {
    let session = state.session.clone();
    let after = state.seq;
    let stored = mesh.log().read(&session, after, tail_seq).await?;
    Ok(take(state, &stored, upto))
}

fn take(state: State, stored: &[Stored], upto: Option<u64>) -> Result<State, String> {
    let mut fold = Fold::new(state);
    for one in stored {
        if upto.is_some_and(|upto| fold.n() >= upto) {
            break;
        }
        fold.take(&one.body, one.seq);
    }
    fold.finish().map_err(|damage| damage.why)
}

/// A fork begins with stored messages, which its log only names.
async fn supply(mesh: &Mesh, state: &mut State) -> Result<(), Fault> {
    let Some(base) = state.missing().copied() else {
        return Ok(());
    };
    let bytes = mesh.blobs().get(&base.value).await?;
    let bytes = bytes.ok_or_else(|| error::history_lost(&state.session, "it is not there"))?;
    let messages =
        read_base(&bytes, base.messages).map_err(|why| error::history_lost(&state.session, why))?;
    state.supply(messages);
    Ok(())
}

/// Follows the log until it holds commit `upto`.
async fn wait(mesh: &Mesh, mut state: State, upto: u64) -> Result<State, Fault> {
    let session = state.session.clone();
    let mut follow = mesh.log().follow_session(&session, state.seq).await?;
    while state.n < upto {
        let Some(next) = follow.next().await else {
            return Err(error::not_yet(&session, upto));
        };
        let (_, stored) = next?;
        if stored.seq > state.seq {
            state =
                take(state, &[stored], Some(upto)).map_err(|why| error::damaged(&session, why))?;
        }
    }
    Ok(state)
}
