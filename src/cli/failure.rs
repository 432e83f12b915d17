//! The one place where errors become what a person reads, what a program parses, and an exit code.

use std::{borrow::Cow, fmt, io::ErrorKind, path::Path};

use serde::Serialize;
use teamster_protocol::{Fault, text};
use teamster_telemetry::chain;

use super::{advice, exit::Exit};
use crate::{client, config, host};

/// Why a command failed: what happened, why, and what to type next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Failure {
    /// The exit code.
    #[serde(skip)]
    pub(super) exit: Exit,
    /// A stable code.
    pub(super) code: String,
    /// What happened and why.
    pub(super) message: String,
    /// What to type or change next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl Failure {
    /// A failure of this command line itself.
    pub(super) fn new(exit: Exit, code: &str, message: impl fmt::Display) -> Self {
        Self {
            exit,
            code: code.to_owned(),
            message: bounded(&message.to_string()),
            hint: None,
        }
    }

    /// A wrong command line.
    pub(super) fn usage(code: &str, message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// Adds what to type next.
    pub(super) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The same with a next step in any case: its own, else what the page of errors says about its code.
    pub(super) fn advised(&self) -> Self {
        let mut failure = self.clone();
        if failure.hint.is_none() {
            failure.hint = advice::of(&self.code).map(Cow::into_owned);
        }
        failure
    }

    /// A file or directory that could not be used.
    pub(super) fn io(action: &str, path: &Path, error: &std::io::Error) -> Self {
        let shown = path.display();
        let failure = Self::new(
            Exit::Failed,
            "cli.io",
            format_args!("cannot {action} {shown}: {error}"),
        );
        match error.kind() {
            ErrorKind::NotFound => {
                failure.hint("look for a slip in the path; `ls` shows what is there")
            }
            ErrorKind::PermissionDenied => {
                let path = path.to_string_lossy();
                let path = text::shell(&path);
                failure.hint(format_args!("`ls -ld {path}` shows who may do that"))
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                failure.hint("make room on that disk, or name another place")
            }
            ErrorKind::IsADirectory => failure.hint("name a file, not a directory"),
            ErrorKind::NotADirectory => {
                failure.hint("a part of that path is a file; name another place")
            }
            ErrorKind::ReadOnlyFilesystem => {
                failure.hint("that disk can only be read; name another place")
            }
            ErrorKind::InvalidFilename => failure.hint("name a shorter path"),
            ErrorKind::InvalidData => failure.hint("it is no UTF-8 text; name a text file"),
            ErrorKind::InvalidInput => failure.hint("that can be no path; name another place"),
            _ => failure.hint("look at the place and at its disk; `teamster doctor` does too"),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let hint = fault.hint.clone().or_else(|| hint_for(&fault));
        Self {
            exit: Exit::of_fault(&fault),
            message: fault.message,
            code: fault.code,
            hint,
        }
    }
}

/// What is said of something that was typed does not fill the screen with it.
fn bounded(message: &str) -> String {
    const BYTES_MAX: usize = 4096;
    text::cut(message, BYTES_MAX)
}

/// What to do about the faults that the mesh itself makes.
fn hint_for(fault: &Fault) -> Option<String> {
    let hint = match fault.code.as_str() {
        "mesh.no_responders" | "mesh.callee_lost" => {
            "no worker answers: `teamster doctor` shows what runs, `teamster up` starts all"
        }
        "mesh.address" => "write nats://HOST:PORT, or several of them joined by commas",
        "mesh.credentials" => {
            "name the right ones: `--creds PATH`, a directory that holds <worker>.creds, or one file; `teamster doctor` looks at them"
        }
        "mesh.unavailable" => "is the server running? `teamster doctor` shows what is missing",
        "mesh.damaged" => {
            "restore the broker's data from a copy; docs/operations.md says what of it may be removed instead"
        }
        "mesh.no_space" => {
            "make room on the server's disk, or raise its limits; what was not acknowledged was not accepted"
        }
        "mesh.timeout" | "session.queue_full" => "try again in a moment",
        _ => return None,
    };
    Some(hint.to_owned())
}

impl From<teamster_mesh::Error> for Failure {
    fn from(error: teamster_mesh::Error) -> Self {
        let text = chain(&error);
        let mut failure = Self::from(Fault::from(error));
        failure.message = text;
        failure
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        use client::Error;
        match error {
            Error::Fault(fault) => fault.into(),
            Error::Mesh(source) => source.into(),
            Error::NoWorker(worker) => Self::new(
                Exit::Unavailable,
                "mesh.no_workers",
                format_args!("nobody runs: {worker}"),
            )
            .hint(format_args!(
                "start it: teamster worker {worker} --nats URL; `teamster up` runs all workers, `teamster doctor` shows what runs"
            )),
            error @ Error::NoSession(_) => Self::new(Exit::Failed, "session.not_found", error)
                .hint("`teamster sessions ls` lists what there is"),
            error @ (Error::Lost { .. } | Error::Closed) => {
                Self::new(Exit::Unavailable, "mesh.unavailable", chain(&error))
                    .hint("`teamster up` brings the mesh back; the turn goes on by itself")
            }
            error @ Error::Commit { .. } => {
                Self::new(Exit::Failed, "log.unreadable", chain(&error))
                    .hint("the log was written by a newer version, or is damaged")
            }
            error @ (Error::Reply { .. } | Error::Request { .. } | Error::Name(_)) => {
                Self::new(Exit::Failed, "mesh.malformed", chain(&error))
                    .hint("are all workers of the same version? `teamster doctor` shows them")
            }
        }
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        let hint = error.hint();
        let failure = Self::usage(error.code(), chain(&error));
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<host::Error> for Failure {
    fn from(error: host::Error) -> Self {
        let (exit, code, hint) = error.verdict();
        let failure = Self::new(exit, code, chain(&error));
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}
