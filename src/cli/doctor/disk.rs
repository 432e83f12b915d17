//! Whether there is room for what will be stored, and whether it can be written at all.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use teamster_mesh::broker::room;

use super::{Finding, State};

/// Free bytes below which the next days may already fail.
const FREE_MIN: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

/// Bytes of a test write: more than what a server that is full may still find room for in what it holds open.
const WRITTEN: usize = 1 << 20;

/// The free space where the data directory lies or will lie.
pub(super) fn room(data: &Path) -> Finding {
    room::free(data).map_or_else(
        || Finding::new("disk", State::Warning, "the free space is not known"),
        judge,
    )
}

/// A file that is written, flushed and removed again, in the data directory or, before there is one, where it will lie.
pub(super) fn written(data: &Path) -> Finding {
    let Some(there) = data.ancestors().find(|path| path.is_dir()) else {
        return Finding::new("write", State::Failed, "there is no such place");
    };
    let path = there.join(format!(".teamster-{}.test", uuid::Uuid::now_v7().simple()));
    match test_write(&path) {
        Ok(()) => Finding::new("write", State::Ok, "a test write was flushed to the disk"),
        Err(error) => Finding::new(
            "write",
            State::Failed,
            format_args!("cannot write to {}: {error}", there.display()),
        )
        .hint("look at its rights and its room: what cannot be stored is not accepted"),
    }
}

fn test_write(path: &PathBuf) -> std::io::Result<()> {
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(&vec![0; WRITTEN])?;
        file.sync_all()
    };
    let written = write();
    // It may not have been made at all.
    let _ = std::fs::remove_file(path);
    written
}

fn judge(free: u64) -> Finding {
    let told = format!("{} MiB free for the data directory", free / MIB);
    if free < room::FULL {
        return Finding::new("disk", State::Failed, told)
            .hint("make room: nothing can be stored, and turns stand still until there is some");
    }
    if free >= FREE_MIN {
        return Finding::new("disk", State::Ok, told);
    }
    Finding::new("disk", State::Warning, told)
        .hint("make room: what cannot be stored is not accepted, and turns stand still")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_nearly_full_is_told() {
        for (free, state) in [
            (0, State::Failed),
            (room::FULL, State::Warning),
            (FREE_MIN - 1, State::Warning),
            (FREE_MIN, State::Ok),
        ] {
            let finding = judge(free);
            assert_eq!(finding.state, state, "{free}");
            assert_eq!(finding.hint.is_some(), state != State::Ok, "{free}");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let finding = room(&dir.path().join("not/yet"));
        assert!(finding.detail.contains("MiB free"), "{finding:?}");
    }

    #[test]
    fn a_test_write_leaves_nothing_and_tells_what_failed() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(written(&dir.path().join("not/yet")).state, State::Ok);
        assert_eq!(
            std::fs::read_dir(dir.path()).expect("it is there").count(),
            0
        );
        let error = test_write(&dir.path().join("no/such/place")).expect_err("no place");
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
