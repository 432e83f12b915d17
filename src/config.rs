//! The configuration tree: one section a worker, each owned by that worker's crate.
//!
//! Layers, weakest first: `config/default.yaml`, which is compiled in, and the file `config.yaml` of the data directory;
//! then the environment and flags. An unknown key is an error that names the file, the line and the nearest key.

mod error;
mod layer;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use teamster_protocol::limits;

pub use error::Error;

/// The compiled-in layer.
pub const DEFAULT: &str = include_str!("../config/default.yaml");
/// The name of the file in the data directory.
pub const FILE: &str = "config.yaml";

/// Everything that can be configured before a start.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where and how streams are kept.
    pub mesh: Mesh,
    /// The turn loop.
    pub harness: crate::harness::Config,
    /// Model providers.
    pub router: teamster_router::Config,
    /// Policy and approvals.
    #[serde(rename = "approval-gate")]
    pub approval_gate: teamster_approval_gate::Config,
    /// What is known about models' windows.
    pub context: teamster_context::Config,
    /// Functions inside the workspace.
    pub sandbox: teamster_sandbox::Config,
    /// The projection of the log.
    pub session: teamster_session::Config,
}

/// Where and how streams are kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mesh {
    /// Replicas of each stream and bucket: 1 on one node, 3 in a cluster. Default 1.
    pub replicas: usize,
}

impl Default for Mesh {
    fn default() -> Self {
        Self { replicas: 1 }
    }
}

impl Config {
    /// The configuration of a data directory: the compiled-in layer, and over it the directory's file where there is one.
    pub fn load(data: &Path) -> Result<Self, Error> {
        let path = data.join(FILE);
        match read(&path)? {
            Some(text) => Self::over_default(&path, &text),
            None => Self::compiled_in(),
        }
    }

    /// The compiled-in layer alone.
    pub fn compiled_in() -> Result<Self, Error> {
        layer::parse(Path::new("config/default.yaml"), DEFAULT)
    }

    /// The compiled-in layer and over it `text`, which came from `path`.
    pub fn over_default(path: &Path, text: &str) -> Result<Self, Error> {
        let base = layer::parse(Path::new("config/default.yaml"), DEFAULT)?;
        let over: serde_yaml::Value = layer::parse(path, text)?;
        let merged = layer::merge(base, over);
        match serde_yaml::from_value(merged) {
            Ok(config) => Ok(config),
            // The merged tree has no lines; the file alone has, and nearly always shows the same mistake.
            Err(source) => match layer::parse::<Self>(path, text) {
                Err(located) => Err(located),
                Ok(_) => Err(Error::invalid(path.to_owned(), source)),
            },
        }
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    let length = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(Error::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    if length > limits::YAML_BYTES_MAX as u64 {
        return Err(Error::TooLong {
            path: path.to_owned(),
            bytes: length,
        });
    }
    std::fs::read_to_string(path)
        .map(Some)
        .map_err(|source| Error::Read {
            path: PathBuf::from(path),
            source,
        })
}

#[cfg(test)]
mod tests;
