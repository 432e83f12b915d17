//! Whether the projection's file can be opened where no session worker runs that would say so, and whether the one that runs answers.

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    path::Path,
};

use super::{Finding, State};
use crate::{cli::failure::Failure, cli::status::counted, client::Client, config::Config};

/// How a file of `SQLite` begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The file, as it lies there. Nothing is opened as a projection: that may be another process's.
pub(super) fn file(config: &Config, data: &Path) -> Option<Finding> {
    let path = config.session.file.as_deref()?;
    let failed = |problem: &str| {
        Finding::new(
            "projection",
            State::Failed,
            format_args!("{}: {problem}", path.display()),
        )
        .hint(
            "move it away: the session worker makes the file anew from the log, and nothing is lost",
        )
    };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Some(failed("it is a directory")),
        Ok(found) if !found.is_file() => return Some(failed("it is no regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => return absent(path, data),
        Err(error) => return Some(failed(&error.to_string())),
        Ok(_) => {}
    }
    match begins(path) {
        Ok(begin) if begin.is_empty() || begin == MAGIC => None,
        Ok(_) => Some(
            Finding::new(
                "projection",
                State::Warning,
                format_args!(
                    "{} is no database; the session worker replaces it when it starts",
                    path.display()
                ),
            )
            .hint("move it away if it is yours: the projection is made anew from the log"),
        ),
        Err(error) => Some(failed(&error.to_string())),
    }
}

/// A file that is not there is made, and so is the data directory, but no other one.
fn absent(path: &Path, data: &Path) -> Option<Finding> {
    let dir = path.parent()?;
    (!dir.is_dir() && dir != data).then(|| {
        Finding::new(
            "projection",
            State::Failed,
            format_args!("{}: there is no such directory", dir.display()),
        )
        .hint("make it, or correct `session.file` in config.yaml")
    })
}

fn begins(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    File::open(path)?
        .take(MAGIC.len() as u64)
        .read_to_end(&mut begin)?;
    Ok(begin)
}

/// What the session worker that runs says of its projection; nothing where none runs, which is a finding of its own.
pub(super) async fn live(client: &Client) -> Option<Finding> {
    Some(match client.projection().await {
        Ok(status) => Finding::new(
            "projection",
            State::Ok,
            match status.behind {
                0 => format!("{} in it", counted(status.commits, "commit")),
                behind => format!(
                    "{} in it, {behind} to come",
                    counted(status.commits, "commit")
                ),
            },
        ),
        Err(crate::client::Error::NoWorker(_)) => return None,
        Err(error) => {
            let failure = Failure::from(error);
            Finding::new("projection", State::Failed, &failure).hint(
                "lists, searches and costs do not answer; look at `session.sqlite` of the session worker's data directory: \
                 what is no file of its own is to be moved away, it is made anew from the log",
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_projection_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("session.sqlite");
        let mut config = Config::compiled_in().expect("valid");
        config.session.file = Some(path.clone());
        let look = |config: &Config| file(config, dir.path()).map(|finding| finding.state);
        assert_eq!(look(&config), None, "it is made");
        std::fs::write(&path, b"").expect("written");
        assert_eq!(look(&config), None, "not begun yet");
        std::fs::write(&path, b"SQLite format 3\0 and more").expect("written");
        assert_eq!(look(&config), None);
        std::fs::write(&path, b"notes").expect("written");
        assert_eq!(look(&config), Some(State::Warning));
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        assert_eq!(look(&config), Some(State::Failed));
        config.session.file = Some(dir.path().join("no/such/place.sqlite"));
        assert_eq!(look(&config), Some(State::Failed));
    }
}
