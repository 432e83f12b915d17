//! Which process is meant: an id alone may belong to another process by now, an id and a start time do not.

use std::{fs, path::Path};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

/// One process of one boot of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Its id.
    pub(crate) pid: u32,
    /// When it began: on Linux the boot and the clock ticks since then, elsewhere what `ps` says.
    pub(crate) started: String,
}

impl Identity {
    /// The process that has this id now; `None` where there is none, or only its remains.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            started: started(pid)?,
        })
    }

    /// Whether that very process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Sends a signal to that very process; does nothing when it is gone.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_alive()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            // A process that ended in between had the id until now; there is nothing more to do.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // The second field is the command's name in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // State is field 3; the start time is field 22.
    Some(format!("{}:{}", boot.trim(), fields.nth(18)?))
}

#[cfg(not(target_os = "linux"))]
fn started(pid: u32) -> Option<String> {
    let output = std::process::Command::new("ps")
        .args(["-o", "stat=,lstart=", "-p", &pid.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (state, begun) = text.trim().split_once(' ')?;
    (!state.starts_with('Z')).then(|| begun.trim().to_owned())
}

/// The processes whose standard input is a file: so a server is found that nobody wrote down. Linux only.
pub(crate) fn readers_of(file: &Path) -> Vec<Identity> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| fs::read_link(format!("/proc/{pid}/fd/0")).is_ok_and(|link| link == file))
        .filter_map(Identity::of)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_itself_until_it_ends() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("started");
        let identity = Identity::of(child.id()).expect("alive");
        assert!(identity.is_alive());
        let other = Identity {
            started: format!("{}0", identity.started),
            ..identity.clone()
        };
        other.signal(Signal::SIGKILL);
        assert!(!other.is_alive() && identity.is_alive());
        identity.signal(Signal::SIGKILL);
        child.wait().expect("ended");
        assert!(!identity.is_alive());
    }

    #[test]
    fn a_process_that_ended_but_was_not_waited_for_is_not_alive() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let identity = Identity::of(child.id()).expect("alive");
        drop(child.stdin.take());
        let mut rest = String::new();
        let mut stdout = child.stdout.take().expect("piped");
        std::io::Read::read_to_string(&mut stdout, &mut rest).expect("its end");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while identity.is_alive() {
            assert!(
                std::time::Instant::now() < deadline,
                "it ends soon after its output"
            );
            std::thread::yield_now();
        }
        child.wait().expect("ended");
    }
}
