//! What of the gate is configuration.

use std::path::PathBuf;

use serde::Deserialize;

/// What of the gate is configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A policy file that is laid on top of the compiled-in policy. It need not be there yet, and is read again when it
    /// comes, changes or goes.
    pub policy_file: Option<PathBuf>,
}
