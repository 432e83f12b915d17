//! What of a workspace a command does not see, or sees and cannot change.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::CString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use nix::dir::{Dir, Type};
use teamster_protocol::limits;

use super::Error;
use crate::{
    path::RelPath,
    protected::Protected,
    root::{Kind, Root, open_dir, stat_entry},
    stage::frame::{Cover, Mask},
    stop::Stop,
};

/// Levels of directories that are looked at; deeper ones refuse the command.
const DEPTH_MAX: usize = 200;

/// Git's own directory: what is written there can run as a program of the user.
const GIT: &str = ".git";

/// Everything in the workspace that is protected: secret files hidden, the directories by whose names they are secret pinned, git's
/// directories read-only. Directories come before what lies in them. An error if not all of it can be looked at, since what was not
/// seen would not be hidden.
pub(super) fn find(root: &Root, protected: &Protected, stop: &Stop) -> Result<Vec<Mask>, Error> {
    let mut walk = Walk {
        protected,
        stop,
        seen: 0,
        masks: Vec::new(),
        pins: BTreeSet::new(),
    };
    let base = root.dir(&RelPath::root())?;
    let mut levels = vec![(Vec::new(), walk.entries(base, &[])?)];
    while let Some((path, (dir, entries))) = levels.last_mut() {
        let Some(entry) = entries.pop() else {
            levels.pop();
            continue;
        };
        let mut below = path.clone();
        if !below.is_empty() {
            below.push(b'/');
        }
        below.extend_from_slice(entry.to_bytes());
        // A directory that cannot be opened cannot be opened by the command either: it is the same user.
        let Ok(child) = open_dir(&*dir, entry.as_c_str()) else {
            continue;
        };
        if levels.len() >= DEPTH_MAX {
            return Err(Error::TooLarge("directories lie deeper than 200 levels"));
        }
        let found = walk.entries(child, &below)?;
        levels.push((below, found));
    }
    let pins = walk.pins.into_iter().map(|path| Mask {
        path,
        cover: Cover::Pinned,
    });
    Ok(pins.chain(walk.masks).collect())
}

/// The directories above a hidden path without whose names it would not be hidden, each whole, outermost first: what lies in
/// `.aws` is secret by that name, what is called `.env` is so wherever it lies.
fn pins(protected: &Protected, path: &[u8]) -> Vec<Vec<u8>> {
    // A directory that no glob names.
    const ELSEWHERE: &[u8] = b"\x01";
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let is_enough = |first: &usize| {
        let named = parts.get(*first..).unwrap_or_default();
        let moved = [&[ELSEWHERE], named].concat().join(&b'/');
        protected.matches(&String::from_utf8_lossy(&moved))
    };
    let needed = (0..parts.len()).rev().find(is_enough).unwrap_or(0);
    (needed + 1..parts.len())
        .map(|end| parts.get(..end).unwrap_or_default().join(&b'/'))
        .collect()
}

struct Walk<'a> {
    protected: &'a Protected,
    stop: &'a Stop,
    seen: usize,
    masks: Vec<Mask>,
    pins: BTreeSet<Vec<u8>>,
}

impl Walk<'_> {
    /// The directories of `dir` that are to be entered. What is protected is noted and not entered.
    fn entries(&mut self, mut dir: Dir, path: &[u8]) -> Result<(Dir, Vec<CString>), Error> {
        let mut directories = Vec::new();
        let mut untyped = Vec::new();
        for entry in dir.iter() {
            self.stop.check()?;
            let Ok(entry) = entry else {
                return Err(Error::TooLarge("a directory could not be read to its end"));
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.seen += 1;
            if self.seen > limits::EXEC_WALK_ENTRIES_MAX {
                return Err(Error::TooLarge("it has more than a million entries"));
            }
            if self.protect(path, name.to_bytes())? {
                continue;
            }
            match entry.file_type() {
                Some(Type::Directory) => directories.push(name.to_owned()),
                Some(_) => {}
                None => untyped.push(name.to_owned()),
            }
        }
        // Some file systems do not say what an entry is.
        untyped.retain(|name| {
            stat_entry(&dir, name).is_ok_and(|stat| Kind::of(&stat) == Kind::Directory)
        });
        directories.append(&mut untyped);
        Ok((dir, directories))
    }

    /// Notes an entry that is protected.
    fn protect(&mut self, path: &[u8], name: &[u8]) -> Result<bool, Error> {
        let is_git = name.eq_ignore_ascii_case(GIT.as_bytes());
        let mut whole = path.to_vec();
        if !whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(name);
        // A name that is not text is matched by its readable part.
        let is_hidden = !is_git && self.protected.matches(&String::from_utf8_lossy(&whole));
        if !is_git && !is_hidden {
            return Ok(false);
        }
        if is_hidden {
            self.pins.extend(pins(self.protected, &whole));
        }
        if self.masks.len() + self.pins.len() >= limits::EXEC_MASKS_MAX {
            return Err(Error::TooLarge("more than 2048 files must be hidden"));
        }
        self.masks.push(Mask {
            path: whole,
            cover: if is_hidden {
                Cover::Hidden
            } else {
                Cover::ReadOnly
            },
        });
        Ok(true)
    }
}

/// Empty directories named `.git` that stand in workspaces without one while commands run there. Something read-only is
/// mounted over them, so that no command makes a repository whose hooks the user's git would run.
#[derive(Debug, Clone, Default)]
pub(super) struct Placeholders(Arc<Mutex<HashMap<PathBuf, usize>>>);

impl Placeholders {
    /// Makes one unless there is something of that name.
    pub(super) fn hold(&self, workspace: &str) -> Result<Placeholder, Error> {
        let path = Path::new(workspace).join(GIT);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get_mut(&path) {
            Some(count) => *count += 1,
            None => match std::fs::create_dir(&path) {
                Ok(()) => drop(held.insert(path.clone(), 1)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(crate::Error::Workspace(error).into()),
            },
        }
        drop(held);
        Ok(Placeholder {
            path,
            all: self.clone(),
        })
    }
}

/// One command's share in a placeholder; the last one removes it.
#[derive(Debug)]
pub(super) struct Placeholder {
    path: PathBuf,
    all: Placeholders,
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        let mut held = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = held.get_mut(&self.path) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            held.remove(&self.path);
            // Only an empty one goes: whatever the user put there meanwhile stays.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_pinned_where_its_name_is_what_hides() {
        let protected = Protected::default();
        let cases: [(&str, &[&str]); 6] = [
            (".env", &[]),
            ("a/b/.env", &[]),
            (".aws/credentials", &[".aws"]),
            ("a/.aws/cli/cache", &["a/.aws", "a/.aws/cli"]),
            ("home/.kube/config", &["home/.kube"]),
            (".ssh/id_rsa", &[]),
        ];
        for (path, want) in cases {
            let found = pins(&protected, path.as_bytes());
            let want: Vec<Vec<u8>> = want.iter().map(|path| path.as_bytes().to_vec()).collect();
            assert_eq!(found, want, "{path}");
        }
        let anchored = Protected::new(vec!["conf/secret/*".to_owned()]).expect("valid");
        assert_eq!(
            pins(&anchored, b"conf/secret/x"),
            [b"conf".to_vec(), b"conf/secret".to_vec()],
            "its place is what hides"
        );
    }
}
