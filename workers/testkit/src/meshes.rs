//! Connections of workers to the broker of one test, and the streams that they need.

use teamster_mesh::{
    Connect, Mesh,
    topology::{Topology, ensure},
};
use teamster_protocol::id::WorkerName;

use crate::{Nats, Secured};

/// A broker that workers connect to.
pub trait Server {
    /// Where it listens, and what it wants to see.
    fn options(&self) -> Connect;
}

impl Server for Nats {
    fn options(&self) -> Connect {
        Connect {
            url: self.url(),
            credentials: None,
        }
    }
}

impl Server for Secured {
    fn options(&self) -> Connect {
        Connect {
            url: self.url(),
            credentials: Some(self.credentials()),
        }
    }
}

/// The connection of a worker, which is also a user's name where the broker knows users.
///
/// # Panics
/// When it is refused or the name is none.
pub async fn connect(server: &impl Server, worker: &str) -> Mesh {
    let name = WorkerName::parse(worker).expect("a name");
    Mesh::connect(&server.options(), name)
        .await
        .expect("a connection")
}

/// Has the broker hold what a mesh on one node needs.
///
/// # Panics
/// When it cannot.
pub async fn prepare(server: &impl Server) {
    let topology = connect(server, "topology").await;
    ensure(&topology, &Topology { replicas: 1 })
        .await
        .expect("a topology");
}
