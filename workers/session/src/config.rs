//! What of the session worker is configuration.

use std::path::PathBuf;

use serde::Deserialize;

/// What of the session worker is configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The file of the projection. It may be deleted at any time. Without one the projection is kept in memory and built anew
    /// at each start.
    pub file: Option<PathBuf>,
}
