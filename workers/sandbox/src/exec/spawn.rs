//! The one place that starts the sandbox's first stage, tells it what to do, and hears how it went.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Write as _},
    os::fd::AsFd,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use teamster_protocol::limits;

use super::{Error, group::Group};
use crate::{
    stage::{
        self, MARK,
        frame::{self, Outer, Report, Spec},
    },
    stop::Stop,
};

/// How often a wait looks whether the call was cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the stages are given to take everything down after they were told to end.
const END_MAX: Duration = Duration::from_secs(1);
/// Bytes of a whole answer: the report, and what is kept of two streams.
const ANSWER_BYTES_MAX: usize = 64 * 1024 + 2 * limits::EXEC_OUTPUT_BYTES_MAX;

/// One start of the stages.
pub(super) struct Job<'a> {
    /// The executable.
    pub(super) helper: &'a OsStr,
    /// What the first stage is told.
    pub(super) outer: &'a Outer,
    /// What the second is told.
    pub(super) spec: &'a Spec,
    /// The control group of everything that is started.
    pub(super) group: Option<&'a Group>,
}

/// Runs the stages to their end and returns the report, with the bytes behind it. Whatever happens, no process is left.
pub(super) fn talk(job: &Job<'_>, stop: &Stop) -> Result<(Report, Vec<u8>), Error> {
    let broken = |error: io::Error| Error::Stage(format!("the stages cannot be told: {error}"));
    let mut told = frame::encode(job.outer).map_err(broken)?;
    told.extend(frame::encode(job.spec).map_err(broken)?);
    let mut command = stage::command(job.helper);
    command
        .args([MARK, "outer"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut stages = Stages(command.spawn().map_err(Error::Helper)?);
    let (Some(stdin), Some(stdout)) = (stages.0.stdin.take(), stages.0.stdout.take()) else {
        return Err(Error::Stage("a pipe is missing".to_owned()));
    };
    if let Some(group) = job.group {
        // Before the stages are told anything: they wait for it.
        group
            .add(stages.0.id())
            .map_err(|error| Error::Stage(format!("a control group: {error}")))?;
    }
    let mut wire = Wire {
        stdin: Some(stdin),
        stdout,
        answer: Vec::new(),
    };
    wire.unblock().map_err(broken)?;
    let outcome = wire.tell(&told, stop).and_then(|()| wire.hear(stop));
    if outcome.is_err() {
        // The silence of the worker ends the command; its processes are gone when the answer ends.
        wire.stdin = None;
        let _ = wire.hear(&Stop {
            cancel: tokio_util::sync::CancellationToken::new(),
            until: Instant::now() + END_MAX,
        });
    }
    drop(stages);
    outcome?;
    match frame::decode(&wire.answer) {
        Ok(Some((report, rest))) => Ok((report, rest.to_vec())),
        Ok(None) if wire.answer.is_empty() => Err(Error::Stage(
            "the helper ended without a word; does this executable call stage::main first?"
                .to_owned(),
        )),
        _ => Err(Error::Stage(
            "the helper's answer cannot be read".to_owned(),
        )),
    }
}

/// The first stage. When it is gone, the kernel ends the second, and with it everything inside.
struct Stages(Child);

impl Drop for Stages {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Wire {
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    answer: Vec<u8>,
}

impl Wire {
    fn unblock(&self) -> io::Result<()> {
        if let Some(stdin) = &self.stdin {
            fcntl(stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        fcntl(&self.stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
    }

    /// Writes all of `told`. A helper that stops reading has failed, and says why in its answer.
    fn tell(&mut self, told: &[u8], stop: &Stop) -> Result<(), Error> {
        let mut rest = told;
        while let Some(stdin) = self.stdin.as_mut().filter(|_| !rest.is_empty()) {
            match stdin.write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&*stdin, PollFlags::POLLOUT, stop)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Reads the answer to its end: until nobody is left who could write.
    fn hear(&mut self, stop: &Stop) -> Result<(), Error> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.stdout.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.answer.extend(buffer.iter().take(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&self.stdout, PollFlags::POLLIN, stop)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Stage(format!("the answer: {error}"))),
            }
            if self.answer.len() > ANSWER_BYTES_MAX {
                return Err(Error::Stage("the answer is too long".to_owned()));
            }
        }
    }
}

/// Waits for a descriptor; an error once the work must end.
fn wait(fd: impl AsFd, events: PollFlags, stop: &Stop) -> Result<(), Error> {
    loop {
        stop.check().map_err(|error| match error {
            crate::Error::Cancelled => Error::Cancelled,
            _ => Error::Stage("the stages did not answer in time".to_owned()),
        })?;
        let look = PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(fd.as_fd(), events)], look) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Error::Stage(format!("waiting for the stages: {errno}"))),
        }
    }
}
