//! Workers from outside: who may connect to the embedded server besides the house, and how a running server learns of it.
//!
//! `<data>/grants.json` is the list, and every start of the server reads it. Whoever changes it writes the list first, then has
//! a running server read its configuration again; connections whose rights stay the same are not touched by that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use teamster_protocol::id::WorkerName;

use super::{
    config::{Config, user_block},
    data::{DataDir, open_lock},
    error::{Error, io},
    identity::Identity,
    record::Record,
};
use crate::{credential, permission};

/// Workers from outside that one mesh may know.
const GRANTS_MAX: usize = 256;
/// Bytes of the list that are read.
const BYTES_MAX: u64 = 1 << 20;

/// One worker from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The function namespaces that it alone serves.
    pub namespaces: BTreeSet<String>,
    /// Its public key.
    pub key: String,
}

/// All workers from outside, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// The workers.
    pub workers: BTreeMap<WorkerName, Grant>,
}

/// A change of the list, made by nobody else meanwhile.
#[derive(Debug)]
pub struct Change<'a> {
    data: &'a DataDir,
    grants: Grants,
    _lock: File,
}

impl Grants {
    /// The list of a data directory. One that cannot be read is an error, never an empty list.
    pub fn load(data: &DataDir) -> Result<Self, Error> {
        let path = path(data);
        let length = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(source) => return Err(io(format!("reading {}", path.display()))(source)),
        };
        if length > BYTES_MAX {
            return Err(Error::Grants {
                path,
                problem: format!("it has {length} bytes"),
            });
        }
        let bytes = fs::read(&path).map_err(io(format!("reading {}", path.display())))?;
        let read = serde_json::from_slice::<Self>(&bytes).map_err(|error| error.to_string());
        let problem = match read {
            Ok(grants) => match grants.wrong() {
                None => return Ok(grants),
                Some(problem) => problem,
            },
            Err(problem) => teamster_protocol::form::words(&problem),
        };
        Err(Error::Grants { path, problem })
    }

    /// What in the list cannot stand in a server's configuration.
    fn wrong(&self) -> Option<String> {
        self.workers.iter().find_map(|(name, grant)| {
            if !KeyPair::from_public_key(&grant.key)
                .is_ok_and(|key| key.key_pair_type() == nkeys::KeyPairType::User)
            {
                return Some(format!("{:?} is no public key of a user", grant.key));
            }
            self.refuse(name, &grant.namespaces)
        })
    }

    /// Why a worker of this name cannot serve these namespaces; `None` where it can.
    pub fn refuse(&self, name: &WorkerName, namespaces: &BTreeSet<String>) -> Option<String> {
        if permission::is_of_the_house(name.as_str()) {
            return Some(format!("{name} is a name of the house"));
        }
        if self.workers.len() >= GRANTS_MAX && !self.workers.contains_key(name) {
            return Some(format!(
                "{GRANTS_MAX} workers have credentials already, which is the most"
            ));
        }
        namespaces.iter().find_map(|namespace| {
            if WorkerName::parse(namespace.as_str()).is_err() {
                return Some(format!("{namespace:?} is no namespace"));
            }
            if permission::is_of_the_house(namespace) {
                return Some(format!("the namespace {namespace} belongs to the house"));
            }
            self.workers
                .iter()
                .find(|(other, grant)| *other != name && grant.namespaces.contains(namespace))
                .map(|(other, _)| format!("the namespace {namespace} is served by {other}"))
        })
    }
}

/// A worker's block of a server's configuration, for a server that is not ours. `key` is its public key.
pub fn block(name: &WorkerName, grant: &Grant) -> String {
    let rights = permission::of_outside(name, grant.namespaces.iter().map(String::as_str));
    user_block(name.as_str(), &grant.key, &rights)
}

/// Makes credentials for a worker from outside in `file`, and answers its public key. What is there is kept. The file holds the
/// seed and nothing else, as client libraries of all languages read it.
pub fn credentials(file: &Path) -> Result<String, Error> {
    if file.exists() {
        return Ok(credential::read(file)?.public_key());
    }
    if let Some(dir) = file.parent() {
        credential::private_directory(dir)?;
    }
    let pair = KeyPair::new_user();
    let seed = pair.seed().map_err(|_| Error::Credentials {
        path: file.to_owned(),
    })?;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut file| {
            file.write_all(seed.as_bytes())
                .and_then(|()| file.sync_all())
        })
        .map_err(io(format!("writing {}", file.display())))?;
    Ok(pair.public_key())
}

/// Removes a credentials file, which need not be there.
pub fn forget(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io(format!("removing {}", file.display()))(error))
        }
        _ => Ok(()),
    }
}

impl<'a> Change<'a> {
    /// Begins a change. Others wait until it is dropped.
    pub fn begin(data: &'a DataDir) -> Result<Self, Error> {
        let lock = lock(data)?;
        Ok(Self {
            data,
            grants: Grants::load(data)?,
            _lock: lock,
        })
    }

    /// The list as it is now.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Adds a worker or changes what it serves.
    pub fn put(&mut self, name: WorkerName, grant: Grant) -> Result<(), Error> {
        self.grants.workers.insert(name, grant);
        self.store()
    }

    /// Removes a worker; says whether it was there. Its credentials file stays until [`forget`].
    pub fn remove(&mut self, name: &WorkerName) -> Result<bool, Error> {
        let was_there = self.grants.workers.remove(name).is_some();
        if was_there {
            self.store()?;
        }
        Ok(was_there)
    }

