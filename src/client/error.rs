//! What can go wrong for a client.

use teamster_protocol::{Fault, commit, id};

/// The one error of the client. A variant names the failed action.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The broker could not be reached or refused.
    #[error("the mesh did not do what was asked")]
    Mesh(#[source] teamster_mesh::Error),
    /// A function answered with a fault.
    #[error("{0}")]
    Fault(Fault),
    /// An answer is not of the form that this build reads.
    #[error("the answer of {function} is not of a form that this build reads")]
    Reply {
        /// Who answered.
        function: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A request could not be written as JSON.
    #[error("the request for {function} cannot be written")]
    Request {
        /// Who was asked.
        function: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A name that was built in is not a valid id: a bug.
    #[error("a built-in name is not valid")]
    Name(#[source] id::ParseError),
    /// A stored commit cannot be read: it is damaged, or a newer version wrote it.
    #[error("commit at sequence {seq} of session {session} cannot be read")]
    Commit {
        /// The session.
        session: String,
        /// The commit's stream sequence.
        seq: u64,
        /// Why.
        #[source]
        source: commit::ReadError,
    },
    /// The session has no log.
    #[error("there is no session {0}")]
    NoSession(String),
    /// The worker that answers a question does not run.
    #[error("nobody runs the worker {0}")]
    NoWorker(&'static str),
    /// The log could not be followed any longer.
    #[error("the log could not be read for {seconds} s")]
    Lost {
        /// How long it was tried.
        seconds: u64,
        /// The last failure.
        #[source]
        source: teamster_mesh::Error,
    },
    /// The reader ended while it was needed: the connection was closed.
    #[error("the connection to the mesh was closed")]
    Closed,
}

impl Error {
    /// Whether a newer build wrote what cannot be read.
    pub(crate) fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::Commit {
                source: commit::ReadError::Version(_),
                ..
            }
        )
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
