//! The third stage: locks itself in, then becomes the command.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        resource::{Resource, setrlimit},
        signal::SigSet,
        stat::{Mode, umask},
    },
    unistd::{AccessFlags, access, chdir, setsid},
};
use teamster_protocol::limits;

use super::{
    failure::{At, Failure},
    fds, filter,
    frame::{Inner, Limits, Said},
    outer, probe, rules,
};
use crate::layer::Layer;

/// Runs the stage. `instructions` and `report` are the numbers of inherited descriptors. Does not return if the command
/// starts.
pub(super) fn run(instructions: &str, report: &str) -> ExitCode {
    let Ok(mut report) = fds::write(report) else {
        return ExitCode::FAILURE;
    };
    let said = match become_command(instructions, &report) {
        Ok(said) => said,
        Err(failure) => Said::Failed(failure),
    };
    let said = serde_json::to_vec(&said).map_err(io::Error::from);
    match said.and_then(|said| report.write_all(&said)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn become_command(instructions: &str, report: &File) -> Result<Said, Failure> {
    let mut told = Vec::new();
    fds::read(instructions)
        .and_then(|mut file| file.read_to_end(&mut told))
        .step("read instructions")?;
    // The way back is the only one left above 2, and it closes when this becomes the command.
    fds::close_all_but(Some(report.as_raw_fd())).step("close inherited descriptors")?;
    let told: Inner = serde_json::from_slice(&told).step("understand instructions")?;
    let is_probe = told.argv.is_empty();
    setsid().step("begin a session without a terminal")?;
    // Process 1 blocks the signal that tells of ended children; a command that inherited that would wait for ever.
    SigSet::empty().thread_set_mask().step("unblock signals")?;
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    // Whoever runs out of memory first, it is never process 1, which has to tell.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    chdir(told.cwd.as_str()).step("enter the working directory")?;
    bound(&told.limits).step("set limits")?;
    if told.layers.contains(&Layer::UserNs) {
        unshare(CloneFlags::CLONE_NEWUSER).at(Layer::UserNs, "enter the second user namespace")?;
        outer::map("1000", "0", "0")?;
    }
    let mut landlock = None;
    if told.layers.contains(&Layer::Landlock) {
        landlock = Some(rules::apply(&told)?);
    }
    if told.layers.contains(&Layer::Seccomp) {
        filter::apply()?;
    }
    if is_probe {
        return Ok(Said::Probed(probe::look(&told.layers, landlock)));
    }
    Ok(Said::NotStarted(execute(told)))
}

fn bound(limits: &Limits) -> nix::Result<()> {
    let cpu = limits.cpu_seconds;
    for (resource, soft, hard) in [
        (Resource::RLIMIT_CORE, 0, 0),
        (Resource::RLIMIT_CPU, cpu, cpu.saturating_add(1)),
        (
            Resource::RLIMIT_DATA,
            limits.memory_bytes,
            limits.memory_bytes,
        ),
        (Resource::RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (Resource::RLIMIT_NPROC, limits.processes, limits.processes),
        (
            Resource::RLIMIT_NOFILE,
            limits::EXEC_OPEN_FILES,
            limits::EXEC_OPEN_FILES,
        ),
        (Resource::RLIMIT_MEMLOCK, 0, 0),
        (Resource::RLIMIT_MSGQUEUE, 0, 0),
        (Resource::RLIMIT_RTPRIO, 0, 0),
    ] {
        setrlimit(resource, soft, hard)?;
    }
    Ok(())
}

/// Becomes the command; returns only why not.
fn execute(told: Inner) -> String {
    let Some((name, arguments)) = told.argv.split_first() else {
        return "there is nothing to run".to_owned();
    };
    let search = told
        .env
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map_or("", |(_, value)| value);
    let program = match find(name, search) {
        Ok(program) => program,
        Err(why) => return why,
    };
    let error = super::command(program.as_os_str())
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(told.env)
        .exec();
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{name:?} cannot be run: the interpreter or loader that it names is not there")
        }
        _ => format!("{name:?} cannot be run: {error}"),
    }
}

/// The file of a program: a path as it is, a name by the search path.
fn find(name: &str, search: &str) -> Result<PathBuf, String> {
    let candidates: Vec<PathBuf> = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        search
            .split(':')
            .filter(|dir| dir.starts_with('/'))
            .map(|dir| Path::new(dir).join(name))
            .collect()
    };
    let mut why = format!("{name:?} is not there");
    for candidate in candidates {
        match fs::metadata(&candidate) {
            Ok(meta) if meta.is_dir() => why = format!("{name:?} is a directory"),
            Ok(_) => match access(&candidate, AccessFlags::X_OK) {
                Ok(()) => return Ok(candidate),
                Err(errno) => why = format!("{name:?} may not be run: {}", errno.desc()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => why = format!("{name:?} cannot be reached: {error}"),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_path_or_by_search() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().to_str().expect("a text path");
        let plain = dir.path().join("plain");
        fs::write(&plain, "x").expect("a file");
        assert!(
            find("sh", "relative:/bin")
                .expect("a shell")
                .ends_with("sh")
        );
        assert!(find("/bin/sh", "").is_ok());
        for (name, search, why) in [
            ("no-such-program", "/bin", "is not there"),
            ("", "/bin", "directory"),
            ("sh", "", "is not there"),
            ("plain", at, "may not be run"),
            (at, "", "is a directory"),
        ] {
            let found = find(name, search).expect_err(name);
            assert!(found.contains(why), "{found}");
        }
    }
}
