//! Taking a command's output, feeding its input, and ending it: one loop over descriptors, bounded in time and memory.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Write as _},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        resource::{UsageWho, getrusage},
        signal::{Signal, kill},
        signalfd::SignalFd,
        time::TimeValLike as _,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use teamster_protocol::limits;

use super::frame::{End, Kept, Limits};

/// How long output is still read once every process is dead.
const DRAIN: Duration = Duration::from_millis(300);
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// The beginning and the end of a stream.
pub(super) struct Stream {
    from: Option<File>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl Stream {
    /// A stream of which `kept_bytes` are kept.
    pub(super) fn new(from: Option<File>, kept_bytes: usize) -> io::Result<Self> {
        if let Some(from) = &from {
            unblock(from)?;
        }
        Ok(Self {
            from,
            head: Vec::new(),
            tail: VecDeque::new(),
            half: kept_bytes / 2,
            total: 0,
        })
    }

    fn take(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = self.half.saturating_sub(self.head.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let skipped = rest.len().saturating_sub(self.half);
        self.tail.extend(rest.iter().skip(skipped));
        let surplus = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..surplus);
    }

    /// Reads what is there.
    fn read(&mut self, buffer: &mut [u8]) {
        let Some(from) = &mut self.from else { return };
        match from.read(buffer) {
            Ok(0) => self.from = None,
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                self.take(bytes);
            }
            Err(error) if is_later(&error) => {}
            Err(_) => self.from = None,
        }
    }

    /// How much there is and was.
    pub(super) fn kept(&self) -> Kept {
        Kept {
            head: self.head.len(),
            tail: self.tail.len(),
            total: self.total,
        }
    }

    /// The kept bytes: the beginning, then the end.
    pub(super) fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        let (first, second) = self.tail.as_slices();
        [self.head.as_slice(), first, second].into_iter()
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn unblock(file: impl AsFd) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// What a command reads, as far as it has not read it.
pub(super) struct Input {
    to: Option<File>,
    rest: VecDeque<u8>,
}

impl Input {
    /// Feeds `text` and then the end.
    pub(super) fn new(to: Option<File>, text: String) -> io::Result<Self> {
        if let Some(to) = &to {
            unblock(to)?;
        }
        let mut input = Self {
            to,
            rest: text.into_bytes().into(),
        };
        input.write();
        Ok(input)
    }

    fn write(&mut self) {
        while let Some(to) = &mut self.to {
            let (bytes, _) = self.rest.as_slices();
            if bytes.is_empty() {
                self.to = None;
                return;
            }
            match to.write(bytes) {
                Ok(count) => drop(self.rest.drain(..count)),
                Err(error) if is_later(&error) => return,
                Err(_) => self.to = None,
            }
        }
    }
}

/// Where the loop is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The command runs until then.
    Runs(Instant),
    /// Every process was asked to end, and is ended then.
    Asked(Instant),
    /// Every process is ended; output is read until then.
    Ended(Instant),
}

impl Phase {
    fn until(self) -> Instant {
        match self {
            Self::Runs(until) | Self::Asked(until) | Self::Ended(until) => until,
        }
    }
}

/// One running command.
pub(super) struct Run<'a> {
    /// The process that is the command.
    pub(super) main: Pid,
    /// Tells of ended processes.
    pub(super) children: &'a SignalFd,
    /// The worker's end: whatever it says, or its silence, ends the command.
    pub(super) control: io::Stdin,
    /// What it reads.
    pub(super) input: Input,
    /// What it writes.
    pub(super) stdout: Stream,
    /// What it writes about errors.
    pub(super) stderr: Stream,
    /// The bounds.
    pub(super) limits: Limits,
}

