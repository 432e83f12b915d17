//! Runs what a model asks for inside its session's workspace: files and commands.
//!
//! Owns: the functions `fs::*` and `sandbox::exec`, every way from a path that a model names to a file of the host, and every
//! process that a model's call starts. Invariants: the workspace
//! root comes from the session, never from arguments; every path is opened with `openat2`, beneath that root and without
//! following links; every answer fits `limits::RESULT_BYTES_MAX`; a file is replaced whole or not at all; files whose names
//! are protected are neither opened nor named; a command runs behind every layer of the configured minimum or not at all, and
//! nothing of it outlives its call.
//!
//! Never: a decision of policy (the approval gate judges a call before it arrives here), a path of the host in a message.

#![cfg_attr(
    test,
    allow(clippy::string_slice, reason = "a test that cuts wrong fails")
)]

mod budget;
mod config;
mod error;
mod exec;
mod functions;
mod layer;
mod page;
mod path;
mod pattern;
mod pool;
mod protected;
mod replace;
mod root;
pub mod stage;
mod stop;
mod store;
mod text;
mod walk;

pub use config::{Config, Minimum, Shown};
pub use error::Error;
pub use functions::worker;
pub use layer::{Layer, Level};
pub use protected::Protected;

/// Which layers of isolation hold on this host for commands under `config`, found by trying them in a helper process. Blocks
/// for some milliseconds, and up to ten seconds where something hangs.
pub fn probe(config: &Config) -> Vec<Level> {
    exec::levels(config)
}

/// The layer for whose want commands are refused under `config`, among what [`probe`] found.
pub fn missing<'a>(config: &Config, levels: &'a [Level]) -> Option<&'a Level> {
    exec::missing(config.minimum.layers(), levels)
}

/// What [`probe`] found, in one line.
pub fn summary(levels: &[Level]) -> String {
    exec::summary(levels)
}
