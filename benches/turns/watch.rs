//! Turns' ends as a client sees them: read from the sessions' logs, after they are stored.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use teamster_mesh::{Mesh, log::From};
use teamster_protocol::SessionId;
use teamster_telemetry::task;
use tokio::{sync::oneshot, task::JoinHandle};

type Waiting = Arc<Mutex<HashMap<SessionId, oneshot::Sender<Instant>>>>;

/// Follows the logs of all sessions.
pub(crate) struct Watch {
    waiting: Waiting,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Begins; nothing that is stored from the return on is missed.
    pub(crate) async fn start(mesh: &Mesh) -> Self {
        let mut follow = mesh
            .log()
            .follow(From::New, true)
            .await
            .expect("follows the logs");
        let waiting = Waiting::default();
        let shared = Arc::clone(&waiting);
        let task = task::spawn("benchmark watches the logs", async move {
            while let Some(next) = follow.next().await {
                let (session, stored) = next.expect("the logs can be read");
                if is_end(&stored.body)
                    && let Some(sender) = lock(&shared).remove(&session)
                {
                    let _ = sender.send(Instant::now());
                }
            }
        });
        Self { waiting, task }
    }

    /// When the next end of a turn of the session is seen.
    pub(crate) fn end_of(&self, session: &SessionId) -> oneshot::Receiver<Instant> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).insert(session.clone(), sender);
        receiver
    }
}

fn lock(
    waiting: &Waiting,
) -> std::sync::MutexGuard<'_, HashMap<SessionId, oneshot::Sender<Instant>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a commit ends a turn. Quotes inside of texts are escaped, so that no text looks like an event.
fn is_end(body: &[u8]) -> bool {
    let wanted: &[u8] = b"\"type\":\"turn_ended\"";
    body.windows(wanted.len()).any(|window| window == wanted)
}