    fn store(&self) -> Result<(), Error> {
        let path = path(self.data);
        let bytes = serde_json::to_vec_pretty(&self.grants).unwrap_or_default();
        credential::write_whole(&path, &bytes).map_err(io(format!("writing {}", path.display())))
    }
}

/// Has the running server of a data directory read the list again, without ending it; `false` where none runs. The server does
/// so soon after; whoever must know tries the credentials. Safe to repeat.
pub fn apply(data: &DataDir) -> Result<bool, Error> {
    let _lock = lock(data)?;
    let Some(mut record) = Record::load(data) else {
        return Ok(false);
    };
    let Some(process) = record.process.clone().filter(Identity::is_alive) else {
        return Ok(false);
    };
    let config = config(data)?;
    write_config(data, &config, Some(record.port))?;
    process.signal(Signal::SIGHUP);
    record.config = config.digest();
    record.store(data)?;
    Ok(true)
}

/// The configuration of a data directory's server as it must be now.
pub(super) fn config(data: &DataDir) -> Result<Config, Error> {
    Config::new(data, &keys(data)?, &Grants::load(data)?)
}

/// The accounts of a server of one's own, as a file that its configuration includes: the users of the house, whose credentials
/// are made in the data directory where they are missing, and the workers from outside.
pub fn accounts(data: &DataDir) -> Result<String, Error> {
    Ok(super::config::accounts(&keys(data)?, &Grants::load(data)?))
}

fn keys(data: &DataDir) -> Result<BTreeMap<String, String>, Error> {
    let users = permission::users().chain([permission::SYSTEM]);
    credential::ensure(&data.credentials(), users)
}

/// Writes the server's configuration file and answers its path.
pub(super) fn write_config(
    data: &DataDir,
    config: &Config,
    port: Option<u16>,
) -> Result<PathBuf, Error> {
    let file = data.nats().join("nats-server.conf");
    credential::write_whole(&file, config.render(port).as_bytes())
        .map_err(io(format!("writing {}", file.display())))?;
    Ok(file)
}

/// Keeps others from changing the list and the record of the server, for as long as it lives.
pub(super) fn lock(data: &DataDir) -> Result<File, Error> {
    let path = data.nats().join("grants.lock");
    let action = || format!("locking {}", path.display());
    let file = open_lock(&path).map_err(io(action()))?;
    // Held for the writing of two small files.
    file.lock().map_err(io(action()))?;
    Ok(file)
}

fn path(data: &DataDir) -> PathBuf {
    data.root().join("grants.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> WorkerName {
        WorkerName::parse(text).expect("a name")
    }

    fn set(namespaces: &[&str]) -> BTreeSet<String> {
        namespaces.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn names_and_namespaces_of_the_house_and_of_others_are_refused() {
        let mut grants = Grants::default();
        grants.workers.insert(
            name("weather"),
            Grant {
                namespaces: set(&["weather", "climate"]),
                key: "U".to_owned(),
            },
        );
        for (worker, namespaces, says) in [
            ("weather", &["weather", "rain"][..], None),
            ("stocks", &["stocks"], None),
            ("router", &["stocks"], Some("a name of the house")),
            ("operator", &["stocks"], Some("a name of the house")),
            ("system", &["stocks"], Some("a name of the house")),
            ("gateway", &["stocks"], Some("a name of the house")),
            ("stocks", &["fs"], Some("fs belongs to the house")),
            ("stocks", &["engine"], Some("engine belongs to the house")),
            ("stocks", &["climate"], Some("is served by weather")),
            ("stocks", &["a.>"], Some("is no namespace")),
            ("stocks", &["*"], Some("is no namespace")),
        ] {
            let refused = grants.refuse(&name(worker), &set(namespaces));
            match says {
                None => assert_eq!(refused, None, "{worker} {namespaces:?}"),
                Some(says) => {
                    let refused = refused.expect(worker);
                    assert!(refused.contains(says), "{refused}");
                }
            }
        }
    }

    #[test]
    fn a_change_is_kept_and_a_damaged_list_is_no_empty_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = DataDir::open(dir.path()).expect("opened");
        assert_eq!(Grants::load(&data).expect("none yet"), Grants::default());
        let file = credential::file(&data.credentials(), "weather");
        let key = credentials(&file).expect("made");
        assert_eq!(credentials(&file).expect("kept"), key);
        let text = fs::read_to_string(&file).expect("readable");
        assert!(text.starts_with("SU") && text.len() == 58, "the seed alone");
        let grant = Grant {
            namespaces: set(&["weather"]),
            key: key.clone(),
        };
        let mut change = Change::begin(&data).expect("begun");
        change.put(name("weather"), grant.clone()).expect("stored");
        drop(change);
        let listed = Grants::load(&data).expect("readable");
        assert_eq!(listed.workers.get(&name("weather")), Some(&grant));
        let text = config(&data).expect("made").render(None);
        assert!(text.contains(&key) && text.contains("\"fn.weather.>\""));

        let mut change = Change::begin(&data).expect("begun");
        assert!(change.remove(&name("weather")).expect("removed"));
        assert!(!change.remove(&name("weather")).expect("gone already"));
        drop(change);
        forget(&file).expect("removed");
        forget(&file).expect("gone already");
        assert!(!config(&data).expect("made").render(None).contains(&key));
        assert!(!apply(&data).expect("nothing runs"));

        fs::write(path(&data), "{\"workers\": {\"router\"").expect("written");
        let error = config(&data).expect_err("damaged");
        assert!(error.to_string().contains("grants.json"), "{error}");
    }
}
