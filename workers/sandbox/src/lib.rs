//! Runs what a model asks for inside its session's workspace: files now, commands later.
//!
//! Owns: the functions `fs::*` and every way from a path that a model names to a file of the host. Invariants: the workspace
//! root comes from the session, never from arguments; every path is opened with `openat2`, beneath that root and without
//! following links; every answer fits `limits::RESULT_BYTES_MAX`; a file is replaced whole or not at all; files whose names
//! are protected are neither opened nor named.
//!
//! Never: a decision of policy (the approval gate judges a call before it arrives here), a path of the host in a message.

#![cfg_attr(
    test,
    allow(clippy::string_slice, reason = "a test that cuts wrong fails")
)]

mod budget;
mod config;
mod error;
mod functions;
mod page;
mod path;
mod pattern;
mod pool;
mod protected;
mod replace;
mod root;
mod stop;
mod store;
mod text;
mod walk;

pub use config::Config;
pub use error::Error;
pub use functions::worker;
pub use protected::Protected;
