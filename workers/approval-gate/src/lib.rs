//! Judges each call before it runs, holds what a person must decide, and takes the decision.
//!
//! Owns: the namespace `approval::`, the policy that is in force (its file, its reload), the inbox of open requests, the
//! way of a decision into a session. Invariants: it judges with `core::policy` and nothing else; a decision reaches the
//! session as a durable input, and what is answered is what the log says; the inbox is read from the log.
//!
//! Never: a store of its own, a commit, a decision that it makes by itself. When it cannot answer, the harness denies.

#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::panic,
        reason = "a failed expectation is how a test fails"
    )
)]

mod config;
mod error;
mod follow;
mod functions;
mod inbox;
mod ledger;
mod policies;
mod query;
#[cfg(test)]
mod sample;

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use teamster_core::policy::burst::Burst;
use teamster_mesh::{Worker, config::Live};
use teamster_protocol::{
    Digest, FunctionId,
    hook::{Binding, OnError, Point, Stage},
    id::{ParseError, WorkerName},
};

pub use config::Config;
pub use error::Error;

use crate::{inbox::Inbox, policies::Policies};

/// What the functions of one gate share.
struct Gate {
    policies: Policies,
    inbox: Inbox,
    burst: Mutex<Burst>,
}

/// The worker `approval-gate`. Reads the policy file; one that cannot be used is an error, so that no gate starts with
/// another policy than the one it was given. One that is not there yet is in force as soon as it is.
pub fn worker(config: &Config) -> Result<Worker, Error> {
    let gate = Arc::new(Gate {
        policies: Policies::load(Live::new(config.clone()))?,
        inbox: Inbox::default(),
        burst: Mutex::default(),
    });
    let (follower, reloader) = (Arc::clone(&gate), Arc::clone(&gate));
    let worker = Worker::new(
        WorkerName::parse("approval-gate")?,
        "Judges each call before it runs, holds what a person must decide, and takes the decision.",
    )
    .config_of(Arc::new(policies::Section(Arc::clone(&gate))))
    .hook(binding()?)
    .task("inbox", move |mesh, cancel| async move {
        follow::run(&mesh, &follower.inbox, &cancel).await;
    })
    .task("policy", move |_, cancel| async move {
        reloader.policies.watch(&cancel).await;
    });
    Ok(functions::all(&gate)?
        .into_iter()
        .fold(worker, Worker::function))
}

/// Whether a policy file could be used: the digest of the policy that it makes, or `None` where there is no file.
pub fn check(file: &Path) -> Result<Option<Digest>, Error> {
    Ok(policies::read(file)?.map(|policy| policy.digest()))
}

/// How the gate is asked about each call. A gate that cannot be asked denies.
fn binding() -> Result<Binding, ParseError> {
    Ok(Binding {
        point: Point::PreTrigger,
        function: FunctionId::parse(functions::gate::ID)?,
        priority: 0,
        stage: Stage::Judge,
        functions: Vec::new(),
        timeout_ms: None,
        on_error: Some(OnError::FailClosed),
    })
}

/// Milliseconds since 1970; 0 if the clock stands before.
fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
