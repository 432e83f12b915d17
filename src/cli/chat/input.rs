//! Where messages come from: keys of a terminal whose line is edited here, or whole lines of standard input.
//!
//! Invariant: the terminal is as it was before whenever this is dropped or left, so also after a panic.

use std::{
    io::{self, BufRead as _, Read as _},
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::termios::{
        FlushArg, InputFlags, LocalFlags, SetArg, Termios, tcflush, tcgetattr, tcsetattr,
    },
};
use teamster_protocol::limits;
use tokio::sync::mpsc;

use super::key::{Key, Keys};
use crate::cli::output::Output;

/// Asks a terminal to mark what is pasted.
const MARK_PASTES: &str = "\x1b[?2004h";
/// Ends that.
const PLAIN_PASTES: &str = "\x1b[?2004l";
/// Bytes read at once.
const CHUNK: usize = 4096;
/// How long one look at the terminal waits for a key, and so how long lending it may take.
const LOOK: Duration = Duration::from_millis(100);

/// Lines of a script that are counted after it has ended.
const REST_MAX: u64 = 100_000;

/// A line of standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Its text.
    Text(String),
    /// It is longer than a message may be.
    TooLong,
    /// It is not UTF-8.
    NotText,
    /// There is no more.
    End,
}

/// What came.
#[derive(Debug)]
pub(super) enum Came {
    /// Keys, at least one.
    Keys(Vec<Key>),
    /// A line.
    Line(Line),
}

/// Where messages come from.
pub(super) enum Input {
    /// A terminal whose line is edited here.
    Keys(Terminal),
    /// Lines.
    Lines(Lines),
}

impl Input {
    /// What comes next. Cancel-safe.
    pub(super) async fn next(&mut self) -> Came {
        match self {
            Self::Keys(terminal) => match terminal.next().await {
                Some(keys) => Came::Keys(keys),
                None => Came::Line(Line::End),
            },
            Self::Lines(lines) => Came::Line(lines.next().await),
        }
    }

    /// Throws away what was typed before a question and is not read yet.
    pub(super) fn flush() {
        let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
    }

    /// Gives up what has begun to come, such as a paste whose end is lost.
    pub(super) fn give_up(&mut self) {
        if let Self::Keys(terminal) = self {
            terminal.keys.clear();
        }
    }

    /// Gives the terminal to somebody else, for example an editor.
    pub(super) fn lend(&self) {
        if let Self::Keys(terminal) = self {
            terminal.leave();
        }
    }

    /// Takes the terminal again, also after this process was stopped and goes on.
    pub(super) fn take(&self) {
        if let Self::Keys(terminal) = self {
            terminal.enter();
        }
    }
}

/// A terminal that hands over keys as they are pressed. Ctrl-C stays a signal. A thread reads, except while the terminal is
/// lent to somebody else.
pub(super) struct Terminal {
    bytes: mpsc::Receiver<Vec<u8>>,
    gate: Arc<Gate>,
    keys: Keys,
    before: Termios,
    out: Output,
}

/// Keeps the reading thread away from a terminal that is lent.
#[derive(Debug, Default)]
struct Gate {
    is_lent: AtomicBool,
    /// Held while the thread looks at the terminal.
    looking: Mutex<()>,
}

