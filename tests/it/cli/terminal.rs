//! A command on a terminal: what a person types, and the rows that they see.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
};

use nix::{
    pty::openpty,
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, tcgetattr},
    },
    unistd::Pid,
};
use teamster_testkit::wait;
use tokio::process::{Child, Command};

use super::place::{LIMIT, Place};

/// A command that believes to talk to a person.
pub struct Terminal {
    child: Child,
    keyboard: File,
    wire: OwnedFd,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn spawn(place: &Place, arguments: &[&str]) -> Self {
        Self::spawn_with(place, arguments, &[])
    }

    /// With these environment variables.
    pub fn spawn_with(place: &Place, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let pair = openpty(None, None).expect("a terminal");
        let end = || Stdio::from(pair.slave.try_clone().expect("a second handle"));
        let mut command = place.command(arguments);
        command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied());
        let mut command = Command::from(command);
        let child = command.kill_on_drop(true).spawn().expect("it starts");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let mut screen = File::from(pair.master.try_clone().expect("a second handle"));
        let seen = Arc::clone(&bytes);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut chunk) {
                seen.lock()
                    .expect("lock")
                    .extend_from_slice(&chunk[..length]);
            }
        });
        Self {
            child,
            keyboard: File::from(pair.master),
            wire: pair.slave,
            bytes,
        }
    }

    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("typed");
    }

    /// What a shell does when it goes on with a job that was stopped.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Ctrl-C; the terminal is nobody's controlling one, so the signal is sent by hand.
    pub fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Ctrl-\\, by hand too.
    pub fn quit(&self) {
        self.signal(Signal::SIGQUIT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it runs");
        let pid = Pid::from_raw(i32::try_from(pid).expect("a process"));
        kill(pid, signal).expect("it runs");
    }

    /// Everything that was written.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("lock")).into_owned()
    }

    /// The rows as a person sees them.
    pub fn rows(&self) -> Vec<String> {
        rows(&self.written())
    }

    /// All rows as one text.
    pub fn page(&self) -> String {
        self.rows().join("\n")
    }

    pub fn last_row(&self) -> String {
        self.rows().pop().unwrap_or_default()
    }

    pub async fn shows(&self, text: &str) {
        self.shows_times(text, 1).await;
    }

    /// Waits until a text stands there so often.
    pub async fn shows_times(&self, text: &str, times: usize) {
        let description = format!("{text:?} {times} times on\n{}", self.page());
        let result = tokio::time::timeout(
            LIMIT,
            wait::until(LIMIT * 2, &description, || async {
                self.page().matches(text).count() >= times
            }),
        )
        .await;
        assert!(result.is_ok(), "{text:?} is not on\n{}", self.page());
    }

    pub async fn ended(&mut self) -> ExitStatus {
        wait::within(LIMIT, "it ends", self.child.wait())
            .await
            .expect("it can be waited for")
    }

    /// Whether whole lines and an echo are what the next program finds.
    pub fn is_as_before(&self) -> bool {
        let flags = tcgetattr(&self.wire).expect("a terminal").local_flags;
        flags.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    }
}

/// What a terminal makes of what is written: only what these commands may use.
fn rows(written: &str) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let mut at = 0;
    let mut rest = written.chars();
    while let Some(next) = rest.next() {
        let row = rows.last_mut().expect("a row");
        match next {
            '\r' => at = 0,
            '\n' => {
                rows.push(Vec::new());
                at = 0;
            }
            '\u{1b}' => {
                assert_eq!(
                    rest.next(),
                    Some('['),
                    "an escape that drives the terminal: {written:?}"
                );
                let mut number = String::new();
                let last = loop {
                    match rest.next() {
                        Some(one @ ('0'..='9' | '?')) => number.push(one),
                        Some(last) => break last,
                        None => return rows.into_iter().map(String::from_iter).collect(),
                    }
                };
                match (last, number.as_str()) {
                    ('K', "") => row.truncate(at),
                    ('D', columns) => at -= columns.parse::<usize>().expect("a number").min(at),
                    ('h' | 'l', "?7" | "?2004") => {}
                    other => panic!("an escape that drives the terminal: {other:?}"),
                }
            }
            visible => {
                row.resize(row.len().max(at), ' ');
                if at < row.len() {
                    row[at] = visible;
                } else {
                    row.push(visible);
                }
                at += 1;
            }
        }
    }
    rows.into_iter().map(String::from_iter).collect()
}
