//! What can go wrong between a worker and the broker.

use teamster_protocol::{Fault, FaultClass, SessionId, text};

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
    /// What should be the address of a server is none.
    #[error("{url:?} is no address of a NATS server")]
    Address {
        /// What was given, without a password.
        url: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The credentials cannot be read, or the broker does not take them.
    #[error("cannot log in to NATS at {url}")]
    Credentials {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The broker does not let the user of these credentials do something.
    #[error("{action} is not allowed")]
    Denied {
        /// What was tried.
        action: String,
        /// What the broker denied.
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
    /// What the server holds in a place cannot be read, and nothing is stored over it: the server would not get over it.
    #[error("{action} failed: what is stored there is damaged")]
    Damaged {
        /// What was tried.
        action: String,
        /// How much is damaged.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A session's log ends with messages that the server holds and cannot hand out: their stored bytes are damaged. The log is
    /// there, and must not be taken for none or for a shorter one.
    #[error("the log of {session} cannot be read to its end: {}", of_end(*.stored, *.unreadable, *.after, *.last))]
    Unreadable {
        /// Whose.
        session: SessionId,
        /// Messages of it that the server holds.
        stored: u64,
        /// How many of them it cannot hand out, at the end or before.
        unreadable: u64,
        /// Number of the last commit that can be read; 0 if none can.
        after: u64,
        /// Its stream sequence; 0 if none can be read.
        last: u64,
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

/// What is wrong with the end of a log, and where.
fn of_end(stored: u64, unreadable: u64, after: u64, last: u64) -> String {
    let next = after.saturating_add(1);
    let place = if last == 0 {
        "from its first commit on".to_owned()
    } else {
        format!("from commit {next} on, behind sequence {last}")
    };
    format!(
        "{place}, the stored bytes are damaged (the server holds {stored} messages of it and cannot hand out {unreadable})"
    )
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        if let Error::Unreadable { session, .. } = &error {
            let session = text::operand(session.as_str());
            let hint = format!(
                "nothing of this session runs, and nothing of it is lost yet. Restore the broker's data from a copy, or go on \
                 without what cannot be read: `teamster sessions accept-loss --yes {session}`"
            );
            return Fault::new("session.log_damaged", FaultClass::Internal, error).hint(hint);
        }
        let (code, class) = match &error {
            Error::QueueFull => ("session.queue_full", FaultClass::Busy),
            Error::NoSpace { .. } => ("mesh.no_space", FaultClass::Busy),
            Error::NoResponders { .. } => ("mesh.no_responders", FaultClass::Gone),
            Error::Timeout { .. } => ("mesh.timeout", FaultClass::Busy),
            Error::Connect { .. } | Error::Request { .. } => ("mesh.unavailable", FaultClass::Busy),
            Error::Address { .. } => ("mesh.address", FaultClass::Caller),
            Error::Credentials { .. } | Error::Denied { .. } => {
                ("mesh.credentials", FaultClass::Internal)
            }
            Error::Damaged { .. } => ("mesh.damaged", FaultClass::Internal),
            Error::Malformed { .. } | Error::Unreadable { .. } => {
                ("mesh.malformed", FaultClass::Internal)
            }
        };
        let is_denied = matches!(error, Error::Denied { .. });
        let fault = Fault::new(code, class, error);
        if is_denied {
            fault.hint(OTHER_CREDENTIALS)
        } else {
            fault
        }
    }
}

/// What to do where credentials may not do what was asked.
pub(crate) const OTHER_CREDENTIALS: &str = "these credentials are another user's: take those of the one who does it, for commands \
     `--creds PATH` with operator.creds or the directory that holds it";
