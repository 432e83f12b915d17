//! What can go wrong with a file, and what the model is told about it.

use nix::errno::Errno;
use teamster_protocol::{Fault, FaultClass, limits};

use crate::path::RelPath;

/// The one error of this crate. Texts name paths as the model does, never those of the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call carries no workspace.
    #[error("this session has no workspace, so it has no files")]
    NoWorkspace,
    /// The workspace cannot be opened.
    #[error("the session's workspace cannot be opened")]
    Workspace(#[source] std::io::Error),
    /// The kernel has no `openat2`, or forbids it.
    #[error(
        "this host's kernel has no openat2 (Linux 5.6 or newer), without which files are not opened"
    )]
    Kernel,
    /// The configured globs of protected files cannot be compiled.
    #[error("a glob of the protected files is not valid")]
    Protected(#[source] globset::Error),
    /// A path that no file can be reached by.
    #[error("{path:?} is not a path in the workspace: {rule}")]
    Path {
        /// The path, cut.
        path: String,
        /// Why.
        rule: &'static str,
    },
    /// A request that its schema does not exclude.
    #[error("{0}")]
    Request(&'static str),
    /// A search pattern or a glob that cannot be compiled.
    #[error("the {what} is not valid: {why}")]
    Pattern {
        /// `pattern` or `glob`.
        what: &'static str,
        /// Why, in the compiler's words.
        why: String,
    },
    /// Nothing has this name.
    #[error("{path:?} does not exist{}", near.as_deref().map(|near| format!("; there is {near:?}")).unwrap_or_default())]
    NotFound {
        /// The path.
        path: String,
        /// A path that differs in letter case only.
        near: Option<String>,
    },
    /// The directory in which a file should be made is missing.
    #[error("the directory {path:?} does not exist; set `create_dirs` to make it")]
    NoDirectory {
        /// The directory.
        path: String,
    },
    /// A protected file.
    #[error(
        "{path:?} is protected: files of this kind hold secrets and are closed to the file functions"
    )]
    Closed {
        /// The path.
        path: String,
    },
    /// Something below git's own directory, on a write.
    #[error("{path:?} belongs to git: a file written there could run as a program of the user")]
    Git {
        /// The path.
        path: String,
    },
    /// The path is a symbolic link, leads through one, or leaves the workspace.
    #[error("{path:?} is a symbolic link or leads through one; links are not followed")]
    Link {
        /// The path.
        path: String,
    },
    /// A directory where a file is wanted.
    #[error("{path:?} is a directory")]
    IsDirectory {
        /// The path.
        path: String,
    },
    /// A file where a directory is wanted.
    #[error("{path:?} is not a directory, or one of the names above it is a file")]
    NotDirectory {
        /// The path.
        path: String,
    },
    /// A pipe, a device or a socket.
    #[error("{path:?} is not a regular file (a pipe, a socket or a device)")]
    NotRegular {
        /// The path.
        path: String,
    },
    /// The file has no write permission.
    #[error("{path:?} is read-only")]
    ReadOnly {
        /// The path.
        path: String,
    },
    /// The operating system refuses.
    #[error("the operating system does not permit access to {path:?}")]
    Permission {
        /// The path.
        path: String,
    },
    /// More bytes than a file may have that is written or edited.
    #[error(
        "{path:?} would have or has {bytes} bytes; files up to {} bytes are written and edited",
        limits::FS_WRITE_BYTES_MAX
    )]
    TooLarge {
        /// The path.
        path: String,
        /// How many.
        bytes: u64,
    },
    /// The file is not what the caller saw.
    #[error("{path:?} is not what it was when it was read; read it again before changing it")]
    Changed {
        /// The path.
        path: String,
    },
    /// The file is not text.
    #[error("{path:?} is not UTF-8 text, so it cannot be edited by text")]
    NotText {
        /// The path.
        path: String,
    },
    /// The text to replace does not stand in the file exactly once.
    #[error("nothing was changed in {path:?}: {why}")]
    NoMatch {
        /// The path.
        path: String,
        /// How often it stands there, and where something similar does.
        why: String,
    },
    /// The caller gave up, or the worker is stopping.
    #[error("the call was cancelled")]
    Cancelled,
    /// The time is over.
    #[error("the call took too long")]
    Time,
    /// Anything else that the operating system says.
    #[error("cannot {action} {path:?}: {}", errno.desc())]
    System {
        /// What was tried.
        action: &'static str,
        /// The path.
        path: String,
        /// What the system said.
        errno: Errno,
    },
}

