//! Finished completions that are not committed yet, by request id.

use teamster_protocol::{RequestId, function::router::Completion};

use crate::{Error, connection::Mesh};

/// The stream GENERATIONS, through one worker's connection.
#[derive(Clone)]
pub struct Generations {
    #[expect(dead_code, reason = "skeleton")]
    mesh: Mesh,
}

impl Generations {
    /// Keeps a completion; does not wait for the acknowledgement (losing it costs money, not truth), but everything that
    /// this connection sends afterwards arrives after it.
    pub async fn put(&self, request: &RequestId, completion: &Completion) -> Result<(), Error> {
        let _ = (request, completion);
        todo!()
    }

    /// The kept completion.
    pub async fn get(&self, request: &RequestId) -> Result<Option<Completion>, Error> {
        let _ = request;
        todo!()
    }

    /// Drops a committed completion; does not wait.
    pub async fn remove(&self, request: &RequestId) {
        let _ = request;
        todo!()
    }
}
