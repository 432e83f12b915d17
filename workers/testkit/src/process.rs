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

use crate::{guard::Guard, wait};

/// A child process. Its output goes to a file. It is killed when its handle is dropped, and when the test's own process
/// dies in whatever way.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: PathBuf,
    /// `None` once the child has ended.
    guard: Option<Guard>,
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
            guard: Some(Guard::of_process(child.id())),
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

    /// Stops it where it stands (SIGSTOP), and returns once the system says that it stands.
    ///
    /// # Panics
    /// When it goes on for a second all the same.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let begun = std::time::Instant::now();
        while !self.is_stopped() {
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(1),
                "a stopped process goes on"
            );
            std::thread::yield_now();
        }
    }

    /// Whether the system says that it stands. Where that cannot be asked, the signal is trusted.
    fn is_stopped(&self) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())) else {
            return true;
        };
        // The state follows the name, which may hold anything but ends with the last parenthesis.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T') || rest.starts_with('Z'))
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.try_status().is_none()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let description = format!("process {} ends", self.pid());
        wait::some(limit, &description, || {
            let status = self.try_status();
            async move { status }
        })
        .await
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// How it ended, if it has.
    fn try_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("a child can be waited for");
        if status.is_some() {
            self.guard = None; // its id may belong to another process from now on
        }
        status
    }

    /// A child that was not waited for keeps its id, so the signal cannot meet another process.
    fn signal(&self, signal: Signal) {
        if self.guard.is_some()
            && let Ok(pid) = i32::try_from(self.pid())
        {
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
