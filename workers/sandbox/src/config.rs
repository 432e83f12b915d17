//! What of the worker is configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protected::Protected;

/// The section `sandbox` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Globs of files that no file function opens or names. It should hold every target glob that the policy puts behind a
    /// deny or an ask for reading, so that a search does not show what a read would have asked about. Default: the globs of
    /// the policy's layer `secrets`.
    pub protected: Protected,
}
