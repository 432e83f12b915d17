//! One session's log and its live deltas, as one bounded stream.
//!
//! The log part is supervised: it goes on after the last commit it saw when the broker comes back.

use std::time::Duration;

use teamster_core::turn::fold::counting;
use teamster_mesh::{Mesh, log::Stored};
use teamster_protocol::{Commit, Event, SessionId, function::router::Delta};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};

use super::{Error, decode};

/// Items that wait for a slow reader.
const WAITING_MAX: usize = 256;
/// How long the log may be unreadable before the watch gives up.
const LOST_MAX: Duration = Duration::from_mins(1);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(300);

/// What a watch brings.
#[derive(Debug)]
pub enum Item {
    /// A commit, in order, each exactly once.
    Commit {
        /// Its stream sequence.
        seq: u64,
        /// The commit.
        commit: Box<Commit>,
    },
    /// A frame of what is being generated; at most once, old ones first.
    Delta(Delta),
    /// The log cannot be read at the moment; the watch keeps trying.
    Interrupted,
    /// A commit cannot be read, and nobody has accepted that loss. The watch goes on when somebody does.
    Damaged(Box<Error>),
}

/// A reader of one session. Dropping it ends its tasks.
pub struct Watch {
    items: mpsc::Receiver<Result<Item, Error>>,
    tasks: [JoinHandle<()>; 2],
}

impl Watch {
    pub(super) fn open(mesh: Mesh, session: SessionId, after: u64) -> Self {
        let (sender, items) = mpsc::channel(WAITING_MAX);
        let log = teamster_telemetry::task::spawn(
            "log follower",
            follow_log(mesh.clone(), session.clone(), after, sender.clone()),
        );
        let live =
            teamster_telemetry::task::spawn("live follower", follow_live(mesh, session, sender));
        Self {
            items,
            tasks: [log, live],
        }
    }

    /// The next item. Cancel-safe.
    pub async fn next(&mut self) -> Result<Item, Error> {
        self.items.recv().await.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn follow_log(
    mesh: Mesh,
    session: SessionId,
    mut after: u64,
    sender: mpsc::Sender<Result<Item, Error>>,
) {
    let mut lost_since: Option<Instant> = None;
    let mut is_damaged = false;
    loop {
        let failure = match mesh.log().follow_session(&session, after).await {
            Err(error) => Some(error),
            Ok(mut follow) => loop {
                match follow.next().await {
                    None => break None,
                    Some(Err(error)) => break Some(error),
                    Some(Ok((_, stored))) => {
                        lost_since = None;
                        if stored.seq <= after {
                            continue; // a consumer that was made anew may begin earlier
                        }
                        after = stored.seq;
                        let Some(item) = read(&mesh, &session, &stored, &mut is_damaged).await
                        else {
                            continue;
                        };
                        if sender.send(Ok(item)).await.is_err() {
                            return;
                        }
                    }
                }
            },
        };
        let since = *lost_since.get_or_insert_with(Instant::now);
        if since.elapsed() > LOST_MAX {
            let error = failure.map_or(Error::Closed, |source| Error::Lost {
                seconds: LOST_MAX.as_secs(),
                source,
            });
            let _ = sender.send(Err(error)).await;
            return;
        }
        if sender.send(Ok(Item::Interrupted)).await.is_err() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a stored message is to a reader; `None` where it does not count. Behind one that cannot be read nothing counts until
/// an operator accepts the loss.
async fn read(
    mesh: &Mesh,
    session: &SessionId,
    stored: &Stored,
    is_damaged: &mut bool,
) -> Option<Item> {
    match decode(session, stored) {
        Ok(commit) => {
            let is_accepted = matches!(commit.events.first(), Some(Event::LossAccepted { .. }));
            if *is_damaged && !is_accepted {
                return None;
            }
            *is_damaged = false;
            Some(Item::Commit {
                seq: stored.seq,
                commit: Box::new(commit),
            })
        }
        Err(error) => {
            let is_first = !std::mem::replace(is_damaged, true);
            if !is_first || is_accepted(mesh, session).await {
                return None;
            }
            Some(Item::Damaged(Box::new(error)))
        }
    }
}

/// Whether what cannot be read in a log was given up by an operator. What cannot be asked now was not.
async fn is_accepted(mesh: &Mesh, session: &SessionId) -> bool {
    let log = mesh.log();
    let Ok(Some(tail)) = log.tail(session).await else {
        return false;
    };
    let Ok(stored) = log.read(session, 0, tail.seq).await else {
        return false;
    };
    let bytes: Vec<(u64, &[u8])> = stored.iter().map(|one| (one.seq, &*one.body)).collect();
    counting(session, &bytes).is_ok()
}

/// Deltas are a courtesy: where they cannot be read, the log alone tells everything.
async fn follow_live(mesh: Mesh, session: SessionId, sender: mpsc::Sender<Result<Item, Error>>) {
    loop {
        if let Ok(mut deltas) = mesh.live().follow(&session).await {
            while let Some(delta) = deltas.next().await {
                if sender.send(Ok(Item::Delta(delta))).await.is_err() {
                    return;
                }
            }
        }
        if sender.is_closed() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}
