//! What can go wrong while logs and traces are set up.

use std::path::PathBuf;

/// Why telemetry could not be set up. The process should say so and end: it would run unseen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log file cannot be opened for appending.
    #[error("cannot open the log file {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The filter is no list of `target=level` directives.
    #[error("the log filter {filter:?} cannot be read")]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// Where it is wrong.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// A standard variable of OpenTelemetry has a value that cannot be used.
    #[error("{variable} is {value:?}: {why}")]
    Variable {
        /// The variable.
        variable: String,
        /// Its value; `***` where it may hold a key.
        value: String,
        /// What would be right.
        why: &'static str,
    },
    /// The exporter of spans or figures cannot be made.
    #[error("nothing can be sent to the collector {endpoint}")]
    Exporter {
        /// The collector, without credentials.
        endpoint: String,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another subscriber was installed before.
    #[error("logs of this process are already set up")]
    AlreadySet(#[source] tracing_subscriber::util::TryInitError),
}
