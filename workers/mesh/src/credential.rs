//! Credentials of the embedded server's users: one nkey each, as a file that only its owner can read.
//!
//! A file holds the user's seed alone; what the user may do stands in the server's configuration, under the public key.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nkeys::{KeyPair, KeyPairType};

use crate::broker::error::{Error, io};

/// Mode of the directory.
const DIRECTORY_MODE: u32 = 0o700;
/// Mode of a file.
const FILE_MODE: u32 = 0o600;

/// The file of one user in a credentials directory.
pub fn file(dir: &Path, user: &str) -> PathBuf {
    dir.join(format!("{user}.creds"))
}

/// Makes sure that each user has credentials in `dir`, and answers their public keys by user. What exists is kept; a file
/// that cannot be read as credentials is an error that names it, never replaced.
pub fn ensure<'a>(
    dir: &Path,
    users: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeMap<String, String>, Error> {
    private_directory(dir)?;
    users
        .into_iter()
        .map(|user| {
            let path = file(dir, user);
            if !path.exists() {
                write(&path, &KeyPair::new_user())?;
            }
            Ok((user.to_owned(), read(&path)?.public_key()))
        })
        .collect()
}

/// Makes sure that a directory is there and that only its owner can use it.
pub(crate) fn private_directory(dir: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(dir)
        .map_err(io(format!("creating {}", dir.display())))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(DIRECTORY_MODE))
        .map_err(io(format!("closing {} to others", dir.display())))
}

/// The key pair that a file holds.
pub fn read(path: &Path) -> Result<KeyPair, Error> {
    let text = fs::read_to_string(path).map_err(io(format!("reading {}", path.display())))?;
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with("SU"))
        .find_map(|line| KeyPair::from_seed(line).ok())
        .filter(|pair| pair.key_pair_type() == KeyPairType::User)
        .ok_or_else(|| Error::Credentials {
            path: path.to_owned(),
        })
}

/// What others could read or change in a credentials directory, one line each, for `doctor`. Empty: nothing.
pub fn check(dir: &Path) -> Result<Vec<String>, Error> {
    let listing = || format!("reading {}", dir.display());
    let mut found = Vec::new();
    let mut look = |path: &Path, allowed: u32| -> Result<(), Error> {
        let meta =
            fs::symlink_metadata(path).map_err(io(format!("looking at {}", path.display())))?;
        let mode = meta.permissions().mode() & 0o777;
        if meta.is_symlink() {
            found.push(format!("{} is a link", path.display()));
        } else if mode & !allowed != 0 {
            found.push(format!(
                "{} has mode {mode:03o}; it should be {allowed:03o}",
                path.display()
            ));
        }
        Ok(())
    };
    look(dir, DIRECTORY_MODE)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(io(listing()))? {
        files.push(entry.map_err(io(listing()))?.path());
    }
    files.sort();
    for path in files {
        look(&path, FILE_MODE)?;
    }
    Ok(found)
}

/// Writes a new file whole or not at all.
fn write(path: &Path, pair: &KeyPair) -> Result<(), Error> {
    let seed = pair.seed().map_err(|_| Error::Credentials {
        path: path.to_owned(),
    })?;
    let text = format!(
        "-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n\n\
         Whoever holds this seed is this user. Keep it from others.\n"
    );
    write_whole(path, text.as_bytes()).map_err(io(format!("writing {}", path.display())))
}

/// Replaces a file's content at once and durably; only its owner can read it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let scratch = path.with_extension("new");
    let _ = fs::remove_file(&scratch); // left by a process that was killed here
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&scratch)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&scratch, path)?;
    path.parent()
        .map_or(Ok(()), |dir| fs::File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_made_once_and_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("credentials");
        let first = ensure(&dir, ["harness", "router"]).expect("made");
        assert_ne!(first.get("harness"), first.get("router"));
        let second = ensure(&dir, ["harness", "router", "sandbox"]).expect("kept");
        assert_eq!(second.get("harness"), first.get("harness"));
        assert_eq!(second.len(), 3);
        assert!(
            second
                .values()
                .all(|key| key.starts_with('U') && key.len() == 56)
        );
        assert_eq!(check(&dir).expect("readable"), Vec::<String>::new());
    }

    #[test]
    fn files_that_others_can_read_are_reported() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("credentials");
        ensure(&dir, ["harness"]).expect("made");
        let open = fs::Permissions::from_mode(0o644);
        fs::set_permissions(file(&dir, "harness"), open).expect("opened");
        let found = check(&dir).expect("readable");
        assert_eq!(found.len(), 1);
        assert!(
            found
                .iter()
                .all(|line| line.contains("harness.creds has mode 644"))
        );
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = file(dir.path(), "harness");
        let account = KeyPair::new_account().seed().expect("a seed");
        for damaged in ["", "SUAB", account.as_str()] {
            fs::write(&path, damaged).expect("written");
            let error = ensure(dir.path(), ["harness"]).expect_err("refused");
            assert!(error.to_string().contains("harness.creds"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("there"), damaged);
        }
    }
}
