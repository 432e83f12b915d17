//! What can be wrong with a router's configuration. What goes wrong with a generation is a `CompletionError`, an answer.

use std::path::{Path, PathBuf};

/// The one error of this crate. A variant names what cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A YAML document is not of its form.
    #[error("{what} is not valid")]
    Yaml {
        /// Which document.
        what: String,
        /// Why.
        #[source]
        source: serde_yaml::Error,
    },
    /// A YAML document is larger than `YAML_BYTES_MAX`.
    #[error(
        "{what} is larger than {} bytes",
        teamster_protocol::limits::YAML_BYTES_MAX
    )]
    YamlTooLarge {
        /// Which document.
        what: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A provider's settings contradict each other or lack something.
    #[error("provider {provider:?}: {problem}")]
    Provider {
        /// The provider.
        provider: String,
        /// What is wrong, and how to mend it.
        problem: String,
    },
    /// A script cannot be played.
    #[error("rule {rule} of the script {script:?}: {problem}")]
    Script {
        /// The script.
        script: String,
        /// The rule, from 0.
        rule: usize,
        /// What is wrong.
        problem: String,
    },
    /// The HTTP client cannot be made.
    #[error("cannot make an HTTP client")]
    Client {
        /// Why.
        #[source]
        source: reqwest::Error,
    },
}

impl Error {
    /// The same with the file that the document came from.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Yaml { what, source } => Self::Yaml {
                what: format!("{what} in {}", path.display()),
                source,
            },
            Self::Script {
                script,
                rule,
                problem,
            } => Self::Script {
                script: format!("{script} in {}", path.display()),
                rule,
                problem,
            },
            other => other,
        }
    }
}
