//! The section `context` of the configuration.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use teamster_mesh::config::{Problem, Section};
use teamster_protocol::limits;

/// What is known about models' windows beyond what the router knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Windows by `provider/model`, in tokens. They win over what the router says: a server may run a model with a smaller
    /// window than its maker states.
    pub windows: BTreeMap<String, u64>,
    /// The window of models about which nobody knows anything, in tokens. Default 8192.
    pub default_window: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            windows: BTreeMap::new(),
            default_window: limits::CONTEXT_WINDOW_DEFAULT,
        }
    }
}

impl Section for Config {
    // A harness remembers how much room a model leaves.
    const LATE: (&'static [&'static str], Duration) =
        (&["windows", "default_window"], limits::CONTEXT_MODEL_TTL);

    fn check(&self) -> Result<(), Problem> {
        if self.default_window == 0 {
            return Err(Problem::of("default_window", "must be 1 or more"));
        }
        match self.windows.iter().find(|(_, tokens)| **tokens == 0) {
            Some((model, _)) => Err(Problem::of(
                &format!("windows.\"{model}\""),
                "must be 1 or more",
            )),
            None => Ok(()),
        }
    }
}
