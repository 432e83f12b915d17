//! Logs and traces of every Teamster process, set up once.
//!
//! Owns the form of a log line, the default filter, the trace context that crosses the mesh, the one place that spawns
//! long-lived tasks, and the wrappers that keep secrets and control characters out of what is printed.
//!
//! Also the export of spans and figures by the standard variables of OpenTelemetry, which happens on threads of its own.
//!
//! Never decides what is worth a line, never sends anything to anybody unless these variables ask for it, and never delays
//! the caller for longer than the write of one line.

#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::panic,
        reason = "a failed expectation is how a test fails"
    )
)]

mod chain;
mod error;
mod escape;
mod export;
mod flush;
mod init;
mod json;
pub mod metric;
mod otlp;
mod outlet;
mod redacted;
pub mod semconv;
pub mod span;
pub mod task;
pub mod trace;

pub use chain::chain;
pub use error::Error;
pub use init::{Format, Guard, Options, Sink, init};
pub use redacted::Redacted;
