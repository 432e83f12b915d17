//! The two directories that a command works with: the data directory and the workspace.

use std::{
    io::ErrorKind,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    unistd::{AccessFlags, Uid, User, eaccess, geteuid},
};
use teamster_mesh::Connect;
use teamster_protocol::text;

use super::{exit::Exit, failure::Failure};
use crate::env;

/// The data directory: the flag or its variable, else the XDG place. Absolute; it need not exist.
pub(super) fn data_dir(flag: Option<&Path>) -> Result<PathBuf, Failure> {
    let wanted = match flag {
        Some(path) => path.to_owned(),
        None => xdg(
            std::env::var_os(env::XDG_DATA_HOME).map(PathBuf::from),
            std::env::var_os(env::HOME).map(PathBuf::from),
        )
        .ok_or_else(|| {
            Failure::usage(
                "cli.no_data_dir",
                "there is no home directory to keep data in",
            )
            .hint("say where: `--data DIR`")
        })?,
    };
    let path = std::path::absolute(&wanted).map_err(|error| unusable(&wanted, &error))?;
    is_usable(&path)?;
    Ok(path)
}

/// Whether a directory is there or may be made there. Nothing is made.
fn is_usable(path: &Path) -> Result<(), Failure> {
    match path.metadata() {
        Ok(found) if found.is_dir() => open_to_me(path),
        Ok(_) => Err(unusable(path, &ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => match path.symlink_metadata() {
            Ok(_) => Err(unusable(path, &error)),
            Err(_) => Ok(()),
        },
        Err(error) => Err(unusable(path, &error)),
    }
}

/// Whether this process may look into a data directory and what of it is needed to reach its mesh. Somebody else's is closed,
/// and no mesh is started beside theirs.
fn open_to_me(path: &Path) -> Result<(), Failure> {
    let closed = ["", "nats", "credentials", "up.lock"]
        .iter()
        .find_map(|name| {
            let within = path.join(name);
            let found = within.metadata().ok()?;
            let wanted = if found.is_dir() {
                AccessFlags::R_OK | AccessFlags::X_OK
            } else {
                AccessFlags::R_OK
            };
            (eaccess(&within, wanted) == Err(Errno::EACCES)).then_some((within, found))
        });
    match closed {
        None => closed_to_others(path),
        Some((closed, found)) => Err(locked(path, &closed, &found)),
    }
}

/// Whether nobody else decides what is allowed here. Who may write a data directory, its configuration or its policy may let an agent
/// do anything in the name of whoever starts it. Groups are not looked at: many systems give each user one of their own.
fn closed_to_others(path: &Path) -> Result<(), Failure> {
    for name in ["", "config.yaml", "policy.yaml"] {
        let within = if name.is_empty() {
            path.to_owned()
        } else {
            path.join(name)
        };
        let Ok(found) = within.metadata() else {
            continue;
        };
        let place = within.display();
        let owner = Uid::from_raw(found.uid());
        let refused = |why: &str, next: &str| {
            let shown = path.display();
            Failure::usage(
                "cli.data_dir",
                format_args!("the data directory {shown} cannot be used: {why}, and who may write it decides what an agent may do"),
            )
            .hint(next)
        };
        if owner != geteuid() && !owner.is_root() {
            let owner = name_of(owner);
            return Err(refused(
                &format!("{place} belongs to {owner}"),
                &format!("run this as {owner}; or name a data directory of your own: `--data DIR`"),
            ));
        }
        if found.permissions().mode() & 0o002 != 0 {
            let shown = text::shell(&within.to_string_lossy()).into_owned();
            return Err(refused(
                &format!("everybody may write {place}"),
                &format!("look at what is in it, then: chmod o-w {shown}"),
            ));
        }
    }
    Ok(())
}

/// A data directory of which `closed`, itself or a part of it or of its path, is not open to this user.
fn locked(path: &Path, closed: &Path, found: &std::fs::Metadata) -> Failure {
    let me = geteuid();
    let owner = Uid::from_raw(found.uid());
    let shown = |path: &Path| text::shell(&path.to_string_lossy()).into_owned();
    let what = if closed == path {
        String::new()
    } else {
        format!(": {}", closed.display())
    };
    if owner == me {
        let mode = found.permissions().mode() & 0o777;
        return Failure::usage(
            "cli.data_dir",
            format_args!(
                "the data directory {} cannot be used: its mode of {mode:03o} keeps you out though it is yours{what}",
                path.display()
            ),
        )
        .hint(format_args!("chmod u+rwX {}", shown(closed)));
    }
    let (owner, me) = (name_of(owner), name_of(me));
    Failure::usage(
        "cli.data_dir",
        format_args!(
            "the data directory {} belongs to {owner}, and {me} may not look into it{what}",
            path.display()
        ),
    )
    .hint(format_args!(
        "run this as {owner}; or name a data directory of your own: `--data DIR`"
    ))
}

/// A user's name, or their number where they have none.
fn name_of(user: Uid) -> String {
    match User::from_uid(user) {
        Ok(Some(user)) => user.name,
        _ => format!("the user {user}"),
    }
}

/// The nearest place above a path that can be seen, which is what keeps one out of it.
fn seen_above(path: &Path) -> Option<(PathBuf, std::fs::Metadata)> {
    let mut above = path.ancestors().skip(1);
    above.find_map(|above| Some((above.to_owned(), above.metadata().ok()?)))
}

/// A data directory that is none and cannot become one.
fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    if error.kind() == ErrorKind::PermissionDenied
        && let Some((closed, found)) = seen_above(path)
    {
        return locked(path, &closed, &found);
    }
    let (why, next) = match error.kind() {
        ErrorKind::NotADirectory => (
            "it is no directory, or a part of its path is none".to_owned(),
            "name another one: `--data DIR`",
        ),
        ErrorKind::NotFound => (
            "it is a link to a place that is not there".to_owned(),
            "make that place, or name another one: `--data DIR`",
        ),
        _ => (error.to_string(), "name another one: `--data DIR`"),
    };
    Failure::usage(
        "cli.data_dir",
        format_args!(
            "the data directory {} cannot be used: {why}",
            path.display()
        ),
    )
    .hint(next)
}

/// A relative XDG value is to be ignored, as its specification says.
fn xdg(data_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    data_home
        .filter(|path| path.is_absolute())
        .or_else(|| {
            home.filter(|path| path.is_absolute())
                .map(|home| home.join(".local/share"))
        })
        .map(|base| base.join("teamster"))
}

/// A server that somebody else runs. Credentials that are named must be there.
pub(super) fn foreign(url: &str, creds: Option<&Path>) -> Result<Connect, Failure> {
    if let Some(path) = creds
        && let Err(error) = path.metadata()
    {
        return Err(Failure::usage(
            "cli.credentials",
            format_args!("cannot read the credentials {}: {error}", path.display()),
        )
        .hint("name a directory that holds <worker>.creds, or one file: `--creds PATH`"));
    }
    Ok(Connect {
        url: url.to_owned(),
        credentials: creds.map(Path::to_owned),
    })
}

/// The workspace: the named directory, else the working directory; canonical.
pub(super) fn workspace(flag: Option<&Path>) -> Result<PathBuf, Failure> {
    let wanted = flag.unwrap_or_else(|| Path::new("."));
    let path = wanted.canonicalize().map_err(|error| {
        Failure::usage(
            "cli.workspace",
            format_args!("cannot use the workspace {}: {error}", wanted.display()),
        )
        .hint("name a directory that exists: `--workspace DIR`")
    })?;
    if !path.is_dir() {
        return Err(Failure::usage(
            "cli.workspace",
            format_args!("the workspace {} is no directory", path.display()),
        )
        .hint("name a directory: `--workspace DIR`"));
    }
    if path.to_str().is_none() {
        return Err(Failure::usage(
            "cli.workspace",
            format_args!(
                "the path of the workspace {} is not valid UTF-8",
                path.display()
            ),
        )
        .hint("rename it, or name another one: `--workspace DIR`"));
    }
    Ok(path)
}

/// Refuses a data directory that a model could read: one inside the workspace, the workspace itself, or one that the workspace
/// lies in.
pub(super) fn keep_apart(data: &Path, workspace: &Path) -> Result<(), Failure> {
    let real = nearest_real(data);
    let (place, next) = if real.starts_with(workspace) {
        (
            "around",
            "choose another one with `--data DIR`, or a narrower `--workspace DIR`",
        )
    } else if workspace.starts_with(&real) {
        ("inside", "choose a workspace elsewhere: `--workspace DIR`")
    } else {
        return Ok(());
    };
    Err(Failure::new(
        Exit::Usage,
        "cli.data_in_workspace",
        format_args!(
            "the workspace {}, where the model's functions reach, lies {place} the data directory {}",
            workspace.display(),
            data.display()
        ),
    )
    .hint(next))
}

/// The canonical form of a path whose last parts need not exist yet.
fn nearest_real(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let rest = path
                .strip_prefix(ancestor)
                .unwrap_or_else(|_| Path::new(""));
            return real.join(rest);
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_data_directory_follows_xdg() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (data_home, home, want) in [
            (path("/x"), path("/home/a"), path("/x/teamster")),
            (None, path("/home/a"), path("/home/a/.local/share/teamster")),
            (
                path("rel"),
                path("/home/a"),
                path("/home/a/.local/share/teamster"),
            ),
            (None, path("rel"), None),
            (None, None, None),
        ] {
            assert_eq!(xdg(data_home, home), want);
        }
    }

    #[test]
    fn a_data_directory_that_others_decide_about_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let rights = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        let policy = dir.path().join("policy.yaml");
        std::fs::write(&policy, "").expect("written");
        for (path, open, closed) in [(dir.path(), 0o777, 0o700), (&policy, 0o646, 0o644)] {
            rights(path, open);
            let failure = data_dir(Some(dir.path())).expect_err("everybody may write it");
            assert_eq!(
                (failure.exit, failure.code.as_str()),
                (Exit::Usage, "cli.data_dir")
            );
            let hint = failure.hint.unwrap_or_default();
            assert!(
                hint.ends_with(&format!("chmod o-w {}", path.display())),
                "{hint}"
            );
            rights(path, closed);
            assert!(data_dir(Some(dir.path())).is_ok());
        }
        // Who belongs to the same group is no stranger.
        rights(dir.path(), 0o770);
        assert!(data_dir(Some(dir.path())).is_ok());
        let stranger = nix::unistd::Uid::from_raw(12_345);
        if nix::unistd::chown(&policy, Some(stranger), None).is_ok() {
            let failure = data_dir(Some(dir.path())).expect_err("it is somebody else's");
            assert!(
                failure
                    .message
                    .contains("policy.yaml belongs to the user 12345"),
                "{}",
                failure.message
            );
        }
    }

    #[test]
    fn a_data_directory_that_can_be_none_is_refused_by_what_it_is() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        std::fs::write(at("file"), "x").expect("written");
        for (link, target) in [("dangling", "nowhere"), ("a", "b"), ("b", "a")] {
            std::os::unix::fs::symlink(at(target), at(link)).expect("linked");
        }
        for (path, says) in [
            (at("file"), "no directory"),
            (at("file/below"), "no directory"),
            (at("dangling"), "a link to a place"),
            (at("a"), "symbolic links"),
            (at(&"x".repeat(300)), "too long"),
            (PathBuf::new(), "empty path"),
        ] {
            let failure = data_dir(Some(&path)).expect_err(says);
            assert_eq!(
                (failure.exit, failure.code.as_str()),
                (Exit::Usage, "cli.data_dir")
            );
            assert!(failure.message.contains(says), "{failure}");
            assert!(failure.hint.is_some_and(|hint| hint.contains("--data DIR")));
        }
        for path in [root.path().to_owned(), at("not/yet")] {
            assert_eq!(data_dir(Some(&path)).expect("usable"), path);
        }
    }

    #[test]
    fn data_inside_the_workspace_is_refused_through_links_too() {
        let root = tempfile::tempdir().expect("a directory");
        let workspace = root.path().join("work");
        std::fs::create_dir_all(workspace.join("sub")).expect("created");
        let workspace = workspace.canonicalize().expect("exists");
        std::os::unix::fs::symlink(workspace.join("sub"), root.path().join("link"))
            .expect("linked");
        for inside in [
            workspace.clone(),
            workspace.join("data"),
            workspace.join("not/yet"),
            root.path().join("link/data"),
        ] {
            assert!(
                keep_apart(&inside, &workspace).is_err(),
                "{}",
                inside.display()
            );
        }
        for within in [workspace.as_path(), &workspace.join("sub")] {
            assert!(
                keep_apart(&workspace, within).is_err(),
                "{}",
                within.display()
            );
        }
        for outside in [root.path().join("data"), root.path().join("workother")] {
            assert!(
                keep_apart(&outside, &workspace).is_ok(),
                "{}",
                outside.display()
            );
        }
    }
}
