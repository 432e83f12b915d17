//! The one shape of an error that crosses the mesh.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

/// What went wrong, for three readers: `code` and `class` for programs, `message` for the model, `hint` for the user.
/// What only the log may know never enters a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Stable: `worker.snake_case`.
    pub code: String,
    /// Who can do something about it.
    pub class: FaultClass,
    /// Short and actionable, without paths of the host or secrets.
    pub message: String,
    /// What the user should type or change next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// When a repetition makes sense, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Who can do something about a fault. Decisions to retry look at this, never at text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// The caller: the request is wrong.
    Caller,
    /// The owner: a rule forbids it.
    Denied,
    /// Nobody now: try again later.
    Busy,
    /// What was asked for, or who was asked, is not there.
    Gone,
    /// The authors: a bug or a broken dependency.
    Internal,
}

impl Fault {
    /// A fault with a message cut to its bound.
    pub fn new(code: &str, class: FaultClass, message: impl fmt::Display) -> Self {
        Self {
            code: code.to_owned(),
            class,
            message: crate::text::cut(&message.to_string(), limits::FAULT_TEXT_BYTES_MAX),
            hint: None,
            retry_after_ms: None,
        }
    }

    /// The request is wrong.
    pub fn caller(code: &str, message: impl fmt::Display) -> Self {
        Self::new(code, FaultClass::Caller, message)
    }

    /// A rule forbids it.
    pub fn denied(code: &str, message: impl fmt::Display) -> Self {
        Self::new(code, FaultClass::Denied, message)
    }

    /// Try again later.
    pub fn busy(code: &str, message: impl fmt::Display) -> Self {
        Self::new(code, FaultClass::Busy, message)
    }

    /// Not there.
    pub fn gone(code: &str, message: impl fmt::Display) -> Self {
        Self::new(code, FaultClass::Gone, message)
    }

    /// A bug or a broken dependency.
    pub fn internal(code: &str, message: impl fmt::Display) -> Self {
        Self::new(code, FaultClass::Internal, message)
    }

    /// Adds what the user should do next.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(crate::text::cut(
            &hint.to_string(),
            limits::FAULT_TEXT_BYTES_MAX,
        ));
        self
    }

    /// Adds when a repetition makes sense.
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}
