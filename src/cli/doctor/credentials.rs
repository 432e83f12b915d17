//! Whether the credentials are there and kept from others.

use std::path::Path;

use teamster_mesh::{credential, permission};
use teamster_protocol::text;
use teamster_telemetry::chain;

use super::{Finding, State};
use crate::host;

/// Those of the data directory's own server. A file that is missing is made by the next start, with a new key; a server that runs
/// knows the old one.
pub(super) fn own(data: &Path) -> Finding {
    let dir = data.join("credentials");
    if !dir.exists() {
        return Finding::new("credentials", State::Ok, "made by the first start");
    }
    let missing: Vec<String> = permission::users()
        .map(|user| credential::file(&dir, user))
        .filter(|path| !path.exists())
        .map(|path| path.display().to_string())
        .collect();
    if !missing.is_empty() {
        let detail = format!("missing: {}", missing.join(", "));
        return if host::embedded::is_held(data) {
            Finding::new("credentials", State::Failed, detail).hint(
                "end `teamster up` (Ctrl-C, or SIGTERM) and start it again: it makes them anew",
            )
        } else {
            Finding::new("credentials", State::Warning, detail)
                .hint("nothing: the next start makes them anew")
        };
    }
    if let Some(finding) = useless(&dir) {
        return finding;
    }
    let name = text::shell(&dir.to_string_lossy()).into_owned();
    match credential::check(&dir) {
        Ok(found) if found.is_empty() => {
            Finding::new("credentials", State::Ok, "readable by you alone")
        }
        Ok(found) => Finding::new("credentials", State::Failed, found.join("; "))
            .hint(format_args!("chmod 700 {name} && chmod 600 {name}/*")),
        Err(error) => Finding::new("credentials", State::Failed, chain(&error)).hint(format_args!(
            "`ls -la {name}` shows whose they are and who may read them"
        )),
    }
}

/// The first file that is no user's credentials: neither a start nor a command can use it, and none replaces it.
fn useless(dir: &Path) -> Option<Finding> {
    let mut files = permission::users().map(|user| credential::file(dir, user));
    let (file, error) = files.find_map(|file| {
        let error = credential::read(&file).err()?;
        Some((file, error))
    })?;
    let file = file.to_string_lossy();
    let file = text::shell(&file);
    Some(Finding::new("credentials", State::Failed, chain(&error)).hint(format_args!(
        "`mv {file} {file}.old`, end `teamster up` where it runs (Ctrl-C, or SIGTERM) and start it again: it makes new ones"
    )))
}

/// Those that `--creds` names.
pub(super) fn foreign(path: &Path) -> Finding {
    if !path.is_dir() {
        return match path.metadata() {
            Ok(_) => Finding::new(
                "credentials",
                State::Warning,
                "one file for all workers: the broker cannot tell them apart",
            )
            .hint("use a directory of <worker>.creds, so that each has only its own rights"),
            Err(error) => Finding::new(
                "credentials",
                State::Failed,
                format_args!("{}: {error}", path.display()),
            )
            .hint("name a directory that holds <worker>.creds, or one file: `--creds PATH`"),
        };
    }
    let operator = credential::file(path, permission::OPERATOR);
    if !operator.exists() {
        return Finding::new(
            "credentials",
            State::Failed,
            format_args!("missing: {}", operator.display()),
        )
        .hint("commands use it: put it there, from the server whose credentials these are");
    }
    match credential::check(path) {
        Ok(found) if found.is_empty() => Finding::new(
            "credentials",
            State::Ok,
            "one file a worker, readable by you alone",
        ),
        Ok(found) => Finding::new("credentials", State::Warning, found.join("; "))
            .hint("close them to others: 700 for the directory, 600 for each file"),
        Err(error) => Finding::new("credentials", State::Failed, chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_that_are_missing_are_told() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(own(dir.path()).state, State::Ok, "not made yet");
        let kept = dir.path().join("credentials");
        credential::ensure(&kept, permission::users()).expect("made");
        assert_eq!(own(dir.path()).state, State::Ok);
        assert_eq!(foreign(&kept).state, State::Ok);
        let operator = credential::file(&kept, permission::OPERATOR);
        std::fs::remove_file(&operator).expect("removed");
        let (ours, theirs) = (own(dir.path()), foreign(&kept));
        assert_eq!((ours.state, theirs.state), (State::Warning, State::Failed));
        for finding in [ours, theirs] {
            assert!(finding.detail.contains("operator.creds"), "{finding:?}");
            assert!(finding.hint.is_some(), "{finding:?}");
        }
        assert_eq!(foreign(&operator).state, State::Failed);
    }
}
