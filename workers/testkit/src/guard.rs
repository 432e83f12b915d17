//! A watch over a test's own process: what the test started ends with it, also when it is killed and nothing is dropped.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

/// A shell that reads from us: when we die, its input ends, and it kills. Dropping the guard calls it off.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Kills one process.
    pub(crate) fn of_process(pid: u32) -> Self {
        Self::spawn("kill -9 \"$1\"", &pid.to_string())
    }

    /// Kills the server that the record in `server.json` of a data directory names then.
    pub(crate) fn of_record(record: &Path) -> Self {
        let kill = "kill -9 $(sed -n 's/.*\"pid\":\\([0-9]*\\).*/\\1/p' \"$1\")";
        Self::spawn(kill, &record.display().to_string())
    }

    fn spawn(kill: &str, argument: &str) -> Self {
        let script = format!("read -r line; {kill}");
        let shell = Command::new("sh")
            .args(["-c", &script, "guard", argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // a Ctrl-C is for the test
            .spawn()
            .expect("a shell");
        Self(shell)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its input is closed, or it would take that for our death.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().expect("started")
    }

    #[test]
    fn what_is_guarded_dies_with_us() {
        let dir = tempfile::tempdir().expect("a folder");
        let record = dir.path().join("server.json");
        let (mut one, mut two) = (sleeper(), sleeper());
        let text = format!(
            "{{\"process\":{{\"pid\":{},\"started\":\"x\"}},\"port\":1}}",
            two.id()
        );
        std::fs::write(&record, text).expect("written");
        for mut guard in [Guard::of_process(one.id()), Guard::of_record(&record)] {
            drop(guard.0.stdin.take()); // as our death would
            guard.0.wait().expect("it has done its work");
        }
        assert_eq!(one.wait().expect("ended").signal(), Some(9));
        assert_eq!(two.wait().expect("ended").signal(), Some(9));
    }

    #[test]
    fn a_guard_that_is_called_off_kills_nobody() {
        let mut child = sleeper();
        drop(Guard::of_process(child.id()));
        assert_eq!(child.try_wait().expect("looked at"), None);
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}
