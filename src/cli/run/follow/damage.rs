//! What becomes of a followed message where a part of the session's log is lost: its end may stand in what nobody can read.

use std::time::Duration;

use teamster_protocol::{Commit, Event, text};
use tokio::time::Instant;

use super::Follower;
use crate::{
    cli::{exit::Exit, failure::Failure},
    client::Error,
};

/// How long nothing may come of a damaged log before it is asked whether anything will.
pub(super) const LOOK_AFTER: Duration = Duration::from_secs(2);

impl Follower<'_> {
    /// The loss was accepted of a part that holds what became of the message.
    pub(super) fn given_up(&self, commit: &Commit, brings_mine: bool) -> Option<Failure> {
        let Some(Event::LossAccepted { lost_from, .. }) = commit.events.first() else {
            return None;
        };
        let is_lost = brings_mine || self.brought_at.is_some_and(|n| n >= *lost_from);
        (is_lost && !self.session.answers(&self.message)).then(|| {
            self.untold(
                "what became of the message stood in a part of the log whose loss was accepted",
            )
        })
    }

    /// The session has come to rest, and the log did not show how the message's turn ended, because something of it is lost.
    pub(super) async fn look_for_end(&mut self) -> Option<Failure> {
        let may_miss = self.told.is_damaged || self.told.is_repeated || self.session.has_gap();
        if !(may_miss || self.is_lost) || Instant::now() < self.look_at {
            return None;
        }
        self.look_at = Instant::now() + LOOK_AFTER;
        let now = match self.client.status(&self.id).await {
            Err(Error::Fault(fault)) if fault.code == "session.log_damaged" => {
                return Some(fault.into());
            }
            now => now.ok().filter(|_| may_miss)?,
        };
        let is_present = now.commits == self.session.commits;
        (is_present && now.status == "idle" && now.queued == 0).then(|| {
            self.untold("the message was taken, and what became of it cannot be read any more: a part of the log is lost")
        })
    }

    fn untold(&self, what: &str) -> Failure {
        let session = text::operand(self.id.as_str());
        Failure::new(Exit::Failed, "session.log_damaged", what).hint(format_args!(
            "`teamster sessions show {session}` shows what is there; send the message again under another key if it is to be \
             answered"
        ))
    }
}