impl Error {
    /// What a failed system call on `path` means.
    pub(crate) fn system(action: &'static str, path: &RelPath, errno: Errno) -> Self {
        let path = path.as_str().to_owned();
        match errno {
            Errno::ENOSYS => Self::Kernel,
            Errno::ENOENT => Self::NotFound { path, near: None },
            Errno::ELOOP | Errno::EXDEV => Self::Link { path },
            Errno::EISDIR => Self::IsDirectory { path },
            Errno::ENOTDIR => Self::NotDirectory { path },
            Errno::ENXIO | Errno::ENODEV => Self::NotRegular { path },
            Errno::EROFS => Self::ReadOnly { path },
            Errno::EACCES | Errno::EPERM => Self::Permission { path },
            errno => Self::System {
                action,
                path,
                errno,
            },
        }
    }

    /// The same for an error of the standard library.
    pub(crate) fn io(action: &'static str, path: &RelPath, error: &std::io::Error) -> Self {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        Self::system(action, path, errno)
    }

    fn code(&self) -> (&'static str, FaultClass) {
        use FaultClass::{Busy, Caller, Denied, Gone, Internal};
        match self {
            Self::NoWorkspace => ("fs.no_workspace", Caller),
            Self::Workspace(_) => ("fs.workspace_gone", Gone),
            Self::Kernel => ("fs.kernel", Internal),
            Self::Protected(_) => ("fs.config", Internal),
            Self::Path { .. } => ("fs.bad_path", Caller),
            Self::Request(_) => ("fs.bad_request", Caller),
            Self::Pattern { .. } => ("fs.bad_pattern", Caller),
            Self::NotFound { .. } | Self::NoDirectory { .. } => ("fs.not_found", Caller),
            Self::Closed { .. } => ("fs.protected", Denied),
            Self::Git { .. } => ("fs.git", Denied),
            Self::Link { .. } => ("fs.link", Denied),
            Self::IsDirectory { .. } => ("fs.is_directory", Caller),
            Self::NotDirectory { .. } => ("fs.not_a_directory", Caller),
            Self::NotRegular { .. } => ("fs.not_regular", Caller),
            Self::ReadOnly { .. } => ("fs.read_only", Denied),
            Self::Permission { .. } => ("fs.permission", Denied),
            Self::TooLarge { .. } => ("fs.too_large", Caller),
            Self::Changed { .. } => ("fs.changed", Caller),
            Self::NotText { .. } => ("fs.not_text", Caller),
            Self::NoMatch { .. } => ("fs.no_match", Caller),
            Self::Cancelled => ("fs.cancelled", Busy),
            Self::Time => ("fs.timeout", Busy),
            Self::System { errno, .. } => match errno {
                Errno::ENOSPC | Errno::EDQUOT => ("fs.no_space", Busy),
                Errno::EMFILE | Errno::ENFILE | Errno::EAGAIN | Errno::EBUSY => ("fs.busy", Busy),
                _ => ("fs.io", Internal),
            },
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoWorkspace => Some(
                "start the session with a workspace: `teamster run --workspace DIR`, or run it in the directory",
            ),
            Self::Workspace(_) => {
                Some("check that the session's workspace directory exists and can be read")
            }
            Self::Path { .. } => Some(
                "name files by paths below the workspace, without `..` and without a `/` at the beginning",
            ),
            Self::Kernel => Some(
                "run the sandbox worker on Linux 5.6 or newer, in a container whose seccomp profile allows openat2",
            ),
            _ => None,
        }
    }

