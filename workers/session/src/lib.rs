//! The log, projected for questions.
//!
//! Owns: the namespace `session::`, a projection of all logs in `SQLite`, which can be thrown away and built anew at any time, the
//! notices in EVENTS, which are made of commits for consumers that were away, and the removal of stored values that no session names
//! and of notices of deleted sessions.
//! Invariants: what it answers is what the log says; how far a log stream is read is stored in the transaction that holds what was
//! read; a question is answered from everything that was committed before it was asked, or with a fault that says how far the
//! projection is, never with a part.
//!
//! Never: a commit, a decision, state that the log does not hold.

#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::panic,
        reason = "a failed expectation is how a test fails"
    )
)]

mod account;
mod admin;
mod apply;
mod audit;
mod config;
mod error;
mod file;
mod functions;
mod heads;
mod message;
mod notices;
mod project;
mod projection;
mod query;
mod remains;
mod schema;
mod store;
mod values;

use std::sync::Arc;

use teamster_mesh::{Worker, config::Live};
use teamster_protocol::id::WorkerName;

pub use config::Config;
pub use error::Error;

use crate::{projection::Projection, store::Store};

/// The worker `session`. Opens the projection's file, which is made where there is none; a file that cannot be used as one is
/// replaced, because the log holds everything.
pub fn worker(config: &Config) -> Result<Worker, Error> {
    let live = Live::new(config.clone());
    let projection = Arc::new(Projection::new(Store::open(config.file.as_deref())?));
    let projected = Arc::clone(&projection);
    let worker = Worker::new(
        WorkerName::parse("session")?,
        "Answers questions about sessions from a projection of the log, and lets operators administer them.",
    )
    .config(&live)
    .task("projection", move |mesh, cancel| async move {
        project::run(&mesh, &projected, &cancel).await;
    });
    let headed = Arc::clone(&projection);
    let worker = worker.task("heads", move |mesh, cancel| async move {
        headed.heads().run(&mesh, &cancel).await;
    });
    let audited = Arc::clone(&projection);
    let worker = worker.task("audit", move |mesh, cancel| async move {
        audit::run(&mesh, &audited, &cancel).await;
    });
    let swept = Arc::clone(&projection);
    let worker = worker.task("values", move |mesh, cancel| async move {
        values::run(&mesh, &swept, &cancel).await;
    });
    let looked = Arc::clone(&projection);
    let worker = worker.task("remains", move |mesh, cancel| async move {
        remains::run(&mesh, &looked, &cancel).await;
    });
    let worker = (0..)
        .zip(notices::TASKS)
        .fold(worker, |worker, (stream, name)| {
            let told = Arc::clone(&projection);
            worker.task(name, move |mesh, cancel| async move {
                notices::run(&mesh, &told, stream, &cancel).await;
            })
        });
    Ok(functions::all(&projection)?
        .into_iter()
        .fold(worker, Worker::function))
}
