//! What a stage could not do, and which layer is missing for it.

use std::io;

use serde::{Deserialize, Serialize};

use crate::layer::Layer;

/// A step of a stage that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {why}")]
pub(crate) struct Failure {
    /// The layer that the step belongs to.
    pub(crate) layer: Option<Layer>,
    /// What was tried.
    pub(crate) step: String,
    /// What the system said.
    pub(crate) why: String,
}

/// Names the step of an error.
pub(crate) trait At<T> {
    /// A step that belongs to a layer.
    fn at(self, layer: Layer, step: &str) -> Result<T, Failure>;
    /// A step that belongs to none.
    fn step(self, step: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, layer: Layer, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            layer: Some(layer),
            step: step.to_owned(),
            why: super::text(error),
        })
    }

    fn step(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            layer: None,
            step: step.to_owned(),
            why: super::text(error),
        })
    }
}
