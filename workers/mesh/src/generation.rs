//! Finished completions that are not committed yet, by request id.

use async_nats::HeaderMap;
use teamster_protocol::{RequestId, SessionId, function::router::Completion, subject};

use crate::{
    Error,
    connection::Mesh,
    topology::GENERATIONS,
    wire::{Get, code},
};

/// The stream GENERATIONS, through one worker's connection.
#[derive(Clone)]
pub struct Generations {
    mesh: Mesh,
}

impl Generations {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// Keeps a completion; does not wait for the acknowledgement (losing it costs money, not truth), but everything that
    /// this connection sends afterwards arrives after it.
    pub async fn put(&self, request: &RequestId, completion: &Completion) -> Result<(), Error> {
        let body = serde_json::to_vec(completion).map_err(|error| Error::Malformed {
            what: format!("the completion of {request}"),
            source: Box::new(error),
        })?;
        self.mesh
            .wire()
            .tell(subject::generation(request), None::<HeaderMap>, body.into())
            .await
            .map_err(|failure| failure.during(format!("keeping the completion of {request}")))
    }

    /// The kept completion. A stream that is lost with the memory of its server keeps nothing.
    pub async fn get(&self, request: &RequestId) -> Result<Option<Completion>, Error> {
        let subject = subject::generation(request);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        let found = match self.mesh.wire().get(GENERATIONS, &get).await {
            Ok(found) => found,
            Err(failure) if failure.number() == Some(code::STREAM_NOT_FOUND) => None,
            Err(failure) => {
                return Err(failure.during(format!("reading the completion of {request}")));
            }
        };
        found
            .map(|message| {
                serde_json::from_slice(&message.body).map_err(|error| Error::Malformed {
                    what: format!("the kept completion of {request}"),
                    source: Box::new(error),
                })
            })
            .transpose()
    }

    /// Drops all completions of a session, whose turn has ended: they are committed. Does not wait.
    pub async fn remove(&self, session: &SessionId) {
        let filter = subject::generations(session);
        let body = serde_json::json!({"filter": filter}).to_string();
        let purge = format!("$JS.API.STREAM.PURGE.{GENERATIONS}");
        if let Err(failure) = self.mesh.wire().tell(purge, None, body.into()).await {
            tracing::debug!(%session, error = %failure, "committed completions are kept until they are too old");
        }
    }
}
