//! Whether the store's disk has room, and when a server that met its end must be started again.
//!
//! A server that cannot write a stream's file says nothing to whoever published, and leaves that stream alone from then on,
//! also when there is room again: only a new start makes it write. What it has acknowledged is kept by that.

use std::{path::Path, time::Duration};

use nix::sys::statvfs::statvfs;

/// Free bytes below which the disk counts as full.
pub const FULL: u64 = 1 << 20;
/// Free bytes from which on it counts as one with room again.
const ROOM: u64 = 4 << 20;
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The bytes that may still be written where `path` lies; `None` where that cannot be told, or where nothing is ever stored (`/proc`).
pub fn free(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|path| path.exists())?;
    let volume = statvfs(there).ok()?;
    if volume.blocks() == 0 {
        return None;
    }
    Some(
        volume
            .blocks_available()
            .saturating_mul(volume.fragment_size()),
    )
}

/// Whether nothing can be stored where `path` lies.
pub fn is_full(path: &Path) -> bool {
    free(path).is_some_and(|free| free < FULL)
}

/// What was seen of the disk.
#[derive(Debug, Default)]
pub(super) struct Room {
    was_full: bool,
}

impl Room {
    /// Returns when there is room again behind a time without.
    pub(super) async fn is_back(&mut self, store: &Path) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.see(free(store)) {
                return;
            }
        }
    }

    /// Takes a look; whether there is room again.
    fn see(&mut self, free: Option<u64>) -> bool {
        let Some(free) = free else { return false };
        if free < FULL {
            if !std::mem::replace(&mut self.was_full, true) {
                tracing::error!(
                    free,
                    "the disk is full: nothing can be stored until there is room"
                );
            }
            return false;
        }
        free >= ROOM && std::mem::take(&mut self.was_full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_started_again_once_when_there_is_room_again() {
        let mut room = Room::default();
        for (free, want) in [
            (Some(ROOM), false),
            (Some(FULL), false),
            (Some(ROOM), false),
            (Some(FULL - 1), false),
            (Some(0), false),
            (None, false),
            (Some(FULL), false),
            (Some(ROOM), true),
            (Some(ROOM), false),
        ] {
            assert_eq!(room.see(free), want, "{free:?}");
        }
    }

    #[test]
    fn a_place_that_is_not_there_yet_has_the_room_of_its_parent() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(free(&dir.path().join("not/yet")).is_some());
        assert_eq!(is_full(&dir.path().join("not/yet")), is_full(dir.path()));
    }

    #[test]
    fn a_place_where_nothing_is_ever_stored_is_not_full() {
        let place = Path::new("/proc/nope");
        assert_eq!((free(place), is_full(place)), (None, false));
    }
}
