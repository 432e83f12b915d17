//! The harness worker: drives the pure turn machine over the mesh.
//!
//! Owns: the doorbells, the claim of a session, the commits of its log, and the execution of one action at a time. Invariants:
//! nothing is done outside before the log says that it will be; a doorbell is acked only with evidence; an owner that cannot
//! prove its claim does nothing.
//!
//! Never: a decision (they are made in `core`), a model's wire format, a policy, a file.

mod act;
mod admin;
mod allowed;
mod cache;
mod cleanup;
mod clock;
mod config;
mod desk;
mod functions;
mod heads;
mod load;
mod outbox;
mod own;
mod pump;
mod rooms;
mod run;
mod settings;
mod shared;
mod spans;
mod sweep;
mod witness;
mod work;

use std::sync::Arc;

use teamster_mesh::Worker;
use teamster_protocol::id::{ParseError, WorkerName};

pub use config::Config;

use shared::Shared;

/// The worker.
pub fn worker(config: &Config) -> Result<Worker, ParseError> {
    let shared = Arc::new(Shared::new(config));
    let mut worker = Worker::new(
        WorkerName::parse("harness")?,
        "Runs turns: consumes each session's queue, commits its log, calls its siblings.",
    )
    .config(&shared.config);
    for function in functions::all(&shared)? {
        worker = worker.function(function);
    }
    Ok(worker.task("turns", move |mesh, cancel| pump::run(mesh, shared, cancel)))
}
