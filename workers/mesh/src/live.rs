//! Deltas of what is being generated. At most once; a reader sees gaps by the frames' numbers.

use teamster_protocol::{SessionId, function::router::Delta, subject};

use crate::{
    Error,
    connection::Mesh,
    reader::{Read, Reader, Reads, Spec, Start, channel},
    topology::LIVE,
};

/// The stream LIVE, through one worker's connection.
#[derive(Clone)]
pub struct Live {
    mesh: Mesh,
}

/// A reader of one session's deltas.
pub struct Deltas {
    reads: Reads<()>,
    _reader: Reader,
    _mesh: Mesh,
}

impl Deltas {
    /// The next frame; `None` once the connection is closed for good. A frame that cannot be read is left out. Cancel-safe.
    pub async fn next(&mut self) -> Option<Delta> {
        loop {
            match self.reads.recv().await?.1 {
                Read::Message(message) => match serde_json::from_slice(&message.body) {
                    Ok(delta) => return Some(delta),
                    Err(error) => {
                        tracing::debug!(subject = %message.subject, %error, "a frame cannot be read");
                    }
                },
                Read::Failed(failure) => {
                    tracing::warn!(error = %failure, "frames cannot be read now");
                }
                Read::CaughtUp | Read::Restarted | Read::Began { .. } => {}
            }
        }
    }
}

impl Live {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// Publishes a frame; does not wait.
    pub async fn publish(&self, session: &SessionId, delta: &Delta) -> Result<(), Error> {
        let body = serde_json::to_vec(delta).map_err(|error| Error::Malformed {
            what: "a frame".to_owned(),
            source: Box::new(error),
        })?;
        self.mesh
            .wire()
            .tell(subject::live(session), None, body.into())
            .await
            .map_err(|failure| failure.during(format!("publishing a frame of {session}")))
    }

    /// Reads a session's frames: first those that are kept, then new ones.
    pub async fn follow(&self, session: &SessionId) -> Result<Deltas, Error> {
        Ok(self.read(session, Start::All).await)
    }

    /// Reads a session's frames that come from now on.
    pub async fn follow_new(&self, session: &SessionId) -> Result<Deltas, Error> {
        Ok(self.read(session, Start::New).await)
    }

    async fn read(&self, session: &SessionId, start: Start) -> Deltas {
        let (sink, reads) = channel();
        let spec = Spec {
            stream: LIVE.to_owned(),
            filters: vec![subject::live(session)],
            start,
            is_restarting: false,
        };
        let mut reader = Reader::spawn(self.mesh.wire(), spec, (), sink);
        if let Err(failure) = reader.opened().await {
            // The stream may be lost with the memory of its server; it comes back, and the reader with it.
            tracing::debug!(%session, error = %failure, "frames cannot be read yet");
        }
        Deltas {
            reads,
            _reader: reader,
            _mesh: self.mesh.clone(),
        }
    }
}
