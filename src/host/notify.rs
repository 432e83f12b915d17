//! Tells a service manager how this process stands: systemd's protocol, datagrams to the socket in `NOTIFY_SOCKET`.
//!
//! Without that variable nothing happens. Never waits: a manager that does not listen costs nothing.

use std::{
    os::unix::net::{SocketAddr, UnixDatagram},
    time::Duration,
};

use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

/// Where the manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Microseconds within which the manager wants to hear from this process.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The process that the watchdog is meant for.
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// The manager's socket.
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// The manager of this process, by the environment.
    pub fn from_env() -> Self {
        Self::new(&|name| std::env::var(name).ok(), std::process::id())
    }

    fn new(get: &dyn Fn(&str) -> Option<String>, pid: u32) -> Self {
        let socket = get(SOCKET).and_then(|path| {
            let address = address(&path);
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        });
        let is_meant = get(WATCHDOG_PID).is_none_or(|text| text == pid.to_string());
        let watchdog = get(WATCHDOG)
            .filter(|_| is_meant)
            .and_then(|text| text.parse().ok())
            .filter(|micros| *micros > 0)
            .map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// Says that this process serves, and from now on, often enough, that it lives. That ends when the handle is dropped.
    pub fn ready(self, status: &str) -> Alive {
        self.say(&format!("READY=1\nSTATUS={}", one_line(status)));
        let pulse = self.watchdog.filter(|_| self.socket.is_some());
        let Some(limit) = pulse else {
            return Alive {
                notify: Some(self),
                beat: None,
            };
        };
        let beat: JoinHandle<()> = teamster_telemetry::task::spawn("watchdog", async move {
            // From the runtime itself: one that stands still falls silent.
            let mut every = tokio::time::interval(limit / 3);
            loop {
                every.tick().await;
                self.say("WATCHDOG=1");
            }
        });
        Alive {
            notify: None,
            beat: Some(AbortOnDropHandle::new(beat)),
        }
    }

    fn say(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that is gone or busy is told the next time.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// A process that serves. [`Alive::stopping`] ends the signs of life.
pub struct Alive {
    notify: Option<Notify>,
    beat: Option<AbortOnDropHandle<()>>,
}

impl Alive {
    /// Says that this process is coming to its end.
    pub fn stopping(&mut self) {
        self.beat = None;
        let notify = self.notify.take().unwrap_or_else(Notify::from_env);
        notify.say("STOPPING=1");
    }
}

/// A path, or behind `@` a name that no file system holds, which Linux alone has.
#[cfg(target_os = "linux")]
fn address(path: &str) -> std::io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(path: &str) -> std::io::Result<SocketAddr> {
    SocketAddr::from_pathname(path)
}

/// A line of the protocol ends with the line.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let count = socket.recv(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()).into_owned()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_manager_hears_that_the_process_serves_and_lives_and_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        let get = |name: &str| match name {
            SOCKET => path.to_str().map(str::to_owned),
            WATCHDOG => Some("3000".to_owned()),
            WATCHDOG_PID => Some("7".to_owned()),
            _ => None,
        };
        let alive = Notify::new(&get, 7).ready("serving\nX=1");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=serving X=1");
        assert_eq!(heard(&manager), "WATCHDOG=1");
        drop(alive);
        let foreign = Notify::new(&get, 8);
        assert_eq!(foreign.watchdog, None, "another process is watched");
        foreign.say("STOPPING=1");
        let said = std::iter::repeat_with(|| heard(&manager)).find(|said| said != "WATCHDOG=1");
        assert_eq!(said.as_deref(), Some("STOPPING=1"));
    }

    #[test]
    fn without_a_manager_nothing_is_said() {
        let notify = Notify::new(&|_| None, 1);
        assert!(notify.socket.is_none() && notify.watchdog.is_none());
        notify.say("READY=1");
    }
}
