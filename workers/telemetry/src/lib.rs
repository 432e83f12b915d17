//! Logs and traces of every Teamster process, set up once.
//!
//! Owns the form of a log line, the default filter, the trace context that crosses the mesh, the one place that spawns
//! long-lived tasks, and the wrappers that keep secrets and control characters out of what is printed.
//!
//! Never decides what is worth a line, never sends anything over a network, and never delays the caller for longer than
//! the write of one line.

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
mod init;
mod json;
mod redacted;
pub mod task;
pub mod trace;

pub use chain::chain;
pub use error::Error;
pub use init::{Format, Guard, Options, Sink, init};
pub use redacted::Redacted;
