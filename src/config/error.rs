//! What can be wrong with a configuration file.

use std::path::PathBuf;

use teamster_protocol::limits;

use super::layer::nearest;

/// The one error of the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is longer than any configuration.
    #[error(
        "{path} has {bytes} bytes; at most {} are read",
        limits::YAML_BYTES_MAX
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file does not say what can be configured.
    #[error("{}", place(path, *line))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, where it is known, from 1.
        line: Option<usize>,
        /// Why.
        #[source]
        source: serde_yaml::Error,
    },
}

impl Error {
    pub(super) fn invalid(path: PathBuf, source: serde_yaml::Error) -> Self {
        Self::Invalid {
            path,
            line: source.location().map(|location| location.line()),
            source,
        }
    }

    /// What to change.
    pub fn hint(&self) -> Option<String> {
        let Self::Invalid { source, .. } = self else {
            return None;
        };
        let text = source.to_string();
        let mut quoted = text
            .split_once("unknown field")?
            .1
            .split('`')
            .skip(1)
            .step_by(2);
        let unknown = quoted.next()?;
        let known: Vec<&str> = quoted.collect();
        match nearest(unknown, known.iter().copied()) {
            Some(near) => Some(format!("did you mean `{near}` instead of `{unknown}`?")),
            None => Some(format!("known keys here: {}", known.join(", "))),
        }
    }
}

fn place(path: &std::path::Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}, line {line}: not a valid configuration", path.display()),
        None => format!("{}: not a valid configuration", path.display()),
    }
}
