//! Why workers could not be run.

use std::{io::ErrorKind, path::Path};

use teamster_mesh::broker;
use teamster_protocol::text;

use crate::cli::Exit;

/// The one error of hosting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such worker.
    #[error("there is no worker {0:?}; there are {known}", known = super::WORKERS.join(", "))]
    UnknownWorker(String),
    /// A worker cannot be built from its configuration.
    #[error("cannot set up the worker {worker}")]
    Build {
        /// Which.
        worker: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The policy file cannot be used.
    #[error("cannot set up the worker approval-gate")]
    Policy(#[source] teamster_approval_gate::Error),
    /// The projection's file cannot be used.
    #[error("cannot set up the worker session")]
    Projection(#[source] teamster_session::Error),
    /// A worker cannot be served.
    #[error("cannot run the worker {worker}")]
    Serve {
        /// Which.
        worker: String,
        /// Why.
        #[source]
        source: teamster_mesh::Error,
    },
    /// The streams and buckets are not as they must be.
    #[error("cannot prepare the streams")]
    Topology(#[source] teamster_mesh::Error),
    /// Streams are gone that hold what nothing else does.
    #[error("what was stored in {data} is not there any more: {absent}", data = data.display(), absent = absent.join(", "))]
    StoreLost {
        /// The streams.
        absent: Vec<String>,
        /// The data directory.
        data: std::path::PathBuf,
    },
    /// The embedded server cannot be run.
    #[error("cannot run the embedded server")]
    Broker(#[source] teamster_mesh::broker::Error),
}

impl Error {
    pub(super) fn build<E>(worker: &str) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let worker = worker.to_owned();
        move |source| Self::Build {
            worker,
            source: source.into(),
        }
    }

    /// A gate that cannot be built: nearly always the policy file, which is a file of its own.
    pub(super) fn gate(source: teamster_approval_gate::Error) -> Self {
        use teamster_approval_gate::Error as Gate;
        match source {
            source @ (Gate::Read { .. } | Gate::Form { .. }) => Self::Policy(source),
            source => Self::build("approval-gate")(source),
        }
    }

    /// A session worker that cannot be built: nearly always the projection's file.
    pub(super) fn session(source: teamster_session::Error) -> Self {
        match source {
            source @ teamster_session::Error::Open { .. } => Self::Projection(source),
            source => Self::build("session")(source),
        }
    }

    /// Exit code, stable code, and what to do next.
    pub fn verdict(&self) -> (Exit, &'static str, Option<String>) {
        match self {
            Self::UnknownWorker(_) => (
                Exit::Usage,
                "host.unknown_worker",
                Some("name some of these, for example: teamster worker router context".to_owned()),
            ),
            Self::Build { worker, .. } => (
                Exit::Usage,
                "host.config",
                Some(format!("look at the section `{worker}` of config.yaml")),
            ),
            Self::Policy(source) => (
                Exit::Usage,
                "host.policy",
                source
                    .file()
                    .map(|file| format!("correct {}; `teamster doctor` checks it", file.display())),
            ),
            Self::Projection(source) => (Exit::Usage, "host.projection", Some(of_projection(source))),
            Self::Serve { source, .. } => (
                Exit::Unavailable,
                "host.serve",
                Some(of_credentials(source).unwrap_or_else(|| {
                    "`teamster doctor` shows what is missing".to_owned()
                })),
            ),
            Self::Topology(teamster_mesh::Error::Connect { .. }) => (
                Exit::Unavailable,
                "host.topology",
                Some(
                    "is a server running there, and do --nats and --creds name it? `teamster doctor` looks"
                        .to_owned(),
                ),
            ),
            Self::Topology(teamster_mesh::Error::Address { .. }) => (
                Exit::Usage,
                "host.topology",
                Some("write nats://HOST:PORT, or several of them joined by commas".to_owned()),
            ),
            Self::Topology(source) => (
                Exit::Unavailable,
                "host.topology",
                Some(of_credentials(source).unwrap_or_else(|| {
                    "the server must be 2.14 or newer with JetStream; `teamster doctor` looks"
                        .to_owned()
                })),
            ),
            Self::StoreLost { data, .. } => (
                Exit::Failed,
                "host.store_lost",
                Some(format!(
                    "restore {nats} from a copy; or go on without what was in it: rm {list}",
                    nats = text::shell(&data.join("nats").to_string_lossy()),
                    list = text::shell(&data.join("store.json").to_string_lossy()),
                )),
            ),
            Self::Broker(broker::Error::Held { .. }) => (
                Exit::TryAgain,
                "host.held",
                Some("use that one, stop it, or choose another --data directory".to_owned()),
            ),
            Self::Broker(broker::Error::NoServer { .. }) => {
                (Exit::Unavailable, "host.no_server", None)
            }
            Self::Broker(source) => (Exit::Unavailable, "host.broker", Some(of_broker(source))),
        }
    }
}

/// What to do about credentials that the server does not take, or that are another user's.
fn of_credentials(source: &teamster_mesh::Error) -> Option<String> {
    use teamster_mesh::Error as Mesh;
    matches!(source, Mesh::Credentials { .. } | Mesh::Denied { .. }).then(|| {
        "each worker has its own: `--creds DIR` names the directory that holds <worker>.creds, and topology.creds unless \
         `--no-ensure` is given"
            .to_owned()
    })
}

/// What to do about a projection that cannot be opened.
fn of_projection(source: &teamster_session::Error) -> String {
    let path = match source {
        teamster_session::Error::Open { path, .. } => path.as_path(),
        _ => Path::new(""),
    };
    if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
        return format!(
            "there is no directory {}: make it, or correct `session.file` in config.yaml",
            parent.display()
        );
    }
    format!(
        "move it away, `{}`: it is made anew from the log, and nothing is lost; or name another file by `session.file` in \
         config.yaml",
        moving(path)
    )
}

/// What to do about an embedded server that does not run.
fn of_broker(source: &broker::Error) -> String {
    use broker::Error as Broker;
    match source {
        // Without its directory there is no log to look into.
        Broker::Io { source, .. } => of_io(source).to_owned(),
        Broker::Path { .. } => "name another place: `--data DIR`".to_owned(),
        Broker::Credentials { path } => {
            format!("`{}`; the next start makes new ones", moving(path))
        }
        Broker::Grants { path, .. } => format!(
            "correct it, or `{}` and grant them anew with `teamster workers grant`",
            moving(path)
        ),
        Broker::Cancelled => "start it again".to_owned(),
        Broker::Orphan { .. } => {
            "end that nats-server, then start again; `teamster doctor` looks".to_owned()
        }
        _ => "the server's own words are in log/nats-server.log of the data directory".to_owned(),
    }
}

/// What to do about a file or folder of the data directory, by the kind of its failure.
fn of_io(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "the data directory must be yours to write: look at its rights, or name another one with `--data DIR`"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "that disk can only be read; name a place on another one with `--data DIR`"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a file stands where a directory is needed; move it away, or name another place with `--data DIR`"
        }
        ErrorKind::IsADirectory => "a directory stands where a file is needed; move it away",
        ErrorKind::NotFound => {
            "nothing can be made at that place; name another one with `--data DIR`"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room on that disk, or name a place on another one with `--data DIR`"
        }
        ErrorKind::InvalidFilename => "the path is too long; name a shorter one with `--data DIR`",
        _ if error.raw_os_error() == Some(nix::libc::ELOOP) => {
            "links there lead in a circle; name another place with `--data DIR`"
        }
        _ => "look at that place and at its disk, or name another one with `--data DIR`",
    }
}