    /// The part of the message that says what to do next.
    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { near: None, .. } => Some("fs::list and fs::find show what is there"),
            Self::NotFound { .. } => Some("use that name"),
            Self::IsDirectory { .. } => {
                Some("fs::list shows what is in it; name a file below it as `path`")
            }
            Self::NotDirectory { .. } => Some("name a directory, or read the file with fs::read"),
            Self::NotRegular { .. } => {
                Some("name a regular file; fs::list shows what each name is")
            }
            Self::Link { .. } => {
                Some("name a file by its own path; fs::list and fs::find show what is there")
            }
            Self::Closed { .. } => {
                Some("go on without it, and ask the user for what you need to know of it")
            }
            Self::Git { .. } => {
                Some("leave it to the user: git's own directory is read here and never changed")
            }
            Self::NotText { .. } => Some("write it whole with fs::write, or leave it as it is"),
            Self::ReadOnly { .. } | Self::Permission { .. } => {
                Some("take another path, or ask the user to change its rights")
            }
            Self::TooLarge { .. } => Some("write several smaller files, or ask the user"),
            Self::Pattern { what: "glob", .. } => {
                Some("write for example `src/**/*.rs`; [ ] and { } come in pairs")
            }
            Self::Time => Some("ask for less: a smaller directory as `path`, a narrower pattern"),
            Self::Pattern {
                what: "pattern", ..
            } => Some(
                r"to search for plain text, escape . * + ? ( ) [ ] { } ^ $ | \ with a backslash",
            ),
            _ => None,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let (code, class) = error.code();
        let fault = match error.advice() {
            Some(advice) => Fault::new(code, class, format_args!("{error}; {advice}")),
            None => Fault::new(code, class, &error),
        };
        match error.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each that a model or a person can do something about. A new variant is named here or in `is_ours`.
    fn all() -> Vec<Error> {
        let path = || "a/b".to_owned();
        vec![
            Error::NoWorkspace,
            Error::Workspace(std::io::ErrorKind::NotFound.into()),
            Error::Kernel,
            Error::Path {
                path: path(),
                rule: "it is absolute",
            },
            Error::Pattern {
                what: "pattern",
                why: "unclosed".to_owned(),
            },
            Error::Pattern {
                what: "glob",
                why: "unclosed".to_owned(),
            },
            Error::NotFound {
                path: path(),
                near: None,
            },
            Error::NotFound {
                path: path(),
                near: Some("A/b".to_owned()),
            },
            Error::NoDirectory { path: path() },
            Error::Closed { path: path() },
            Error::Git { path: path() },
            Error::Link { path: path() },
            Error::IsDirectory { path: path() },
            Error::NotDirectory { path: path() },
            Error::NotRegular { path: path() },
            Error::ReadOnly { path: path() },
            Error::Permission { path: path() },
            Error::TooLarge {
                path: path(),
                bytes: 1,
            },
            Error::Changed { path: path() },
            Error::NotText { path: path() },
            Error::Time,
        ]
    }

    /// What says its own next step in its words, or leaves nobody anything to do but to try again.
    fn is_ours(error: &Error) -> bool {
        match error {
            Error::NoWorkspace
            | Error::Workspace(_)
            | Error::Kernel
            | Error::Path { .. }
            | Error::Pattern { .. }
            | Error::NotFound { .. }
            | Error::NoDirectory { .. }
            | Error::Closed { .. }
            | Error::Git { .. }
            | Error::Link { .. }
            | Error::IsDirectory { .. }
            | Error::NotDirectory { .. }
            | Error::NotRegular { .. }
            | Error::ReadOnly { .. }
            | Error::Permission { .. }
            | Error::TooLarge { .. }
            | Error::Changed { .. }
            | Error::NotText { .. }
            | Error::Time => true,
            Error::Protected(_)
            | Error::Request(_)
            | Error::NoMatch { .. }
            | Error::Cancelled
            | Error::System { .. } => false,
        }
    }

    #[test]
    fn a_fault_of_a_file_says_what_to_do_instead() {
        for error in all() {
            assert!(is_ours(&error));
            let plain = error.to_string();
            let fault = Fault::from(error);
            let says_more = fault.message.len() > plain.len() || fault.hint.is_some();
            // The words of these two end in the next step themselves.
            let says_itself = plain.contains("create_dirs") || plain.contains("read it again");
            assert!(says_more || says_itself, "{fault}");
        }
        for (error, says) in [
            (
                Error::Link {
                    path: "l".to_owned(),
                },
                "fs::list",
            ),
            (
                Error::IsDirectory {
                    path: "d".to_owned(),
                },
                "fs::list",
            ),
            (
                Error::Git {
                    path: ".git/x".to_owned(),
                },
                "leave it to the user",
            ),
            (
                Error::Closed {
                    path: ".env".to_owned(),
                },
                "ask the user",
            ),
        ] {
            let fault = Fault::from(error);
            assert!(fault.message.contains(says), "{fault}");
        }
    }
}
