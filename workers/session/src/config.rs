//! What of the session worker is configuration.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use teamster_mesh::config::{Problem, Section};

/// What of the session worker is configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The file of the projection. It may be deleted at any time. Without one the projection is kept in memory and built anew
    /// at each start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl Section for Config {
    // The file is opened once.
    const COLD: &'static [&'static str] = &["file"];
    const LOCAL: &'static [&'static str] = &["file"];

    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }
}
