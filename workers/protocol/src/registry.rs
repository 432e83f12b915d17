//! What a worker tells the registry about itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    contract::Contract,
    hook::Binding,
    id::{Incarnation, WorkerName},
};

/// One living worker process: key `worker.<name>.<incarnation>`, leased by TTL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// The worker's name.
    pub name: WorkerName,
    /// This life of it.
    pub incarnation: Incarnation,
    /// Its version, `SemVer`.
    pub version: String,
    /// What it is, in one sentence.
    pub description: String,
    /// What it serves.
    pub functions: Vec<Arc<Contract>>,
}

/// The hooks of one worker: key `hooks.<name>`. Written without a lease, so that a binding that fails closed outlives its
/// worker; an operator removes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// The worker's name.
    pub name: WorkerName,
    /// Its bindings.
    pub bindings: Vec<Binding>,
}
