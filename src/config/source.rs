//! Where the layers of a process come from, and one reading of them: the compiled-in layer, the file, the environment.

use std::path::{Path, PathBuf};

use serde_json::Value;
use teamster_mesh::config::Problem;
use teamster_protocol::{Digest, limits};

use super::{Config, Error, FILE, layer, line::line_of, section::SECTIONS};
use crate::env;

/// The policy file of a data directory that names none.
const POLICY_FILE: &str = "policy.yaml";
/// The projection's file in a data directory that names none.
const PROJECTION_FILE: &str = "session.sqlite";

/// Where a process finds its layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The data directory.
    pub data: PathBuf,
    /// What [`env::MODEL`] said at the start.
    pub model: Option<String>,
}

/// A value that the environment gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromEnvironment {
    /// Its key, with the section.
    pub path: Vec<String>,
    /// The variable.
    pub variable: &'static str,
}

/// All layers that a process has of its own, read and found good together.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What they say together.
    pub config: Config,
    /// The file, where there is one.
    pub file: Option<File>,
    /// What the environment says.
    pub environment: Vec<FromEnvironment>,
}

/// A configuration file as it was read.
#[derive(Debug, Clone)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// What it says.
    pub tree: Value,
}

impl File {
    /// The line of a key, from 1.
    pub fn line_of(&self, path: &[String]) -> Option<usize> {
        line_of(&self.text, path)
    }
}

impl Reading {
    /// A configuration that came from nowhere but this process itself.
    pub fn fixed(config: Config) -> Self {
        Self {
            config,
            file: None,
            environment: Vec::new(),
        }
    }
}

impl Source {
    /// The source of this process.
    pub fn of_process(data: &Path) -> Self {
        let model = std::env::var(env::MODEL).ok();
        Self {
            data: data.to_owned(),
            model: model.filter(|model| !model.is_empty()),
        }
    }

    /// The configuration file.
    pub fn file(&self) -> PathBuf {
        self.data.join(FILE)
    }

    /// Tells one content of the file from another; an absent and an unreadable file have contents of their own.
    pub fn stamp(&self) -> Digest {
        match read(&self.file()) {
            Ok(Some(text)) => Digest::of(text),
            Ok(None) => Digest::ZERO,
            Err(error) => Digest::of(teamster_telemetry::chain(&error)),
        }
    }

    /// Reads all layers and checks what they say together. A policy file without a full path lies in the data directory, and
    /// `policy.yaml` there is used without being named.
    pub fn read(&self) -> Result<Reading, Error> {
        let path = self.file();
        let text = read(&path)?;
        let (mut config, file) = match text {
            None => (Config::compiled_in()?, None),
            Some(text) => {
                let config = Config::over_default(&path, &text)?;
                let tree = layer::parse(&path, &text)?;
                let file = File {
                    path: path.clone(),
                    text,
                    tree,
                };
                (config, Some(file))
            }
        };
        let mut environment = Vec::new();
        if let Some(model) = &self.model {
            config.harness.default_model.clone_from(model);
            environment.push(FromEnvironment {
                path: vec!["harness".to_owned(), "default_model".to_owned()],
                variable: env::MODEL,
            });
        }
        config.approval_gate.policy_file = Some(match config.approval_gate.policy_file.take() {
            Some(named) => self.named_policy(&named)?,
            // It need not be there: the gate takes it as soon as it is.
            None => self.data.join(POLICY_FILE),
        });
        let projection = config.session.file.take();
        let projection = projection.unwrap_or_else(|| PROJECTION_FILE.into());
        config.session.file = Some(self.data.join(projection));
        for kind in &SECTIONS {
            let section = kind.of(&config);
            if let Err(problem) = kind.check(&section, &Value::Null) {
                return Err(locate(&path, file.as_ref(), kind.name, problem));
            }
        }
        Ok(Reading {
            config,
            file,
            environment,
        })
    }

    /// A policy file that is named must be there, or a slip in its name would leave the compiled-in policy in force.
    fn named_policy(&self, named: &Path) -> Result<PathBuf, Error> {
        let path = self.data.join(named);
        if path.exists() {
            return Ok(path);
        }
        Err(Error::NoPolicy { path })
    }
}

/// Finds the line of a problem in the file.
fn locate(path: &Path, file: Option<&File>, worker: &str, problem: Problem) -> Error {
    let mut key = vec![worker.to_owned()];
    let segments = problem
        .key
        .as_deref()
        .and_then(|key| super::path::parse(key).ok());
    key.extend(segments.into_iter().flatten());
    Error::Section {
        path: path.to_owned(),
        line: file.and_then(|file| file.line_of(&key)),
        worker: worker.to_owned(),
        problem,
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let length = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    if length > limits::YAML_BYTES_MAX as u64 {
        return Err(Error::TooLong {
            path: path.to_owned(),
            bytes: length,
        });
    }
    std::fs::read_to_string(path).map(Some).map_err(failed)
}
