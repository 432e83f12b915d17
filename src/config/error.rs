//! What can be wrong with a configuration file.

use std::{io::ErrorKind, path::PathBuf};

use teamster_mesh::config::Problem;
use teamster_protocol::{form, limits};

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
    #[error("{}: {problem}", place(path, *line))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, where it is known, from 1.
        line: Option<usize>,
        /// Why, without the place.
        problem: String,
    },
    /// The file is a configuration by itself and none on top of the layers below it.
    #[error("{}: {problem}", place(path, *line))]
    Merged {
        /// The file.
        path: PathBuf,
        /// The line, where it is known, from 1.
        line: Option<usize>,
        /// Why.
        problem: String,
    },
    /// A worker cannot use its section.
    #[error("{}: {worker}: {problem}", place(path, *line))]
    Section {
        /// The file.
        path: PathBuf,
        /// The line, where it is known, from 1.
        line: Option<usize>,
        /// Whose section it is.
        worker: String,
        /// What is wrong.
        problem: Problem,
    },
    /// The policy file that is named is not there.
    #[error("there is no policy file {}", path.display())]
    NoPolicy {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    pub(super) fn invalid(path: PathBuf, source: &serde_yaml::Error) -> Self {
        let (line, problem) = located(source);
        let problem = form::words(&problem);
        Self::Invalid {
            path,
            line,
            problem,
        }
    }

    /// Its stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoPolicy { .. } => "config.policy_file",
            Self::Section { worker, .. } if worker == "router" => "config.router",
            _ => "config.invalid",
        }
    }

    /// The line of the file, from 1, where it is known.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Invalid { line, .. } | Self::Merged { line, .. } | Self::Section { line, .. } => {
                *line
            }
            _ => None,
        }
    }

    /// What to change.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { problem, .. } | Self::Merged { problem, .. } => {
                Some(nearest_key(problem).unwrap_or_else(|| {
                    "correct it there; `teamster doctor` checks the file".to_owned()
                }))
            }
            Self::Section { worker, .. } => {
                Some(format!("look at the section `{worker}` of config.yaml"))
            }
            Self::NoPolicy { .. } => Some(
                "correct `approval-gate.policy_file` in config.yaml, or write the file".to_owned(),
            ),
            Self::Read { source, .. } => Some(
                match source.kind() {
                    ErrorKind::IsADirectory => {
                        "it is a directory: move it away, or put a file in its place"
                    }
                    ErrorKind::InvalidData => "it is no UTF-8 text: write it anew",
                    ErrorKind::PermissionDenied => "look at its rights: it must be yours to read",
                    _ => "look at that place; without the file the compiled-in values count",
                }
                .to_owned(),
            ),
            Self::TooLong { .. } => Some(
                "take out what is no configuration; `teamster config explain` shows all keys"
                    .to_owned(),
            ),
        }
    }
}

/// The line of what a parser did not take, from 1, and why without the place, which the parser says at the end of its words.
pub fn located(error: &serde_yaml::Error) -> (Option<usize>, String) {
    let text = error.to_string();
    let Some(location) = error.location() else {
        return (None, text);
    };
    let (line, column) = (location.line(), location.column());
    let place = format!(" at line {line} column {column}");
    (Some(line), text.replace(&place, ""))
}

/// The known key that is nearest to the unknown one that an error speaks of.
pub fn nearest_key(text: &str) -> Option<String> {
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

fn place(path: &std::path::Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}, line {line}: not a valid configuration", path.display()),
        None => format!("{}: not a valid configuration", path.display()),
    }
}
