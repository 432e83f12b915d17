//! Replacing a file whole: the new content is written beside it, made durable, and renamed over it.

use std::{
    collections::hash_map::RandomState,
    fs::{File, Metadata},
    hash::{BuildHasher, Hasher},
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, renameat},
    sys::stat::{FileStat, Mode, fchmod, mkdirat},
    unistd::{UnlinkatFlags, fsync, unlinkat},
};
use teamster_protocol::limits;

use crate::{
    error::Error,
    path::RelPath,
    root::{self, Kind, Root, open_beneath},
    stop::Stop,
};

/// Writers of the same file follow one another; those of others rarely meet.
static WRITERS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

const TEMPORARY_PREFIX: &str = ".teamster-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Tries to find a free name for the new content.
const TEMPORARY_TRIES_MAX: u32 = 8;

/// Whether a name is that of content that was being written. Such files are left behind by a process that was killed, and
/// no function shows them.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY_PREFIX) && name.ends_with(TEMPORARY_SUFFIX)
}

/// A name in an open directory, which this process alone may change while the value lives.
pub(crate) struct Place<'a> {
    dir: Dir,
    name: &'a str,
    path: &'a RelPath,
    _writer: MutexGuard<'static, ()>,
}

/// What stands at a place.
pub(crate) struct Current {
    /// Its bytes.
    pub(crate) content: Vec<u8>,
    /// Its state when it was opened.
    pub(crate) meta: Metadata,
    file: File,
}

impl<'a> Place<'a> {
    /// Finds the place of `path`, making the directories above it if `makes_dirs`.
    pub(crate) fn find(root: &Root, path: &'a RelPath, makes_dirs: bool) -> Result<Self, Error> {
        let Some((parent, name)) = path.split() else {
            return Err(Error::IsDirectory {
                path: path.as_str().to_owned(),
            });
        };
        if is_temporary(name) {
            return Err(Error::Path {
                path: path.as_str().to_owned(),
                rule: "names of this form are kept for content that is being written",
            });
        }
        let dir = if makes_dirs {
            make_dirs(root, &parent)?
        } else {
            root.dir(&parent)?
        };
        let writer = lock(&dir, name).map_err(|errno| Error::system("look at", path, errno))?;
        Ok(Self {
            dir,
            name,
            path,
            _writer: writer,
        })
    }

    /// The regular file that stands here, if any, with its content where it has at most `bytes_max` bytes; larger is
    /// [`Error::TooLarge`]. What is no regular file is an error.
    pub(crate) fn current(&self, bytes_max: u64) -> Result<Option<Current>, Error> {
        let (file, meta) = match root::open_file(&self.dir, self.name, self.path) {
            Err(Error::NotFound { .. }) => return Ok(None),
            other => other?,
        };
        let mut content = Vec::new();
        (&file)
            .take(bytes_max + 1)
            .read_to_end(&mut content)
            .map_err(|error| Error::io("read", self.path, &error))?;
        if content.len() as u64 > bytes_max {
            return Err(self.too_large(meta.len().max(bytes_max + 1)));
        }
        Ok(Some(Current {
            content,
            meta,
            file,
        }))
    }

    /// The state of the regular file that stands here, if any, without reading it.
    pub(crate) fn state(&self) -> Result<Option<Metadata>, Error> {
        match root::open_file(&self.dir, self.name, self.path) {
            Err(Error::NotFound { .. }) => Ok(None),
            other => other.map(|(_, meta)| Some(meta)),
        }
    }

    /// Puts `content` here, in place of `old`: whole, or not at all. The permissions stay (never with setuid or setgid
    /// bits). Durable when it returns. If what stands here is no longer `old`, nothing is changed.
    pub(crate) fn put(
        &self,
        content: &[u8],
        old: Option<&Metadata>,
        stop: &Stop,
    ) -> Result<(), Error> {
        if content.len() > limits::FS_WRITE_BYTES_MAX {
            return Err(self.too_large(content.len() as u64));
        }
        if old.is_some_and(|old| old.mode() & 0o222 == 0) {
            return Err(Error::ReadOnly {
                path: self.path.as_str().to_owned(),
            });
        }
        stop.check()?;
        let fail = |action| move |errno| Error::system(action, self.path, errno);
        let (temporary, mut file) =
            Temporary::create(&self.dir, old.is_none()).map_err(fail("write"))?;
        file.write_all(content)
            .map_err(|error| Error::io("write", self.path, &error))?;
        if let Some(old) = old {
            // Only a privileged process can give a file away; everybody else owns what they replace or becomes its owner.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
            let mode = Mode::from_bits_truncate(old.mode() & 0o777);
            fchmod(&file, mode).map_err(fail("write"))?;
        }
        file.sync_all()
            .map_err(|error| Error::io("write", self.path, &error))?;
        stop.check()?;
        self.require_unchanged(old)?;
        renameat(&self.dir, temporary.name.as_str(), &self.dir, self.name)
            .map_err(fail("write"))?;
        temporary.is_renamed.set(true);
        fsync(&self.dir).map_err(fail("write"))
    }

