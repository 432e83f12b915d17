//! The streams and buckets, ensured at start.

use crate::{Error, connection::Mesh};

/// What of the topology is configuration.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Replicas of each stream and bucket: 1 on one node, 3 in a cluster.
    pub replicas: usize,
}

/// Ensures streams, buckets and consumers: creates what is missing, checks what is there, and fails with an error that
/// names the object and the difference where it cannot be used (another subject set, memory storage, an asynchronous
/// persist mode, an older server).
pub async fn ensure(mesh: &Mesh, topology: &Topology) -> Result<(), Error> {
    let _ = (mesh, topology);
    todo!()
}
