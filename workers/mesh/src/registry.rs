//! The registry: which workers live, which functions they serve, which hooks are bound.

use std::{collections::BTreeMap, sync::Arc};

use teamster_protocol::{
    Contract, FunctionId,
    hook::{Binding, Point},
    registry,
};

use crate::Error;

/// What the registry says at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// Living worker processes, by name and incarnation.
    pub workers: Vec<registry::Worker>,
    /// Functions that somebody serves, with the worker's name. Where two processes of one worker differ, the newest
    /// incarnation's contract counts; where two workers claim one id, neither is served (`doctor` names both).
    pub functions: BTreeMap<FunctionId, (Contract, String)>,
    /// Bound hooks with the worker that bound them, in the order (point, stage, priority, function id). They outlive their
    /// worker.
    pub hooks: Vec<(Binding, String)>,
}

impl Catalog {
    /// The hooks of a point, in order.
    pub fn hooks_at(&self, point: Point) -> impl Iterator<Item = &Binding> {
        self.hooks
            .iter()
            .map(|(binding, _)| binding)
            .filter(move |binding| binding.point == point)
    }
}

/// A live view of the registry. The watch is supervised: it is made anew after the broker restarts.
#[derive(Clone)]
pub struct Registry {}

impl Registry {
    /// What it says now.
    pub fn catalog(&self) -> Arc<Catalog> {
        todo!()
    }

    /// Waits until `wanted` holds, at most `limit`; the catalog either way.
    pub async fn wait(
        &self,
        limit: std::time::Duration,
        wanted: impl Fn(&Catalog) -> bool + Send,
    ) -> Arc<Catalog> {
        let _ = (limit, wanted);
        todo!()
    }

    /// Removes the hooks that a worker bound (an operator's act).
    pub async fn unbind(&self, worker: &str) -> Result<(), Error> {
        let _ = worker;
        todo!()
    }
}
