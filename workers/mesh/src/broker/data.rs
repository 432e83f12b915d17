//! The data directory: where everything of one mesh lies, and the lock that lets one `up` use it.
//!
//! ```text
//! <data>/up.lock                   held by `up` while it runs; names its process
//! <data>/nats/nats-server.conf     generated at each start
//! <data>/nats/server.lock          held by nats-server itself for as long as it lives
//! <data>/nats/server.json          the server's process, port and settings, for the next `up`
//! <data>/nats/jetstream/           the streams
//! <data>/credentials/<user>.creds  one seed each, readable by its owner alone
//! <data>/grants.json               workers from outside and what they serve
//! <data>/log/nats-server.log       the server's log, rotated
//! ```

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::error::{Error, io};

/// A data directory that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    root: PathBuf,
}

/// The right to run the one `up` of a data directory, for as long as it lives. A process that is killed loses it.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

impl DataDir {
    /// Creates the directory where it is missing, readable by its owner alone. Its path becomes absolute and free of links.
    pub fn open(path: &Path) -> Result<Self, Error> {
        create(path)?;
        let root = fs::canonicalize(path).map_err(io(format!("resolving {}", path.display())))?;
        let data = Self { root };
        for dir in [data.nats(), data.log()] {
            create(&dir)?;
        }
        Ok(data)
    }

    /// The directory if it exists; nothing is created.
    pub fn find(path: &Path) -> Option<Self> {
        let root = fs::canonicalize(path).ok().filter(|root| root.is_dir())?;
        Some(Self { root })
    }

    /// Takes the instance lock without waiting. Where another process has it, the error names that process.
    pub fn lock(&self) -> Result<InstanceLock, Error> {
        let path = self.root.join("up.lock");
        let action = || format!("locking {}", path.display());
        let mut file = open_lock(&path).map_err(io(action()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Held {
                    path: self.root.clone(),
                    pid: read_pid(&file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(action())(source)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(io(action()))?;
        Ok(InstanceLock { _file: file })
    }

    /// The process that holds the instance lock now; `None` where none does, or where it has not said yet which it is.
    pub fn holder(&self) -> Option<u32> {
        let file = File::open(self.root.join("up.lock")).ok()?;
        // A shared lock: two that look at the same time do not see each other.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => read_pid(&file),
            _ => None,
        }
    }

    /// The directory itself, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the users' credentials lie.
    pub fn credentials(&self) -> PathBuf {
        self.root.join("credentials")
    }

    /// Where logs lie.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The server's own corner.
    pub(crate) fn nats(&self) -> PathBuf {
        self.root.join("nats")
    }

    /// The lock that the server holds.
    pub(crate) fn server_lock(&self) -> PathBuf {
        self.nats().join("server.lock")
    }
}

/// The process that a lock's file names.
fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn create(dir: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io(format!("creating {}", dir.display())))
}

/// Opens a file to be locked, making it where it is missing. Its content stays.
pub(crate) fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_data_directory_is_its_owners_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = DataDir::open(&dir.path().join("a/b")).expect("opened");
        for path in [data.root().to_owned(), data.nats(), data.log()] {
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", path.display());
        }
    }

    #[test]
    fn looking_for_a_data_directory_makes_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        assert_eq!(DataDir::find(&path), None);
        let made = DataDir::open(&path).expect("opened");
        assert_eq!(DataDir::find(&path), Some(made));
    }

    #[test]
    fn the_second_holder_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = DataDir::open(dir.path()).expect("opened");
        assert_eq!(data.holder(), None);
        let first = data.lock().expect("free");
        let error = data.lock().expect_err("held");
        let Error::Held { path, pid } = &error else {
            panic!("{error}");
        };
        assert_eq!(
            (path.as_path(), *pid),
            (data.root(), Some(std::process::id()))
        );
        assert_eq!(data.holder(), Some(std::process::id()));
        drop(first);
        assert_eq!(data.holder(), None);
        data.lock().expect("free again");
    }
}
