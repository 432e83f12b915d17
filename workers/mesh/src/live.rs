//! Deltas of what is being generated. At most once; a reader sees gaps by the frames' numbers.

use teamster_protocol::{SessionId, function::router::Delta};

use crate::{Error, connection::Mesh};

/// The stream LIVE, through one worker's connection.
#[derive(Clone)]
pub struct Live {
    #[expect(dead_code, reason = "skeleton")]
    mesh: Mesh,
}

/// A reader of one session's deltas.
pub struct Deltas {}

impl Deltas {
    /// The next frame; `None` once the connection is closed for good. A frame that cannot be read is left out.
    pub async fn next(&mut self) -> Option<Delta> {
        todo!()
    }
}

impl Live {
    /// Publishes a frame; does not wait.
    pub async fn publish(&self, session: &SessionId, delta: &Delta) -> Result<(), Error> {
        let _ = (session, delta);
        todo!()
    }

    /// Reads a session's frames: first those that are kept, then new ones.
    pub async fn follow(&self, session: &SessionId) -> Result<Deltas, Error> {
        let _ = session;
        todo!()
    }
}
