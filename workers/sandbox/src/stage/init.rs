//! The second stage: process 1 of the command's namespace. When it ends, so does everything in there.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsRawFd as _, OwnedFd},
    process::{Child, ExitCode, Stdio},
    time::Instant,
};

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        prctl,
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{Pid, pipe},
};

use super::{
    Entry, HOME,
    collect::{Input, Run, Stream},
    failure::{At, Failure},
    fds,
    frame::{self, End, Inner, Report, Said, Spec},
    outer,
    root::{self, Layout},
};
use crate::layer::{Layer, Level};

/// The part of the environment that every command has.
const ENVIRONMENT: [(&str, &str); 8] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", HOME),
    ("USER", "agent"),
    ("LOGNAME", "agent"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("TMPDIR", "/tmp"),
];

/// Runs the stage; what happened is reported on standard output.
pub(super) fn run(entry: &Entry) -> ExitCode {
    let mut out = io::stdout().lock();
    let outcome = match work(entry) {
        Ok(Ended::Probed(levels)) => frame::write(&mut out, &Report::Probed(levels)),
        Ok(Ended::Ran {
            end,
            duration_ms,
            streams,
        }) => {
            let [stdout, stderr] = streams.as_ref();
            let report = Report::Ended {
                end,
                duration_ms,
                stdout: stdout.kept(),
                stderr: stderr.kept(),
            };
            let mut bytes = stdout.bytes().chain(stderr.bytes());
            frame::write(&mut out, &report)
                .and_then(|()| bytes.try_for_each(|bytes| out.write_all(bytes)))
        }
        Err(failure) => frame::write(&mut out, &Report::Failed(failure)),
    };
    match outcome.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

enum Ended {
    Probed(Vec<Level>),
    Ran {
        end: End,
        duration_ms: u64,
        streams: Box<[Stream; 2]>,
    },
}

fn work(entry: &Entry) -> Result<Ended, Failure> {
    prctl::set_pdeathsig(Signal::SIGKILL).step("end with the worker")?;
    fds::close_all_but(None).step("close inherited descriptors")?;
    let mut spec: Spec = frame::read(&mut io::stdin()).step("read instructions")?;
    let is_probe = spec.argv.is_empty();
    spec.layers = entry.kept(&spec.layers, is_probe);
    if spec.layers.contains(&Layer::UserNs) {
        outer::bound_user_namespaces();
    }
    let layout = root::build(&spec)?;
    // From here on no process of the same user looks into this one.
    prctl::set_dumpable(false).step("close this process to others")?;
    let children = children().step("watch for ended processes")?;
    let began = Instant::now();
    let (mut child, report) = start(entry, &instructions(&mut spec, layout))?;
    let mut answer = Vec::new();
    File::from(report)
        .read_to_end(&mut answer)
        .step("hear from the command's process")?;
    if is_probe {
        return probed(&answer);
    }
    let kept = spec.limits.kept_bytes;
    let streams = |child: &mut Child| -> io::Result<[Stream; 2]> {
        Ok([
            Stream::new(
                child
                    .stdout
                    .take()
                    .map(|out| File::from(OwnedFd::from(out))),
                kept,
            )?,
            Stream::new(
                child
                    .stderr
                    .take()
                    .map(|out| File::from(OwnedFd::from(out))),
                kept,
            )?,
        ])
    };
    let [stdout, stderr] = streams(&mut child).step("read the command")?;
    if !answer.is_empty() {
        return not_started(&answer, began, [stdout, stderr]);
    }
    let input = child.stdin.take().map(|to| File::from(OwnedFd::from(to)));
    let mut run = Run {
        main: Pid::from_raw(child.id().cast_signed()),
        children: &children,
        control: io::stdin(),
        input: Input::new(input, spec.stdin).step("feed the command")?,
        stdout,
        stderr,
        limits: spec.limits,
    };
    let end = run.finish().step("watch the command")?;
    Ok(ran(end, began, [run.stdout, run.stderr]))
}

fn ran(end: End, began: Instant, streams: [Stream; 2]) -> Ended {
    Ended::Ran {
        end,
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        streams: Box::new(streams),
    }
}

/// What `inner` said instead of becoming the command.
fn not_started(answer: &[u8], began: Instant, streams: [Stream; 2]) -> Result<Ended, Failure> {
    match serde_json::from_slice(answer).step("understand the command's process")? {
        Said::Failed(failure) => Err(failure),
        Said::NotStarted(why) => Ok(ran(End::NotStarted(why), began, streams)),
        Said::Probed(levels) => Ok(Ended::Probed(levels)),
    }
}

fn probed(answer: &[u8]) -> Result<Ended, Failure> {
    match serde_json::from_slice(answer).step("understand the probe")? {
        Said::Failed(failure) => Err(failure),
        Said::Probed(levels) => Ok(Ended::Probed(levels)),
        Said::NotStarted(why) => Err(Failure {
            layer: None,
            step: "probe".to_owned(),
            why,
        }),
    }
}

/// Ended processes become readable instead of interrupting.
fn children() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    Ok(SignalFd::with_flags(
        &mask,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// What `inner` is told.
fn instructions(spec: &mut Spec, layout: Layout) -> Inner {
    let cwd = match (&spec.workspace, spec.cwd.as_str()) {
        (None, _) => "/".to_owned(),
        (Some(_), "") => layout.workspace,
        (Some(_), below) => format!("{}/{below}", layout.workspace),
    };
    let fixed = ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Inner {
        layers: spec.layers.clone(),
        readable: layout.readable,
        writable: layout.writable,
        cwd,
        argv: std::mem::take(&mut spec.argv),
        env: fixed.into_iter().chain(spec.env.drain(..)).collect(),
        limits: spec.limits,
    }
}

/// Starts `inner` with its instructions in a sealed memory file. The returned end reads what it says before it becomes the
/// command: nothing, if it does.
fn start(entry: &Entry, told: &Inner) -> Result<(Child, OwnedFd), Failure> {
    let told = serde_json::to_vec(told).step("write instructions")?;
    // Both are inherited on purpose: `inner` is told their numbers, and closes them.
    let file = memfd_create(c"instructions", MFdFlags::MFD_ALLOW_SEALING)
        .step("make a file for instructions")?;
    let mut file = File::from(file);
    file.write_all(&told).step("write instructions")?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).step("seal the instructions")?;
    let (report, says) = pipe().step("make a pipe")?;
    let words = [
        "inner".to_owned(),
        file.as_raw_fd().to_string(),
        says.as_raw_fd().to_string(),
    ];
    let words = words.each_ref().map(String::as_str);
    let child = super::next(entry, &words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .step("start the command's process")?;
    Ok((child, report))
}
