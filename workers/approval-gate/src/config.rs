//! What of the gate is configuration.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use teamster_mesh::config::{Problem, Section};

/// What of the gate is configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A policy file that is laid on top of the compiled-in policy. It need not be there yet, and is read again when it
    /// comes, changes or goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_file: Option<PathBuf>,
}

impl Section for Config {
    // Whether the file is there and can be used is seen where the gate runs, which keeps its last good policy.
    fn check(&self) -> Result<(), Problem> {
        match &self.policy_file {
            Some(path) if !path.is_absolute() => Err(Problem::of(
                "policy_file",
                "must be an absolute path on the machine of the gate",
            )),
            _ => Ok(()),
        }
    }
}
