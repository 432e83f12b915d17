//! From where a session could be gone on whose words fill the window: a commit up to which less had been said.

use std::sync::Arc;

use teamster_core::{
    context::{of_bytes, of_message},
    turn::{Fold, State, admin::is_tombstone},
};
use teamster_mesh::Mesh;
use teamster_protocol::{Commit, Event, Fault, Message, SessionId};
use tokio::time::{Instant, timeout_at};

/// Tokens that are counted for a result: what a mark in its place takes, about.
const MARK: u64 = 64;

/// The last commit that ends a turn, or begins a fork, up to which what was said takes `tokens_max` estimated tokens at most, with
/// all results left out. `None`: there is none, or the log could not be read in time.
pub(crate) async fn commit(
    mesh: &Mesh,
    session: &SessionId,
    tokens_max: u64,
    until: Instant,
) -> Option<u64> {
    let found = timeout_at(until, read(mesh, session, tokens_max)).await;
    match found {
        Ok(Ok(commit)) => commit,
        Ok(Err(error)) => {
            tracing::debug!(%session, %error, "it is not known from where the session could be gone on");
            None
        }
        Err(_) => None,
    }
}

async fn read(mesh: &Mesh, session: &SessionId, tokens_max: u64) -> Result<Option<u64>, Fault> {
    let Some(tail) = mesh.log().tail(session).await? else {
        return Ok(None);
    };
    let mut fold = Fold::new(State::new(session.clone()));
    let mut said = Said::default();
    for stored in mesh.log().read(session, 0, tail.seq).await? {
        if let Some(commit) = fold.take(&stored.body, stored.seq) {
            said.take(&commit, &fold.unload(), tokens_max);
        }
    }
    Ok(said.last)
}

/// What was said up to a commit.
#[derive(Default)]
struct Said {
    tokens: u64,
    /// The last commit that could be gone on from.
    last: Option<u64>,
}

impl Said {
    fn take(&mut self, commit: &Commit, added: &[Arc<Message>], tokens_max: u64) {
        if is_tombstone(commit) {
            *self = Self::default();
            return;
        }
        self.tokens += added.iter().map(|message| tokens(message)).sum::<u64>();
        let mut is_end = false;
        for event in &commit.events {
            match event {
                Event::SessionForked { fork, .. } => {
                    self.tokens += of_bytes(fork.transcript.bytes);
                    is_end = true;
                }
                Event::TurnEnded { .. } => is_end = true,
                _ => {}
            }
        }
        if is_end && self.tokens <= tokens_max {
            self.last = Some(commit.n);
        }
    }
}

fn tokens(message: &Message) -> u64 {
    match message {
        Message::FunctionResult { .. } => MARK.min(of_message(message)),
        message => of_message(message),
    }
}
