//! The embedded server of a data directory: started, found again, and the streams in it ensured.

use std::{path::Path, time::Duration};

use teamster_mesh::{
    Connect, Mesh,
    broker::{self, Broker, DataDir, InstanceLock},
    permission,
    topology::{self, Topology},
};
use teamster_protocol::id::WorkerName;

use super::Error;

/// Tries to take a data directory: whoever only looks at its lock holds it for an instant.
const LOCK_TRIES: u32 = 5;
/// The pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A running embedded server, and the lock on its data directory.
pub struct Embedded {
    broker: Broker,
    // Given back last, after the server has ended.
    _lock: InstanceLock,
}

impl Embedded {
    /// Takes the data directory and starts its server, or adopts the one that a killed process left running. `progress` is
    /// told what takes seconds.
    pub async fn start(data: &Path, progress: broker::Progress) -> Result<Self, Error> {
        let data = DataDir::open(data).map_err(Error::Broker)?;
        let lock = lock(&data).await?;
        let options = broker::Options {
            progress: Some(progress),
            ..broker::Options::default()
        };
        let broker = Broker::start(&data, options).await.map_err(Error::Broker)?;
        tracing::info!(
            url = broker.url(),
            adopted = broker.was_adopted(),
            "the server runs"
        );
        Ok(Self {
            broker,
            _lock: lock,
        })
    }

    /// How workers and operators reach it.
    pub fn connect(&self) -> Connect {
        Connect {
            url: self.broker.url(),
            credentials: Some(self.broker.credentials_dir()),
        }
    }

    /// Whether the server is one that a killed process left running.
    pub fn was_adopted(&self) -> bool {
        self.broker.was_adopted()
    }

    /// Ends the server in order and gives the data directory back.
    pub async fn stop(self) {
        self.broker.stop().await;
    }
}

async fn lock(data: &DataDir) -> Result<InstanceLock, Error> {
    let mut tried = 1;
    loop {
        match data.lock() {
            Err(broker::Error::Held { .. }) if tried < LOCK_TRIES => {
                tried += 1;
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            result => return result.map_err(Error::Broker),
        }
    }
}

/// The process that holds a data directory, which need not exist.
pub fn holder(data: &Path) -> Option<u32> {
    existing(data)?.holder()
}

/// Whether a process holds a data directory.
pub fn is_held(data: &Path) -> bool {
    holder(data).is_some()
}

/// How to reach the server of a data directory that is running.
pub fn locate(data: &Path) -> Option<Connect> {
    let data = existing(data)?;
    let running = broker::running(&data)?;
    Some(Connect {
        url: running.url,
        credentials: Some(data.credentials()),
    })
}

/// Whether a server has ever run in a data directory.
pub fn was_used(data: &Path) -> bool {
    data.join("nats").join("jetstream").is_dir()
}

/// A look at a directory must not create it.
fn existing(data: &Path) -> Option<DataDir> {
    data.join("nats")
        .is_dir()
        .then(|| DataDir::open(data).ok())?
}

/// Makes the data directory, readable by its owner only.
pub fn prepare(data: &Path) -> Result<DataDir, Error> {
    DataDir::open(data).map_err(Error::Broker)
}

/// Ensures streams and buckets as the user that may create them.
pub async fn ensure(connect: &Connect, topology: &Topology) -> Result<(), Error> {
    let name =
        WorkerName::parse(permission::TOPOLOGY).map_err(Error::build(permission::TOPOLOGY))?;
    let mesh = Mesh::connect(connect, name)
        .await
        .map_err(Error::Topology)?;
    topology::ensure(&mesh, topology)
        .await
        .map_err(Error::Topology)
}