impl Run<'_> {
    /// Runs to the end of every process, and says how the command ended. Returns within the command's time, the grace, and
    /// the drain, whatever it does.
    pub(super) fn finish(&mut self) -> io::Result<End> {
        let mut phase = Phase::Runs(after(Duration::from_millis(self.limits.wall_ms)));
        let mut end = None;
        let mut buffer = vec![0; CHUNK];
        loop {
            let wake = self.wait(phase.until())?;
            self.input.write();
            self.stdout.read(&mut buffer);
            self.stderr.read(&mut buffer);
            while let Ok(Some(_)) = self.children.read_signal() {}
            let is_alone = self.reap(&mut end);
            if wake.is_told && !matches!(phase, Phase::Ended(_)) {
                end = Some(End::Cancelled);
                phase = end_all();
            }
            let is_over = Instant::now() >= phase.until();
            phase = match phase {
                Phase::Runs(_) | Phase::Asked(_) if end.is_some() => end_all(),
                Phase::Runs(_) if is_over => {
                    // -1 is every process of this namespace but this one.
                    let _ = kill(Pid::from_raw(-1), Signal::SIGTERM);
                    end = Some(End::TimedOut);
                    Phase::Asked(after(limits::EXEC_TERM_GRACE))
                }
                Phase::Asked(_) if is_over || is_alone => end_all(),
                phase => phase,
            };
            if matches!(phase, Phase::Ended(_)) && (is_over || (is_alone && self.is_drained())) {
                return Ok(end.unwrap_or(End::TimedOut));
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.stdout.from.is_none() && self.stderr.from.is_none()
    }

    /// Waits until something is to be done.
    fn wait(&self, until: Instant) -> io::Result<Wake> {
        let mut fds = vec![
            PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
        ];
        for from in [&self.stdout.from, &self.stderr.from].into_iter().flatten() {
            fds.push(PollFd::new(from.as_fd(), PollFlags::POLLIN));
        }
        if let Some(to) = &self.input.to {
            fds.push(PollFd::new(to.as_fd(), PollFlags::POLLOUT));
        }
        let left = until
            .saturating_duration_since(Instant::now())
            .as_millis()
            .saturating_add(1);
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, left) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_told = fds
            .first()
            .and_then(PollFd::revents)
            .is_some_and(|events| !events.is_empty());
        Ok(Wake { is_told })
    }

    /// Takes the ends of processes; `true` if none is left. The first end of the main one is the command's.
    fn reap(&self, end: &mut Option<End>) -> bool {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return false,
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(_) => return true,
            };
            let ended = match status {
                WaitStatus::Exited(pid, code) if pid == self.main => End::Exited(code),
                WaitStatus::Signaled(pid, signal, _) if pid == self.main => self.by_signal(signal),
                _ => continue,
            };
            // A command that ends because it was asked to has still run out of its time.
            end.get_or_insert(ended);
        }
    }

    fn by_signal(&self, signal: Signal) -> End {
        match signal {
            Signal::SIGXCPU => End::CpuLimit,
            Signal::SIGXFSZ => End::FileLimit,
            Signal::SIGKILL if self.has_used_its_time() => End::CpuLimit,
            signal => End::Signaled(signal as i32),
        }
    }

    /// Whether a process that caught the first warning was ended by the second.
    fn has_used_its_time(&self) -> bool {
        getrusage(UsageWho::RUSAGE_CHILDREN).is_ok_and(|usage| {
            let used = usage.user_time().num_seconds() + usage.system_time().num_seconds();
            u64::try_from(used).unwrap_or_default() >= self.limits.cpu_seconds
        })
    }
}

/// Why the loop goes round.
struct Wake {
    /// The worker said something, or is gone.
    is_told: bool,
}

fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or(now)
}

fn end_all() -> Phase {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    Phase::Ended(after(DRAIN))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sbx_2_beginning_and_end_are_kept_and_all_is_counted(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20), kept in 0_usize..60) {
            let all: Vec<u8> = chunks.concat();
            let mut stream = Stream::new(None, kept).expect("no file");
            for chunk in &chunks {
                stream.take(chunk);
            }
            let half = kept / 2;
            let bytes: Vec<u8> = stream.bytes().flatten().copied().collect();
            prop_assert_eq!(stream.kept().total, all.len() as u64);
            let head = &all[..half.min(all.len())];
            let rest = &all[head.len()..];
            let tail = &rest[rest.len().saturating_sub(half)..];
            prop_assert_eq!(bytes, [head, tail].concat());
        }
    }
}
