//! The embedded server of a data directory: started, found again, and the streams in it ensured.

use std::{path::Path, time::Duration};

use teamster_mesh::{
    Connect, Mesh,
    broker::{self, Broker, DataDir, InstanceLock, store},
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
    data: DataDir,
    // Given back last, after the server has ended.
    _lock: InstanceLock,
}

impl Embedded {
    /// Takes the data directory and starts its server, or adopts the one that a killed process left running. `progress` is
    /// told what takes seconds. A store from which streams are gone that hold what nothing else does is refused, and one whose
    /// server contradicts itself is read anew.
    pub async fn start(data: &Path, progress: broker::Progress) -> Result<Self, Error> {
        let data = DataDir::open(data).map_err(Error::Broker)?;
        let lock = lock(&data).await?;
        let listed = store::listed(&data).map_err(Error::Broker)?;
        let is_new = !was_used(data.root());
        let options = broker::Options {
            progress: Some(progress),
            ..broker::Options::default()
        };
        let start = || Broker::start(&data, options.clone());
        let broker = start().await.map_err(Error::Broker)?;
        tracing::info!(
            url = broker.url(),
            adopted = broker.was_adopted(),
            "the server runs"
        );
        let mut embedded = Self {
            broker,
            data: data.clone(),
            _lock: lock,
        };
        if is_new {
            return Ok(embedded);
        }
        match embedded.look(&listed).await {
            Ok(contradictory) if contradictory.is_empty() => Ok(embedded),
            Ok(contradictory) => {
                for stream in &contradictory {
                    tracing::error!(
                        code = "mesh.counts_differ",
                        stream,
                        "the server contradicts itself about what it holds: something that it stored is damaged; it is started again and reads anew"
                    );
                }
                embedded.broker.stop().await;
                store::forget_index(&data, &contradictory).map_err(Error::Broker)?;
                embedded.broker = start().await.map_err(Error::Broker)?;
                Ok(embedded)
            }
            Err(error) => {
                embedded.stop().await;
                Err(error)
            }
        }
    }

    /// Whether everything is there that must be; the streams about which the server contradicts itself. One that was adopted is
    /// in use, and is not looked at for that.
    async fn look(&self, listed: &[String]) -> Result<Vec<String>, Error> {
        let mesh = topology_user(&self.connect()).await?;
        let absent = topology::absent(&mesh, listed).await;
        let absent = absent.map_err(Error::Topology)?;
        if !absent.is_empty() {
            return Err(Error::StoreLost {
                absent,
                data: self.data.root().to_owned(),
            });
        }
        if self.was_adopted() {
            return Ok(Vec::new());
        }
        topology::contradictory(&mesh)
            .await
            .map_err(Error::Topology)
    }

    /// Ensures streams and buckets, and notes that they are there.
    pub async fn ensure(&self, topology: &Topology) -> Result<(), Error> {
        ensure(&self.connect(), topology).await?;
        store::list(&self.data, topology::lasting()).map_err(Error::Broker)
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
    data.join("nats").join("jetstream").is_dir() || is_listed(data)
}

/// The streams that a data directory must hold and does not; none where nothing was made in it yet. For one whose server does not
/// run.
pub fn lost(data: &Path) -> Result<Vec<String>, Error> {
    match DataDir::find(data) {
        Some(data) => store::lost(&data).map_err(Error::Broker),
        None => Ok(Vec::new()),
    }
}

fn is_listed(data: &Path) -> bool {
    DataDir::find(data).is_some_and(|data| store::list_of(&data).exists())
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
    let mesh = topology_user(connect).await?;
    topology::ensure(&mesh, topology)
        .await
        .map_err(Error::Topology)
}

async fn topology_user(connect: &Connect) -> Result<Mesh, Error> {
    let name =
        WorkerName::parse(permission::TOPOLOGY).map_err(Error::build(permission::TOPOLOGY))?;
    Mesh::connect(connect, name).await.map_err(Error::Topology)
}
