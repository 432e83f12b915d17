//! The configuration tree: one section a worker, each owned by that worker's crate.
//!
//! Layers, weakest first: `config/default.yaml`, which is compiled in; the file `config.yaml` of the data directory; the
//! environment; and what is set live in the mesh, a JSON object for each worker. An unknown key is an error that names the file,
//! the line and the nearest key.
//!
//! A layer is read and checked whole before anything of it counts; what cannot be used changes nothing.

pub mod error;
pub mod explain;
mod layer;
mod line;
pub mod path;
pub mod section;
pub mod source;

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use teamster_protocol::form;

pub use error::Error;
pub use layer::{leaves, merge, nearest};
pub use source::{Reading, Source};

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The compiled-in layer alone.
    pub fn compiled_in() -> Result<Self, Error> {
        layer::parse(Path::new("config/default.yaml"), DEFAULT)
    }

    /// The compiled-in layer and over it `text`, which came from `path`.
    pub fn over_default(path: &Path, text: &str) -> Result<Self, Error> {
        let base: Value = layer::parse(Path::new("config/default.yaml"), DEFAULT)?;
        let over: Value = layer::parse(path, text)?;
        let mistake = match layer::clash(&base, &over) {
            Some(key) => {
                let problem = format!("{}: must be a mapping", path::join(&key));
                Mistake { key, problem }
            }
            None => match serde_json::from_value(merge(base.clone(), over.clone())) {
                Ok(config) => return Ok(config),
                Err(error) => Mistake::find(&base, &over, &error),
            },
        };
        // The merged tree has no lines; the file alone has, and nearly always shows the same mistake, though not always its key.
        let located = layer::parse::<Self>(path, text).err();
        Err(match located {
            Some(located) if mistake.key.is_empty() => located,
            located => Error::Merged {
                path: path.to_owned(),
                line: located
                    .and_then(|located| located.line())
                    .or_else(|| line::line_of(text, &mistake.key)),
                problem: mistake.problem,
            },
        })
    }
}

/// What is wrong with a layer.
struct Mistake {
    /// The key; empty where it is not known.
    key: Vec<String>,
    /// In words, with the key.
    problem: String,
}

impl Mistake {
    /// Finds the value in `over` that makes the tree unusable, which has no places any more.
    fn find(base: &Value, over: &Value, error: &serde_json::Error) -> Self {
        let wrong = |alone| {
            let merged = merge(base.clone(), alone);
            let error = serde_json::from_value::<Config>(merged).err()?;
            Some(form::words(&error.to_string()))
        };
        match layer::culprit(over, wrong) {
            None => Self {
                key: Vec::new(),
                problem: form::words(&error.to_string()),
            },
            Some((key, number, said)) => {
                let number = number.map_or_else(String::new, |number| format!("[{number}]"));
                let problem = format!("{}{number}: {said}", path::join(&key));
                Self { key, problem }
            }
        }
    }
}

#[cfg(test)]
mod tests;
