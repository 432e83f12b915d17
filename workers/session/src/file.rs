//! The file of the projection: opened, recognised, replaced.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};

use crate::{error::StoreError, schema};

/// How long another process that shares the file is waited for.
const BUSY: Duration = Duration::from_secs(5);
/// Statements that are kept prepared.
const STATEMENTS: usize = 64;

/// An open projection.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// Which file it is; `None` in memory.
    identity: Option<(u64, u64)>,
    path: Option<PathBuf>,
}

impl Opened {
    /// Opens the projection; one that cannot be used is replaced by an empty one, and so says the second part.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, StoreError> {
        let Some(path) = path else {
            let connection = Connection::open_in_memory()?;
            schema::ensure(&connection)?;
            return Ok(Self::new(connection, None, None));
        };
        match Self::try_open(path) {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => tracing::info!(
                file = %path.display(),
                "the projection is of another version; it is built anew"
            ),
            Err(error) if error.is_damage() => tracing::warn!(
                file = %path.display(),
                error = %teamster_telemetry::chain(&error),
                "the projection cannot be used; it is built anew"
            ),
            Err(error) => return Err(error),
        }
        remove(path)?;
        match Self::try_open(path)? {
            Some(opened) => Ok(opened),
            None => Err(StoreError::Open("another process replaces it".into())),
        }
    }

    fn new(connection: Connection, identity: Option<(u64, u64)>, path: Option<&Path>) -> Self {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Self {
            connection,
            identity,
            path: path.map(Path::to_owned),
        }
    }

    fn try_open(path: &Path) -> Result<Option<Self>, StoreError> {
        make(path)?;
        let identity = identity(path);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        if !schema::ensure(&connection)? {
            return Ok(None);
        }
        Ok(Some(Self::new(connection, identity, Some(path))))
    }

    /// Whether the file at the path is still the one that is open.
    pub(crate) fn is_in_place(&self) -> bool {
        self.path
            .as_deref()
            .is_none_or(|path| identity(path) == self.identity)
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> Result<u64, StoreError> {
        let number = |name: &str| -> Result<u64, StoreError> {
            let value: i64 = self
                .connection
                .pragma_query_value(None, name, |row| row.get(0))?;
            Ok(u64::try_from(value).unwrap_or(0))
        };
        Ok(number("page_count")?.saturating_mul(number("page_size")?))
    }
}

/// Removes a projection and what `SQLite` keeps beside it.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    for suffix in ["-wal", "-shm", ""] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(&name) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::Open(error.into())),
        }
    }
    Ok(())
}

/// Makes the file, readable by its owner only, as `SQLite` then makes what it keeps beside it.
fn make(path: &Path) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| StoreError::Open(error.into());
    match fs::symlink_metadata(path) {
        // Nothing is lost with an empty directory, and what is in another one is not ours.
        Ok(found) if found.is_dir() => match fs::remove_dir(path) {
            Ok(()) => make(path),
            Err(error) => {
                let why = format!("it is a directory, which cannot be replaced: {error}");
                Err(StoreError::Open(why.into()))
            }
        },
        Ok(found) if !found.is_file() => Err(StoreError::Open("it is no regular file".into())),
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)
            .map(drop)
            .map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_in_the_place_of_the_file_is_replaced_and_a_full_one_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("session.sqlite");
        fs::create_dir(&path).expect("made");
        let opened = Opened::open(Some(&path)).expect("opened");
        assert!(opened.is_in_place() && path.is_file());
        drop(opened);
        fs::remove_file(&path).expect("removed");
        fs::create_dir_all(path.join("mine")).expect("made");
        let error = Opened::open(Some(&path)).err().expect("refused");
        let text = teamster_telemetry::chain(&error);
        assert!(text.contains("it is a directory"), "{text}");
        assert!(path.join("mine").is_dir());
    }
}