impl Terminal {
    /// Takes the terminal.
    pub(super) fn open(out: &Output) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let gate = Arc::new(Gate::default());
        let (sender, bytes) = mpsc::channel(1);
        let terminal = Self {
            bytes,
            gate: Arc::clone(&gate),
            keys: Keys::default(),
            before,
            out: out.clone(),
        };
        terminal.enter();
        std::thread::spawn(move || read_bytes(&gate, &sender));
        Ok(terminal)
    }

    fn enter(&self) {
        let mut raw = self.before.clone();
        // What is pasted ends its lines in either way, or in both.
        raw.input_flags
            .remove(InputFlags::ICRNL | InputFlags::INLCR);
        raw.local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::IEXTEN);
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw);
        self.out.raw(MARK_PASTES);
        self.gate.is_lent.store(false, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.gate.is_lent.store(true, Ordering::SeqCst);
        // Whoever gets the terminal now must not share its keys with a look that is under way.
        drop(self.gate.looking.lock());
        self.out.raw(PLAIN_PASTES);
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }

    /// The next keys; `None` when the terminal is gone.
    async fn next(&mut self) -> Option<Vec<Key>> {
        loop {
            let bytes = self.bytes.recv().await?;
            let keys = self.keys.feed(&bytes);
            if !keys.is_empty() {
                return Some(keys);
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Reads what is typed, until the terminal or whoever listens is gone.
fn read_bytes(gate: &Gate, sender: &mpsc::Sender<Vec<u8>>) {
    while !sender.is_closed() {
        if gate.is_lent.load(Ordering::SeqCst) {
            std::thread::park_timeout(LOOK);
            continue;
        }
        match look(gate) {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => {
                if sender.blocking_send(bytes).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// What is typed now; nothing after a while. An error means that the terminal is gone.
fn look(gate: &Gate) -> nix::Result<Vec<u8>> {
    let _looking = gate.looking.lock();
    if gate.is_lent.load(Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let input = io::stdin();
    let mut wanted = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
    match poll(&mut wanted, limit) {
        Ok(0) | Err(Errno::EINTR) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    let mut bytes = vec![0; CHUNK];
    match nix::unistd::read(&input, &mut bytes) {
        Ok(0) => Err(Errno::EIO),
        Ok(length) => {
            bytes.truncate(length);
            Ok(bytes)
        }
        Err(Errno::EINTR | Errno::EAGAIN) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Lines of standard input. A thread reads one at a time, only when one is wanted, so that an editor finds the terminal
/// free and a script is not read ahead of its answers.
pub(super) struct Lines {
    wanted: std::sync::mpsc::SyncSender<()>,
    read: mpsc::Receiver<Line>,
    is_reading: bool,
}

impl Lines {
    /// Begins; nothing is read yet.
    pub(super) fn open() -> Self {
        let (wanted, wants) = std::sync::mpsc::sync_channel(1);
        let (sender, read) = mpsc::channel(1);
        std::thread::spawn(move || {
            while wants.recv().is_ok() {
                let line = read_line(&mut io::stdin().lock());
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            wanted,
            read,
            is_reading: false,
        }
    }

    /// Asks for one line.
    pub(super) fn want(&mut self) {
        if !self.is_reading {
            self.is_reading = self.wanted.send(()).is_ok();
        }
    }

    /// How many lines that are not empty still come, read within `limit`, and whether that is all. For a script that is not gone
    /// on with.
    pub(super) async fn rest(&mut self, limit: Duration) -> (u64, bool) {
        let mut lines = 0;
        let all = async {
            while lines < REST_MAX {
                self.want();
                match self.next().await {
                    Line::End => return true,
                    Line::Text(text) if text.trim().is_empty() => {}
                    Line::Text(_) | Line::TooLong | Line::NotText => lines += 1,
                }
            }
            false
        };
        let is_all = tokio::time::timeout(limit, all).await.unwrap_or(false);
        (lines, is_all)
    }

    /// The line that was asked for. Waits for ever where none was.
    async fn next(&mut self) -> Line {
        if !self.is_reading {
            return std::future::pending().await;
        }
        let line = self.read.recv().await.unwrap_or(Line::End);
        self.is_reading = false;
        line
    }
}

/// Reads a line without its end. Of one that is too long the rest is passed over.
fn read_line(input: &mut impl io::BufRead) -> Line {
    let mut bytes = Vec::new();
    let limit = limits::MESSAGE_BYTES_MAX as u64 + 2;
    match input.by_ref().take(limit).read_until(b'\n', &mut bytes) {
        Ok(0) | Err(_) => return Line::End,
        Ok(_) => {}
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    } else if bytes.len() as u64 == limit {
        return match input.skip_until(b'\n') {
            Ok(_) => Line::TooLong,
            Err(_) => Line::End,
        };
    }
    if bytes.len() > limits::MESSAGE_BYTES_MAX {
        return Line::TooLong;
    }
    String::from_utf8(bytes).map_or(Line::NotText, Line::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one_and_each_has_a_bound() {
        let fits = "x".repeat(limits::MESSAGE_BYTES_MAX);
        for (text, want) in [
            (b"one\ntwo\r\nthree".to_vec(), vec!["one", "two", "three"]),
            (format!("{fits}\nnext\n").into_bytes(), vec![&fits, "next"]),
            (
                format!("{fits}x\nnext\n").into_bytes(),
                vec!["?long", "next"],
            ),
            (
                format!("{fits}{fits}\nnext\n").into_bytes(),
                vec!["?long", "next"],
            ),
            (b"\xff\nnext".to_vec(), vec!["?text", "next"]),
            (b"\n".to_vec(), vec![""]),
            (Vec::new(), vec![]),
        ] {
            let mut input = text.as_slice();
            let mut lines = Vec::new();
            loop {
                match read_line(&mut input) {
                    Line::Text(line) => lines.push(line),
                    Line::TooLong => lines.push("?long".to_owned()),
                    Line::NotText => lines.push("?text".to_owned()),
                    Line::End => break,
                }
            }
            assert_eq!(lines, want);
        }
    }
}
