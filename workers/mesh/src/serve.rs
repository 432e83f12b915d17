//! Serving a worker: endpoints, registration, drain.

use crate::{Error, connection::Mesh, function::Worker};

/// A served worker. Dropping it without [`Serving::drain`] aborts its tasks.
pub struct Serving {}

impl Serving {
    /// Ends it: takes no new calls, lets what runs come to an end within `limits::DRAIN`, stops the tasks, removes the
    /// registration.
    pub async fn drain(self) {
        todo!()
    }
}

/// Serves a worker: a NATS micro service (ADR-32) whose endpoints are its functions, registered with a lease, its hooks
/// bound. Calls run concurrently, bounded; a call says every `CALL_PROGRESS_EVERY` that it is still running, is refused
/// after its `not_after`, is answered again from memory when its id was served before, and is joined when it still runs.
pub async fn serve(mesh: Mesh, worker: Worker) -> Result<Serving, Error> {
    let _ = (mesh, worker);
    todo!()
}
