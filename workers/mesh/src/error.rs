//! What can go wrong between a worker and the broker.

use teamster_protocol::{Fault, FaultClass};

/// The one error of this crate. A variant names the failed action.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection could be made.
    #[error("cannot connect to NATS at {url}")]
    Connect {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The broker refused or did not answer a request.
    #[error("{action} failed")]
    Request {
        /// What was tried.
        action: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer came in time; whether the request took effect is unknown.
    #[error("{action} had no answer in time")]
    Timeout {
        /// What was tried.
        action: String,
    },
    /// Nobody listens on the subject.
    #[error("{action} found nobody to answer")]
    NoResponders {
        /// What was tried.
        action: String,
    },
    /// A queue is full; the message was not accepted.
    #[error("the queue of this session is full")]
    QueueFull,
    /// The broker has no room to store; the message was not accepted.
    #[error("{action} failed: the server has no room to store it")]
    NoSpace {
        /// What was tried.
        action: String,
        /// The broker's words.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What the broker holds is not of the form that this build reads.
    #[error("{what} is not of a form that this build reads")]
    Malformed {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let (code, class) = match &error {
            Error::QueueFull => ("session.queue_full", FaultClass::Busy),
            Error::NoSpace { .. } => ("mesh.no_space", FaultClass::Busy),
            Error::NoResponders { .. } => ("mesh.no_responders", FaultClass::Gone),
            Error::Timeout { .. } => ("mesh.timeout", FaultClass::Busy),
            Error::Connect { .. } | Error::Request { .. } => ("mesh.unavailable", FaultClass::Busy),
            Error::Malformed { .. } => ("mesh.malformed", FaultClass::Internal),
        };
        Fault::new(code, class, error)
    }
}
