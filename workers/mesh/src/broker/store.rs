//! What the server of a data directory keeps, seen from outside of it: which streams must be there, and what makes it read one anew.

use std::{fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    data::DataDir,
    error::{Error, io},
};
use crate::credential;

/// Bytes of the list that are read.
const BYTES_MAX: u64 = 64 * 1024;
/// The version of the list that this build writes.
const VERSION: u32 = 1;

/// The content of `<data>/store.json`.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    v: u32,
    /// Streams that were made, and that hold what nothing else does.
    streams: Vec<String>,
}

/// The file that says which streams a data directory's store must hold.
pub fn list_of(data: &DataDir) -> PathBuf {
    data.root().join("store.json")
}

/// The streams that the store must hold: empty where none was made yet.
///
/// # Errors
/// Where the list is there and cannot be read.
pub fn listed(data: &DataDir) -> Result<Vec<String>, Error> {
    let path = list_of(data);
    let reading = || format!("reading {}", path.display());
    let length = match fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(io(reading()))?.len(),
    };
    let invalid = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    if length > BYTES_MAX {
        return Err(io(reading())(invalid(format!("it has {length} bytes"))));
    }
    let bytes = fs::read(&path).map_err(io(reading()))?;
    let list: List = serde_json::from_slice(&bytes)
        .map_err(|error| io(reading())(invalid(error.to_string())))?;
    Ok(list.streams)
}

/// Notes which streams the store holds from now on.
pub fn list(data: &DataDir, streams: Vec<String>) -> Result<(), Error> {
    let path = list_of(data);
    let list = List {
        v: VERSION,
        streams,
    };
    let bytes = serde_json::to_vec(&list).unwrap_or_default();
    if fs::read(&path).is_ok_and(|kept| kept == bytes) {
        return Ok(());
    }
    credential::write_whole(&path, &bytes).map_err(io(format!("writing {}", path.display())))
}

/// The streams that the store must hold and of which nothing lies in it. For a store that no server uses.
///
/// # Errors
/// Where the list is there and cannot be read.
pub fn lost(data: &DataDir) -> Result<Vec<String>, Error> {
    let mut lost = listed(data)?;
    for account in accounts(data) {
        lost.retain(|stream| !account.join("streams").join(stream).is_dir());
    }
    Ok(lost)
}

fn accounts(data: &DataDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.nats().join("jetstream"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|account| account.path()).collect()
}

/// Removes the server's indices of streams, so that it reads what they hold anew when it starts. No server may run.
pub fn forget_index(data: &DataDir, streams: &[String]) -> Result<(), Error> {
    for account in accounts(data) {
        for stream in streams {
            let folder = account.join("streams").join(stream).join("msgs");
            let index = folder.join("index.db");
            match fs::remove_file(&index) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io(format!("removing {}", index.display()))(error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_and_garbage_is_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = DataDir::open(dir.path()).expect("opened");
        assert_eq!(listed(&data).expect("read"), Vec::<String>::new());
        let streams = vec!["LOG_0".to_owned(), "TURNS".to_owned()];
        list(&data, streams.clone()).expect("written");
        assert_eq!(listed(&data).expect("read"), streams);
        fs::write(list_of(&data), "no list").expect("written");
        let error = listed(&data).expect_err("garbage");
        assert!(error.to_string().contains("store.json"), "{error}");
    }

    #[test]
    fn only_the_named_indices_are_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = DataDir::open(dir.path()).expect("opened");
        let index = |stream: &str| {
            let folder = data.nats().join("jetstream/A/streams").join(stream);
            folder.join("msgs/index.db")
        };
        for stream in ["LOG_0", "LOG_1"] {
            let path = index(stream);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "index").expect("written");
        }
        let named = ["LOG_0", "LOG_2"].map(str::to_owned);
        list(&data, named.to_vec()).expect("written");
        assert_eq!(lost(&data).expect("read"), ["LOG_2"]);
        forget_index(&data, &named).expect("removed");
        assert!(!index("LOG_0").exists() && index("LOG_1").exists());
    }
}
