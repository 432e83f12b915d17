//! A real child process under a test's control.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::wait;

/// A child process. Its output goes to a file; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    /// Starts a command. Both its output streams are appended to the file `output`.
    ///
    /// # Panics
    /// When the file cannot be opened or the command cannot be started.
    pub fn spawn(mut command: Command, output: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(output)
            .expect("an output file");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self {
            child,
            output: output.to_owned(),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL; does not wait.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Asks it to end (SIGTERM); does not wait.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Interrupts it (SIGINT), as Ctrl-C does; does not wait.
    pub fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Stops it where it stands (SIGSTOP).
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let description = format!("process {} ends", self.pid());
        wait::some(limit, &description, || {
            let status = self.child.try_wait().ok().flatten();
            async move { status }
        })
        .await
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// A child that was not waited for keeps its id, so the signal cannot meet another process.
    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.pid()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
