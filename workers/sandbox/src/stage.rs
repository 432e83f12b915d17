//! The processes between the worker and a command: the executable starts itself three times over, because a process can
//! only leave its namespaces, become the first of a new one, or lock itself in, and never do so for another.
//!
//! * `outer` enters the namespaces and waits. It dies with the worker.
//! * `init` is process 1 inside. It builds the root, starts the third, takes its output, ends everything, and reports.
//! * `inner` locks itself in (limits, second user namespace, Landlock, seccomp) and becomes the command.
//!
//! They are told what to do by a pipe and a sealed memory file, never by arguments or environment; both are empty.
//!
//! Never: a thread, a decision about what may run, a way back for the command.

mod collect;
mod failure;
mod fds;
mod filter;
pub(crate) mod frame;
mod init;
mod inner;
mod outer;
mod probe;
mod root;
mod rules;

use std::{
    ffi::{OsStr, OsString},
    io,
    process::{Command, ExitCode},
};

pub(crate) use failure::Failure;

use crate::layer::Layer;

/// What stands in front of a stage's name on its command line.
pub const MARK: &str = "sandbox-stage";

/// Where a home and the workspace lie for a command.
pub(crate) const HOME: &str = "/home/agent";
/// Where the workspace lies for a command.
pub(crate) const WORKSPACE: &str = "/workspace";

/// How an executable begins its stages.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Arguments before [`MARK`], which every stage gets again.
    pub prefix: Vec<OsString>,
    /// Layers that are left out. Only tests leave out any.
    pub without: Vec<Layer>,
    /// Whether a probe is nevertheless answered by all layers, as a host might whose layers fail later.
    pub lies: bool,
}

impl Entry {
    /// `layers` without those that are left out.
    fn kept(&self, layers: &[Layer], is_probe: bool) -> Vec<Layer> {
        let is_kept = |layer: &Layer| (is_probe && self.lies) || !self.without.contains(layer);
        layers.iter().copied().filter(is_kept).collect()
    }
}

/// Runs a stage if this process was started as one, and says how it ended. An executable that serves the worker `sandbox`
/// calls this first of all, before it has threads.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(code) = teamster_sandbox::stage::main() {
///         return code;
///     }
///     std::process::ExitCode::SUCCESS
/// }
/// ```
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == MARK).then(|| run(&Entry::default(), arguments))
}

/// Runs the stage that `arguments` name.
#[doc(hidden)]
pub fn run(entry: &Entry, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match words.as_slice() {
        ["outer"] => outer::run(entry),
        ["init"] => init::run(entry),
        ["inner", instructions, report] => inner::run(instructions, report),
        _ => ExitCode::from(2),
    }
}

/// Whether this process is a stage. A worker that is served by one would start itself for ever.
pub(crate) fn is_stage() -> bool {
    std::env::args_os().any(|word| word == MARK)
}

/// The next stage of this executable: the file itself, even if its path now names another or leads nowhere.
fn next(entry: &Entry, words: &[&str]) -> Command {
    let mut command = command(OsStr::new("/proc/self/exe"));
    command.args(&entry.prefix).arg(MARK).args(words);
    command.env_clear();
    command
}

/// The one way to start a process in this package.
pub(crate) fn command(program: &OsStr) -> Command {
    Command::new(program)
}

/// The text of an operating system's error.
fn text(error: impl Into<io::Error>) -> String {
    let error: io::Error = error.into();
    error.to_string()
}
