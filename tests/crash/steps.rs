//! Stops at the commits of a session, whichever process makes them.

use teamster_protocol::{SessionId, subject};
use teamster_testkit::{proxy::Hold, wait};

use crate::{operator::LIMIT, world::Worker};

/// Where a commit stands when its writer is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On its way to the server.
    Unsent,
    /// Stored, and its writer does not know.
    Unconfirmed,
}

/// One commit that is held on its way to the server, and behind it the server's answer.
pub struct Stop {
    /// Which of the workers makes it.
    pub writer: usize,
    commit: Hold,
    answer: Hold,
}

/// One commit of a session, in wait before all workers. It is known by its number: of two workers that both take the session,
/// the one that comes too late may publish an earlier commit at any time.
pub struct Steps {
    description: String,
    armed: Vec<(Hold, Hold)>,
}

impl Steps {
    /// Waits for the `nth` commit of the session; to be called before it can come.
    pub fn before(workers: &[Worker], session: &SessionId, nth: usize) -> Self {
        let (subject, number) = (subject::log(session), format!("\"n\":{nth},\"prev\""));
        let hold = |worker: &Worker| worker.proxy.hold_text(&subject, &number);
        Self {
            armed: workers.iter().map(hold).collect(),
            description: format!("commit {nth} on {subject}"),
        }
    }

    /// Stops that commit, of whichever worker comes with it first; the others' pass.
    pub async fn stop(mut self) -> Stop {
        let writer = wait::some(LIMIT, &self.description, || async {
            self.armed
                .iter()
                .position(|(commit, _)| commit.is_reached())
        })
        .await;
        let (commit, answer) = self.armed.swap_remove(writer);
        Stop {
            writer,
            commit,
            answer,
        }
    }
}

impl Stop {
    /// Lets the commit pass; its answer is held.
    pub fn store(&self) {
        self.commit.release();
    }

    /// Loses what is still held; its writer must be dead, or it would make it again.
    pub fn lose(self) {
        self.commit.cut();
        self.answer.cut();
    }

    /// Lets everything go on.
    pub fn pass(self) {
        drop(self);
    }
}
