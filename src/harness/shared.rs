//! What all parts of the harness share.

use std::sync::Arc;

use teamster_mesh::{Mesh, config::Live, registry::Registry};
use tokio_util::sync::CancellationToken;

use super::{
    allowed::Compiled, cache::Cache, config::Config, desk::Desk, heads::Heads, rooms::Rooms,
    settings::Pins, sweep::Owed, witness::Witnesses,
};

/// What exists before the mesh is there.
pub(super) struct Shared {
    pub(super) config: Live<Config>,
    pub(super) pins: Pins,
    pub(super) desk: Desk,
    pub(super) cache: Cache,
    pub(super) allowed: Compiled,
    pub(super) witnesses: Witnesses,
    pub(super) heads: Heads,
    pub(super) rooms: Rooms,
    pub(super) owed: Owed,
}

impl Shared {
    pub(super) fn new(config: &Config) -> Self {
        let config = Live::new(config.clone());
        Self {
            pins: Pins::new(config.clone()),
            config,
            desk: Desk::default(),
            cache: Cache::default(),
            allowed: Compiled::default(),
            witnesses: Witnesses::default(),
            heads: Heads::default(),
            rooms: Rooms::default(),
            owed: Owed::default(),
        }
    }
}

/// Everything that the run of a session needs.
#[derive(Clone)]
pub(super) struct Harness {
    pub(super) mesh: Mesh,
    pub(super) registry: Registry,
    pub(super) shared: Arc<Shared>,
    /// Cancelled when this harness hands its sessions over.
    pub(super) drain: CancellationToken,
}
