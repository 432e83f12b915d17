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

/// The next commit of a session, in wait before all workers.
pub struct Steps {
    prefix: String,
    armed: Vec<(Hold, Hold)>,
}

impl Steps {
    /// Waits for the next commit; to be called before it can come.
    pub fn before(workers: &[Worker], session: &SessionId) -> Self {
        let prefix = subject::log(session);
        let armed = arm(workers, &prefix);
        Self { prefix, armed }
    }

    /// Lets commits pass until the `nth`, and stops it.
    pub async fn stop_at(mut self, workers: &[Worker], nth: usize) -> Stop {
        for _ in 1..nth {
            self.reached().await;
            // The next is awaited before this one goes on.
            let next = arm(workers, &self.prefix);
            self.armed = next;
        }
        let writer = self.reached().await;
        let (commit, answer) = self.armed.swap_remove(writer);
        Stop {
            writer,
            commit,
            answer,
        }
    }

    async fn reached(&self) -> usize {
        let description = format!("a commit on {}", self.prefix);
        wait::some(LIMIT, &description, || async {
            self.armed
                .iter()
                .position(|(commit, _)| commit.is_reached())
        })
        .await
    }
}

fn arm(workers: &[Worker], prefix: &str) -> Vec<(Hold, Hold)> {
    let hold = |worker: &Worker| {
        (
            worker.proxy.hold_publish(prefix, 1),
            worker.proxy.hold_answer(prefix, 1),
        )
    };
    workers.iter().map(hold).collect()
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
