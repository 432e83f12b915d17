//! Descriptors: closing what was inherited, and opening again what was inherited on purpose.

use std::{fs::File, io, os::fd::RawFd};

/// The directory that lists a process's descriptors.
const DIR: &str = "/proc/self/fd";

/// Closes every descriptor above 2 but `kept`. What the worker or whoever started it left open never reaches a command.
pub(super) fn close_all_but(kept: Option<RawFd>) -> io::Result<()> {
    let listed: Vec<RawFd> = std::fs::read_dir(DIR)?
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2 && Some(*fd) != kept)
        .collect();
    for fd in listed {
        // The descriptor of the listing itself is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Opens for reading what lies behind an inherited descriptor.
pub(super) fn read(fd: &str) -> io::Result<File> {
    File::open(path(fd)?)
}

/// Opens for writing what lies behind an inherited descriptor. The new one ends with the execution of another program.
pub(super) fn write(fd: &str) -> io::Result<File> {
    File::options().write(true).open(path(fd)?)
}

fn path(fd: &str) -> io::Result<String> {
    let fd: RawFd = fd
        .parse()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(format!("{DIR}/{fd}"))
}
