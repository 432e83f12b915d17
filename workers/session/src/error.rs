//! What can go wrong with the projection.

use std::path::PathBuf;

use teamster_protocol::{Fault, id::ParseError};

/// Why the session worker does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The projection's file cannot be opened or made.
    #[error("cannot open the projection {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The thread of the projection cannot be started.
    #[error("cannot start the thread of the projection")]
    Thread(#[source] std::io::Error),
    /// A name that is compiled in is not one.
    #[error("a compiled-in name is not valid")]
    Name(#[from] ParseError),
}

/// Why the projection does not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The file was replaced or given up: everything is read again from the log.
    #[error("the projection is built anew")]
    Replaced,
    /// `SQLite` refused.
    #[error("the projection cannot be used")]
    Sqlite(#[from] rusqlite::Error),
    /// What a row holds is not of the form that this build reads.
    #[error("a row of the projection cannot be read")]
    Row(#[from] serde_json::Error),
    /// The file cannot be opened again.
    #[error("the projection's file cannot be opened")]
    Open(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took longer than the asker waits.
    #[error("the projection did not answer in time")]
    TooSlow,
    /// The worker ends.
    #[error("the projection is closed")]
    Closed,
}

impl StoreError {
    /// Whether the file itself is of no use any more.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::{Error, ErrorCode as Code};
        match self {
            Self::Sqlite(Error::SqliteFailure(failure, words)) => match failure.code {
                Code::DatabaseCorrupt
                | Code::NotADatabase
                | Code::SchemaChanged
                | Code::TypeMismatch
                | Code::ReadOnly => true,
                _ => words.as_deref().is_some_and(lacks_a_part),
            },
            Self::Sqlite(Error::SqlInputError { msg, .. }) => lacks_a_part(msg),
            Self::Row(_)
            | Self::Sqlite(
                Error::InvalidColumnType(..)
                | Error::FromSqlConversionFailure(..)
                | Error::IntegralValueOutOfRange(..),
            ) => true,
            _ => false,
        }
    }
}

/// Whether `SQLite` misses a table or a column. No question of ours is at fault: all are compiled in.
fn lacks_a_part(words: &str) -> bool {
    words.contains("no such table") || words.contains("no such column")
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Replaced => Self::busy("session.rebuilding", error),
            StoreError::TooSlow => Self::busy("session.too_slow", error)
                .hint("Ask for less: one session, a shorter time, rarer words."),
            StoreError::Closed => Self::busy("session.store_unavailable", error),
            StoreError::Sqlite(_) | StoreError::Row(_) | StoreError::Open(_) => {
                tracing::error!(
                    error = %teamster_telemetry::chain(&error),
                    "the projection cannot answer"
                );
                Self::busy("session.store_unavailable", error)
                    .hint("`teamster doctor` looks at the space on the disk; the log of this process says more.")
            }
        }
    }
}
