//! What one `up` writes down about its server, so that the next one can go on with it.

use std::fs;

use serde::{Deserialize, Serialize};
use teamster_protocol::Digest;

use super::{
    data::DataDir,
    error::{Error, io},
    identity::Identity,
};
use crate::credential;

/// Bytes of a record that are read.
const BYTES_MAX: u64 = 64 * 1024;

/// The content of `<data>/nats/server.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The server's process; none after an orderly end.
    pub(crate) process: Option<Identity>,
    /// Where it listens, or did last: clients that are still there find it again.
    pub(crate) port: u16,
    /// What it was configured with.
    pub(crate) config: Digest,
}

impl Record {
    /// The record of a data directory; `None` where there is none that can be read.
    pub(crate) fn load(data: &DataDir) -> Option<Self> {
        let path = data.nats().join("server.json");
        if fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Replaces the record.
    pub(crate) fn store(&self, data: &DataDir) -> Result<(), Error> {
        let path = data.nats().join("server.json");
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        credential::write_whole(&path, &bytes).map_err(io(format!("writing {}", path.display())))
    }
}

/// A server that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Where clients connect.
    pub url: String,
    /// Its process.
    pub pid: u32,
}

/// The running server of a data directory; `None` where none runs.
pub fn running(data: &DataDir) -> Option<Running> {
    let record = Record::load(data)?;
    let process = record.process.filter(Identity::is_alive)?;
    Some(Running {
        url: super::url(record.port),
        pid: process.pid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_speaks_of_living_servers_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = DataDir::open(dir.path()).expect("opened");
        assert_eq!((Record::load(&data), running(&data)), (None, None));
        let mut record = Record {
            process: Identity::of(std::process::id()),
            port: 4711,
            config: Digest::of("x"),
        };
        record.store(&data).expect("stored");
        assert_eq!(Record::load(&data).as_ref(), Some(&record));
        assert_eq!(
            running(&data).map(|running| running.url).as_deref(),
            Some("nats://127.0.0.1:4711")
        );
        record.process = None;
        record.store(&data).expect("stored");
        assert_eq!(running(&data), None);
    }
}
