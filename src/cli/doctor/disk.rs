//! Whether there is room for what will be stored.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::{Finding, State};

/// Free bytes below which the next days may already fail.
const FREE_MIN: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

/// The free space where the data directory lies or will lie.
pub(super) fn room(data: &Path) -> Finding {
    let Some(there) = data.ancestors().find(|path| path.exists()) else {
        return Finding::new("disk", State::Warning, "not known: there is no such place");
    };
    match statvfs(there) {
        Ok(volume) => judge(
            volume
                .blocks_available()
                .saturating_mul(volume.fragment_size()),
        ),
        Err(error) => Finding::new("disk", State::Warning, format_args!("not known: {error}")),
    }
}

fn judge(free: u64) -> Finding {
    let told = format!("{} MiB free for the data directory", free / MIB);
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
            (0, State::Warning),
            (FREE_MIN - 1, State::Warning),
            (FREE_MIN, State::Ok),
        ] {
            let finding = judge(free);
            assert_eq!(finding.state, state, "{free}");
            assert_eq!(finding.hint.is_some(), state == State::Warning, "{free}");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let finding = room(&dir.path().join("not/yet"));
        assert!(finding.detail.contains("MiB free"), "{finding:?}");
    }
}
