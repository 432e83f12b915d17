//! Opening what a path names: `openat2` beneath the workspace root, never through a link, never a pipe or a device.

use std::{
    ffi::CStr,
    fs::{File, Metadata},
    os::fd::{AsFd, OwnedFd},
};

use nix::{
    NixPath,
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat},
};

use crate::{error::Error, path::RelPath};

/// Tries of an open that a rename elsewhere in the tree disturbed (`EAGAIN`).
const OPEN_TRIES_MAX: usize = 32;

/// An open workspace root.
#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

impl Root {
    /// Opens the root that the operator chose for the session. It alone may be reached through links.
    pub(crate) fn open(path: &str) -> Result<Self, Error> {
        if !path.starts_with('/') {
            return Err(Error::Workspace(std::io::ErrorKind::InvalidInput.into()));
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        nix::fcntl::open(path, flags, Mode::empty())
            .map(Self)
            .map_err(|errno| Error::Workspace(errno.into()))
    }

    /// Opens a directory for reading.
    pub(crate) fn dir(&self, path: &RelPath) -> Result<Dir, Error> {
        open_dir(&self.0, path.as_str()).map_err(|errno| Error::system("open", path, errno))
    }

    /// Opens a regular file for reading.
    pub(crate) fn file(&self, path: &RelPath) -> Result<(File, Metadata), Error> {
        open_file(&self.0, path.as_str(), path)
    }

    /// What stands at `path`.
    pub(crate) fn kind(&self, path: &RelPath) -> Result<Kind, Error> {
        open_beneath(&self.0, path.as_str(), OFlag::O_PATH, Mode::empty())
            .and_then(fstat)
            .map(|stat| Kind::of(&stat))
            .map_err(|errno| Error::system("look at", path, errno))
    }
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; it is never followed.
    Symlink,
    /// A pipe, a socket or a device; it is never opened.
    Other,
}

impl Kind {
    /// The kind that a file's mode states.
    pub(crate) fn of(stat: &FileStat) -> Self {
        match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => Self::File,
            SFlag::S_IFDIR => Self::Directory,
            SFlag::S_IFLNK => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// Opens `path` beneath `dir`. The only place that opens what a model names.
pub(crate) fn open_beneath<P: NixPath + ?Sized>(
    dir: impl AsFd,
    path: &P,
    flags: OFlag,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .mode(mode)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        );
    let mut outcome = Err(Errno::EAGAIN);
    for _ in 0..OPEN_TRIES_MAX {
        outcome = openat2(dir.as_fd(), path, how);
        if !matches!(outcome, Err(Errno::EAGAIN | Errno::EINTR)) {
            break;
        }
    }
    outcome
}

/// Opens the directory `path` beneath `dir` for reading.
pub(crate) fn open_dir<P: NixPath + ?Sized>(dir: impl AsFd, path: &P) -> Result<Dir, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    Dir::from_fd(open_beneath(dir, path, flags, Mode::empty())?)
}

/// Opens the regular file `name` beneath `dir` for reading; `path` is what errors call it. What is no regular file is
/// refused before it is opened (opening a device can have effects), and what takes its place meanwhile is opened without
/// waiting and refused then.
pub(crate) fn open_file<P: NixPath + ?Sized>(
    dir: impl AsFd,
    name: &P,
    path: &RelPath,
) -> Result<(File, Metadata), Error> {
    let fail = |errno| Error::system("open", path, errno);
    let handle = open_beneath(&dir, name, OFlag::O_PATH, Mode::empty()).map_err(fail)?;
    require_regular(Kind::of(&fstat(&handle).map_err(fail)?), path)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(open_beneath(&dir, name, flags, Mode::empty()).map_err(fail)?);
    let meta = file
        .metadata()
        .map_err(|error| Error::io("look at", path, &error))?;
    if meta.is_file() {
        Ok((file, meta))
    } else {
        Err(Error::NotRegular {
            path: path.as_str().to_owned(),
        })
    }
}

/// An error unless `kind` is that of a regular file.
pub(crate) fn require_regular(kind: Kind, path: &RelPath) -> Result<(), Error> {
    let path = path.as_str().to_owned();
    match kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::IsDirectory { path }),
        Kind::Symlink => Err(Error::Link { path }),
        Kind::Other => Err(Error::NotRegular { path }),
    }
}

/// What the entry `name` of `dir` is, without opening or following it.
pub(crate) fn stat_entry(dir: impl AsFd, name: &CStr) -> Result<FileStat, Errno> {
    fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
}