/// The command that moves a file out of the way.
fn moving(path: &Path) -> String {
    let path = path.to_string_lossy();
    let aside = format!("{path}.old");
    format!("mv {} {}", text::shell(&path), text::shell(&aside))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_place_that_cannot_be_used_is_told_by_the_kind_of_its_failure() {
        for (number, says) in [
            (nix::libc::EACCES, "rights"),
            (nix::libc::EPERM, "rights"),
            (nix::libc::EROFS, "only be read"),
            (nix::libc::ENOTDIR, "a file stands"),
            (nix::libc::EEXIST, "a file stands"),
            (nix::libc::ENOENT, "nothing can be made"),
            (nix::libc::ENOSPC, "make room"),
            (nix::libc::EDQUOT, "make room"),
            (nix::libc::ENAMETOOLONG, "too long"),
            (nix::libc::ELOOP, "circle"),
            (nix::libc::EIO, "disk"),
        ] {
            let source = io::Error::from_raw_os_error(number);
            let action = "creating x".to_owned();
            let error = Error::Broker(broker::Error::Io { action, source });
            let (exit, code, hint) = error.verdict();
            assert_eq!((exit, code), (Exit::Unavailable, "host.broker"));
            let hint = hint.expect("a hint");
            assert!(hint.contains(says), "{number}: {hint}");
            let is_full = [nix::libc::ENOSPC, nix::libc::EDQUOT].contains(&number);
            assert_eq!(hint.contains("room"), is_full, "{number}: {hint}");
        }
    }

    #[test]
    fn another_users_credentials_are_no_old_server() {
        let denied = || teamster_mesh::Error::Denied {
            action: "x".to_owned(),
            source: "no".into(),
        };
        let serve = Error::Serve {
            worker: "w".to_owned(),
            source: denied(),
        };
        for error in [Error::Topology(denied()), serve] {
            let (exit, _, hint) = error.verdict();
            assert_eq!(exit, Exit::Unavailable);
            assert!(hint.expect("a hint").contains("<worker>.creds"), "{error}");
        }
    }

    #[test]
    fn what_is_no_credentials_and_no_projection_is_moved_away_and_made_anew() {
        let path = || Path::new("/d a/x").to_owned();
        let mesh = Error::Broker(broker::Error::Credentials { path: path() });
        let source = "it is a directory".into();
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("session.sqlite");
        let open = |path| Error::session(teamster_session::Error::Open { path, source });
        let projection = open(file.clone());
        for (error, code, says) in [
            (mesh, "host.broker", "`mv '/d a/x' '/d a/x.old'`".to_owned()),
            (
                projection,
                "host.projection",
                format!("`mv {0} {0}.old`", file.display()),
            ),
        ] {
            let (_, found, hint) = error.verdict();
            assert_eq!(found, code);
            assert!(hint.expect("a hint").contains(&says));
        }
    }
}
