//! Walking a directory tree: from descriptor to descriptor, in order, bounded, past no link.

use std::{collections::VecDeque, ffi::CString, fmt::Write as _, ops::ControlFlow, os::fd::AsFd};

use nix::{dir::Dir, dir::Type, sys::stat::FileStat};
use teamster_protocol::limits;

use crate::{
    error::Error,
    path::RelPath,
    protected::Protected,
    root::{self, Kind},
    stop::Stop,
    store::is_temporary,
};

/// What a walk does.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    /// What is neither named nor entered.
    pub(crate) protected: &'a Protected,
    /// Levels below the beginning; at most `limits::FS_DEPTH_MAX`.
    pub(crate) depth: usize,
    /// Whether git's own directory is entered.
    pub(crate) enters_git: bool,
    /// Everything up to and including this path is left out.
    pub(crate) after: Option<RelPath>,
    /// When to end.
    pub(crate) stop: &'a Stop,
}

/// What a walk left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Protected entries.
    pub(crate) protected: u64,
    /// Entries whose name is not UTF-8 or too long, so that no path names them.
    pub(crate) unnameable: u64,
    /// Directories that could not be read.
    pub(crate) unreadable: u64,
    /// Why the walk ended before it was through.
    pub(crate) cut: Option<&'static str>,
}

/// One entry that a walk found.
pub(crate) struct Entry<'a> {
    /// Its path.
    pub(crate) path: &'a RelPath,
    /// What it is.
    pub(crate) kind: Kind,
    dir: &'a Dir,
    name: &'a CString,
}

impl Entry<'_> {
    /// Its state, without opening it.
    pub(crate) fn stat(&self) -> Option<FileStat> {
        root::stat_entry(self.dir, self.name).ok()
    }

    /// Opens it as a regular file.
    pub(crate) fn open(&self) -> Result<(std::fs::File, std::fs::Metadata), Error> {
        root::open_file(self.dir.as_fd(), self.name.as_c_str(), self.path)
    }
}

/// One directory of the walk's way down.
struct Level {
    dir: Dir,
    path: RelPath,
    entries: VecDeque<(String, CString, Kind)>,
}

/// Visits what lies below `base`, a directory that was opened at that path: each directory before what is in it, names in
/// the order of their bytes. Ends when `visit` breaks, at a bound (`LeftOut::cut`), or with [`Error::Cancelled`].
pub(crate) fn walk(
    base: Dir,
    path: &RelPath,
    options: &Options<'_>,
    mut visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
) -> Result<LeftOut, Error> {
    let mut left_out = LeftOut::default();
    let mut seen = 0;
    let mut levels = vec![open_level(
        base,
        path.clone(),
        &mut seen,
        &mut left_out,
        options,
    )?];
    while let Some(level) = levels.last_mut() {
        let Some((name, raw, kind)) = level.entries.pop_front() else {
            levels.pop();
            continue;
        };
        match options.stop.check() {
            Err(Error::Time) => {
                left_out.cut = Some("the time for one search was over");
                return Ok(left_out);
            }
            other => other?,
        }
        let path = level.path.join(&name);
        if path.as_str().len() > limits::FS_PATH_BYTES_MAX {
            left_out.unnameable += 1;
            continue;
        }
        if options.protected.holds_entry(&path) {
            left_out.protected += 1;
            continue;
        }
        if options.after.as_ref().is_none_or(|after| path > *after) {
            let entry = Entry {
                path: &path,
                kind,
                dir: &level.dir,
                name: &raw,
            };
            if visit(&entry).is_break() {
                return Ok(left_out);
            }
        } else if is_passed(&path, options) {
            continue;
        }
        let is_entered =
            kind == Kind::Directory && (options.enters_git || !name.eq_ignore_ascii_case(".git"));
        if !is_entered || levels.len() >= options.depth {
            if is_entered && options.depth >= limits::FS_DEPTH_MAX {
                left_out.cut = Some("directories lie deeper than 64 levels");
            }
            continue;
        }
        // The borrow of the level ended with the entry; the child is opened from its own parent.
        let child = levels
            .last()
            .map(|level| root::open_dir(&level.dir, raw.as_c_str()));
        match child {
            Some(Ok(dir)) => levels.push(open_level(dir, path, &mut seen, &mut left_out, options)?),
            _ => left_out.unreadable += 1,
        }
    }
    Ok(left_out)
}

/// Whether the whole tree at `path`, which is not after the mark, lies before it.
fn is_passed(path: &RelPath, options: &Options<'_>) -> bool {
    options
        .after
        .as_ref()
        .is_some_and(|after| after != path && after.below(path).is_none())
}

fn open_level(
    mut dir: Dir,
    path: RelPath,
    seen: &mut usize,
    left_out: &mut LeftOut,
    options: &Options<'_>,
) -> Result<Level, Error> {
    let mut found = Vec::new();
    let mut untyped = Vec::new();
    for entry in dir.iter() {
        if *seen >= limits::FS_WALK_ENTRIES_MAX {
            left_out.cut = Some("there are more entries than one search looks at");
            break;
        }
        if options.stop.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let Ok(entry) = entry else {
            left_out.unreadable += 1;
            break;
        };
        let raw = entry.file_name();
        if matches!(raw.to_bytes(), b"." | b"..") {
            continue;
        }
        *seen += 1;
        let Some(name) = raw
            .to_str()
            .ok()
            .filter(|name| !name.chars().any(char::is_control))
        else {
            left_out.unnameable += 1;
            continue;
        };
        if is_temporary(name) {
            continue;
        }
        match entry.file_type() {
            Some(kind) => found.push((name.to_owned(), raw.to_owned(), kind_of(kind))),
            None => untyped.push((name.to_owned(), raw.to_owned())),
        }
    }
    // Some file systems do not say what an entry is.
    found.extend(untyped.into_iter().map(|(name, raw)| {
        let kind = root::stat_entry(&dir, &raw).map_or(Kind::Other, |stat| Kind::of(&stat));
        (name, raw, kind)
    }));
    found.sort_unstable_by(|one, two| one.0.as_bytes().cmp(two.0.as_bytes()));
    Ok(Level {
        dir,
        path,
        entries: found.into(),
    })
}

fn kind_of(kind: Type) -> Kind {
    match kind {
        Type::File => Kind::File,
        Type::Directory => Kind::Directory,
        Type::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

impl LeftOut {
    /// What a summary says about it; empty if nothing was left out.
    pub(crate) fn sentence(&self) -> String {
        let mut text = String::new();
        for (count, what) in [
            (self.protected, "protected"),
            (self.unnameable, "with unusable names"),
            (self.unreadable, "unreadable"),
        ] {
            if count > 0 {
                let _ = write!(text, "; {count} {what} left out");
            }
        }
        if let Some(cut) = self.cut {
            let _ = write!(text, "; INCOMPLETE because {cut}: name a narrower `path`");
        }
        text
    }
}
