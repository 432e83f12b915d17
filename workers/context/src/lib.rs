//! Plans what a model gets to see, and reads whole results back.
//!
//! Owns: the namespace `context::`, folded sessions in memory, what is known about models' windows. Invariants: a plan is made
//! by `core::context` from a session's log and the model's window alone, so that a second one is equal; what is left out of a
//! request stays in the log and can be read; a session's results are shown to that session only.
//!
//! Never: a commit, a message, a store of its own, a request to a model. Without this worker the loop sends bounded raw
//! history.

#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::panic,
        reason = "a failed expectation is how a test fails"
    )
)]

mod config;
mod earlier;
mod error;
mod functions;
mod page;
mod sessions;
mod windows;

use std::sync::Arc;

use teamster_mesh::{Worker, config::Live};
use teamster_protocol::id::{ParseError, WorkerName};

pub use config::Config;

use crate::{sessions::Sessions, windows::Windows};

/// What the functions of one worker share.
struct Context {
    sessions: Sessions,
    windows: Windows,
    values: functions::read::Values,
}

/// The worker `context`.
pub fn worker(config: &Config) -> Result<Worker, ParseError> {
    let live = Live::new(config.clone());
    let context = Arc::new(Context {
        sessions: Sessions::default(),
        windows: Windows::new(live.clone()),
        values: functions::read::Values::default(),
    });
    let worker = Worker::new(
        WorkerName::parse("context")?,
        "Plans what a model gets to see, and reads whole results back.",
    )
    .config(&live);
    Ok(functions::all(&context)?
        .into_iter()
        .fold(worker, Worker::function))
}
