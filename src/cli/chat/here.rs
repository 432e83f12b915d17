//! The session that is talked with: what is known of it, and what comes.

use tokio::time::Instant;

use teamster_core::turn::admin::is_tombstone;
use teamster_protocol::{ApprovalId, Phase, SessionId};

use super::past::{self, Past};
use crate::{
    cli::failure::Failure,
    client::{
        Client, Error, Item, Watch,
        session::{Happening, Session, Turn},
        stream::Stream,
    },
};

/// The session that is talked with.
pub(super) struct Here {
    pub(super) id: SessionId,
    /// Whether nothing of it is stored yet.
    pub(super) is_new: bool,
    pub(super) session: Session,
    pub(super) stream: Stream,
    /// When the running turn began, as far as this process knows.
    pub(super) since: Instant,
    /// The stream sequence of the last commit seen.
    pub(super) seq: u64,
    watch: Option<Watch>,
}

impl Here {
    /// A session that does not exist yet.
    pub(super) fn fresh(id: SessionId) -> Self {
        Self {
            id,
            is_new: true,
            session: Session::default(),
            stream: Stream::default(),
            since: Instant::now(),
            seq: 0,
            watch: None,
        }
    }

    /// A session as its log has it, and what was said in it; a fresh one where there is none under the id.
    pub(super) async fn load(client: &Client, id: SessionId) -> Result<(Self, Vec<Past>), Failure> {
        let mut here = Self::fresh(id);
        let commits = match client.commits(&here.id).await {
            Ok(commits) => commits,
            Err(Error::NoSession(_)) => return Ok((here, Vec::new())),
            Err(error) => return Err(error.into()),
        };
        let mut past = Vec::new();
        for (seq, commit) in &commits {
            here.seq = *seq;
            here.session.open(commit);
            for event in &commit.events {
                match here.session.event(&here.id, commit.at_ms, event) {
                    Some(Happening::Generating(request)) => drop(here.stream.started(&request)),
                    Some(Happening::Said { request, text }) => {
                        drop(here.stream.said(&request, &text));
                    }
                    _ => {}
                }
                past.extend(past::entry(&here.session, event));
            }
            // How it ended is of the session before.
            if is_tombstone(commit) {
                past.clear();
            }
        }
        past.splice(0..0, past::before(client, &commits).await);
        // Behind a deletion the next message begins a session anew.
        here.is_new = here.session.phase == Some(Phase::Deleted);
        if !here.is_new {
            here.listen(client);
        }
        Ok((here, past))
    }

    /// Begins to listen behind what is known, or does so anew.
    pub(super) fn listen(&mut self, client: &Client) {
        self.watch = Some(client.watch(&self.id, self.seq));
    }

    /// Whether nobody listens.
    pub(super) fn is_deaf(&self) -> bool {
        self.watch.is_none()
    }

    /// Listens no more.
    pub(super) fn deafen(&mut self) {
        self.watch = None;
    }

    /// What comes next; waits for ever where nobody listens. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Item, Error> {
        match &mut self.watch {
            Some(watch) => watch.next().await,
            None => std::future::pending().await,
        }
    }

    /// Whether a turn runs or waits for a person.
    pub(super) fn is_running(&self) -> bool {
        self.session
            .turn
            .as_ref()
            .is_some_and(|turn| turn.end.is_none())
    }

    /// Whether a turn waits for a person.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_running()
            && self
                .session
                .turn
                .as_ref()
                .is_some_and(|turn| !turn.pending.is_empty())
    }

    /// The requests that wait, oldest first.
    pub(super) fn pending(&self) -> Vec<ApprovalId> {
        let turn = self.session.turn.iter();
        turn.flat_map(Turn::waiting)
            .map(|pending| pending.approval_id.clone())
            .collect()
    }
}
