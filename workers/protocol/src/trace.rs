//! Where a turn stands in a trace. Stored with the turn, so that whoever takes it up goes on in the same trace.

use serde::{Deserialize, Serialize};

/// A turn's span, by the W3C trace context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The `traceparent` that names the span.
    pub context: String,
    /// The span that caused it, 16 hexadecimal digits of the same trace; none where the trace begins with the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}