    /// Makes durable what stands here already: whoever put it here may have been killed before it did.
    pub(crate) fn keep(&self, current: &Current) -> Result<(), Error> {
        current
            .file
            .sync_all()
            .map_err(|error| Error::io("write", self.path, &error))?;
        fsync(&self.dir).map_err(|errno| Error::system("write", self.path, errno))
    }

    /// Other programs may write here too; this narrows the time in which their work could be lost to an instant.
    fn require_unchanged(&self, old: Option<&Metadata>) -> Result<(), Error> {
        let now = match open_beneath(&self.dir, self.name, OFlag::O_PATH, Mode::empty()) {
            Ok(handle) => Some(
                nix::sys::stat::fstat(handle)
                    .map_err(|errno| Error::system("look at", self.path, errno))?,
            ),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(Error::system("look at", self.path, errno)),
        };
        let is_same = match (old, &now) {
            (None, None) => true,
            (Some(old), Some(now)) => is_same(old, now),
            _ => false,
        };
        if is_same { Ok(()) } else { Err(self.changed()) }
    }

    /// What stands here is not what the caller thinks.
    pub(crate) fn changed(&self) -> Error {
        Error::Changed {
            path: self.path.as_str().to_owned(),
        }
    }

    /// The file has, or would have, this many bytes.
    pub(crate) fn too_large(&self, bytes: u64) -> Error {
        Error::TooLarge {
            path: self.path.as_str().to_owned(),
            bytes,
        }
    }
}

fn is_same(old: &Metadata, now: &FileStat) -> bool {
    Kind::of(now) == Kind::File
        && (old.dev(), old.ino()) == (now.st_dev, now.st_ino)
        && old.size() == u64::try_from(now.st_size).unwrap_or(u64::MAX)
        && (old.mtime(), old.mtime_nsec()) == (now.st_mtime, now.st_mtime_nsec)
}

fn lock(dir: impl AsFd, name: &str) -> Result<MutexGuard<'static, ()>, Errno> {
    let stat = nix::sys::stat::fstat(dir)?;
    let digest = teamster_protocol::Digest::of_fields(&[
        &stat.st_dev.to_be_bytes(),
        &stat.st_ino.to_be_bytes(),
        name.as_bytes(),
    ]);
    let [first, ..] = digest.as_bytes();
    let stripe = WRITERS
        .get(usize::from(*first) % WRITERS.len())
        .ok_or(Errno::EIO)?;
    // The lock guards no data, so a writer that panicked leaves nothing broken behind.
    Ok(stripe.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes the directories of `path` that are missing, each in the one above that is already open.
fn make_dirs(root: &Root, path: &RelPath) -> Result<Dir, Error> {
    let mut here = RelPath::root();
    let mut dir = root.dir(&here)?;
    for segment in path.segments() {
        here = here.join(segment);
        let fail = |errno| Error::system("make", &here, errno);
        match mkdirat(&dir, segment, Mode::from_bits_truncate(0o777)) {
            Ok(()) => fsync(&dir).map_err(fail)?,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(fail(errno)),
        }
        dir = root::open_dir(&dir, segment).map_err(fail)?;
    }
    Ok(dir)
}

/// New content on its way. Removed when dropped, unless it was renamed to its place.
struct Temporary<'a> {
    dir: &'a Dir,
    name: String,
    is_renamed: std::cell::Cell<bool>,
}

impl<'a> Temporary<'a> {
    fn create(dir: &'a Dir, is_new: bool) -> Result<(Self, File), Errno> {
        // A new file gets the permissions that the process's mask leaves; others get those of the file they replace.
        let mode = Mode::from_bits_truncate(if is_new { 0o666 } else { 0o600 });
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut outcome = Err(Errno::EEXIST);
        for _ in 0..TEMPORARY_TRIES_MAX {
            // Hash keys are the randomness that the standard library has.
            let random = RandomState::new().build_hasher().finish();
            let name = format!("{TEMPORARY_PREFIX}{random:016x}{TEMPORARY_SUFFIX}");
            outcome = open_beneath(dir, name.as_str(), flags, mode).map(|fd: OwnedFd| {
                let is_renamed = std::cell::Cell::new(false);
                let temporary = Self {
                    dir,
                    name,
                    is_renamed,
                };
                (temporary, File::from(fd))
            });
            if !matches!(outcome, Err(Errno::EEXIST)) {
                break;
            }
        }
        outcome
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_renamed.get() {
            // What cannot be removed stays as a file that no function shows.
            let _ = unlinkat(self.dir, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}
