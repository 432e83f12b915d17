//! Paths that a model names: relative to the workspace root, and written in one way only.

use teamster_protocol::limits;

use crate::error::Error;

/// A path below the workspace root without `.`, `..` and empty segments, or the root itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RelPath(String);

impl RelPath {
    /// Checks what a model wrote. `.` segments and doubled slashes are dropped; `..`, absolute paths and control characters
    /// are refused, because what a person approves must be what is opened.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |rule| {
            Err(Error::Path {
                path: teamster_protocol::text::cut(text, 200),
                rule,
            })
        };
        if text.is_empty() {
            return refuse("it is empty; `.` is the workspace itself");
        }
        if text.len() > limits::FS_PATH_BYTES_MAX {
            return refuse("it is longer than 1024 bytes");
        }
        if text.starts_with('/') {
            return refuse(
                "paths are relative to the workspace, for example `docs/notes.md`; leave the leading `/` out",
            );
        }
        if text.chars().any(char::is_control) {
            return refuse("it holds a control character");
        }
        let mut path = String::with_capacity(text.len());
        for segment in text.split('/') {
            match segment {
                "" | "." => {}
                ".." => {
                    return refuse(
                        "`..` is not allowed; name the path from the workspace down, without `..`",
                    );
                }
                segment if segment.len() > 255 => {
                    return refuse("one of its names is longer than 255 bytes");
                }
                segment => {
                    if !path.is_empty() {
                        path.push('/');
                    }
                    path.push_str(segment);
                }
            }
        }
        Ok(Self(path))
    }

    /// The workspace itself.
    pub(crate) fn root() -> Self {
        Self(String::new())
    }

    /// Whether this is the workspace itself.
    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its text; `.` for the workspace itself.
    pub(crate) fn as_str(&self) -> &str {
        if self.0.is_empty() { "." } else { &self.0 }
    }

    /// Its segments, from the root down.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|segment| !segment.is_empty())
    }

    /// The path's own prefixes, from its first segment to itself; none for the root.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &str> {
        self.0
            .match_indices('/')
            .map(|(at, _)| at)
            .chain(std::iter::once(self.0.len()))
            .filter_map(|end| self.0.get(..end))
            .filter(|prefix| !prefix.is_empty())
    }

    /// The directory and the name in it; `None` for the root.
    pub(crate) fn split(&self) -> Option<(Self, &str)> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.rsplit_once('/') {
            Some((dir, name)) => (Self(dir.to_owned()), name),
            None => (Self::root(), &self.0),
        })
    }

    /// The path of an entry that was found in this directory.
    pub(crate) fn join(&self, name: &str) -> Self {
        if self.is_root() {
            Self(name.to_owned())
        } else {
            Self(format!("{}/{name}", self.0))
        }
    }

    /// The path as seen from `dir`, if it lies below it.
    pub(crate) fn below(&self, dir: &Self) -> Option<&str> {
        if dir.is_root() {
            return Some(&self.0);
        }
        self.0.strip_prefix(&dir.0)?.strip_prefix('/')
    }

    /// Whether git's own directory or pointer file is part of the path.
    pub(crate) fn is_in_git(&self) -> bool {
        self.segments()
            .any(|segment| segment.eq_ignore_ascii_case(".git"))
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of a walk: a directory, then what lies in it, names by their bytes.
impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.segments().cmp(other.segments())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sec_12_only_paths_below_the_workspace_are_taken() {
        for (text, want) in [
            (".", "."),
            ("./", "."),
            ("a", "a"),
            ("./a//b/./c/", "a/b/c"),
            ("...", "..."),
            ("a b/ü/文件.md", "a b/ü/文件.md"),
            ("~/x", "~/x"),
            ("..a/b..", "..a/b.."),
        ] {
            assert_eq!(RelPath::parse(text).expect(text).as_str(), want, "{text}");
        }
        let long = "a/".repeat(513);
        let wide = "a".repeat(256);
        for text in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/..",
            "a\0b",
            "a\nb",
            "a\u{9b}b",
            &long,
            &wide,
        ] {
            assert!(RelPath::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_path_knows_its_parts() {
        let path = RelPath::parse("a/b/c").expect("valid");
        assert_eq!(path.ancestors().collect::<Vec<_>>(), ["a", "a/b", "a/b/c"]);
        assert_eq!(RelPath::root().ancestors().count(), 0);
        let (dir, name) = path.split().expect("not the root");
        assert_eq!((dir.as_str(), name), ("a/b", "c"));
        assert_eq!(dir.join(name), path);
        assert_eq!(
            path.below(&RelPath::parse("a").expect("valid")),
            Some("b/c")
        );
        assert_eq!(path.below(&RelPath::parse("a/bb").expect("valid")), None);
        assert_eq!(path.below(&RelPath::root()), Some("a/b/c"));
        assert!(RelPath::parse("x/.GIT/hooks").expect("valid").is_in_git());
        assert!(!RelPath::parse(".github/x").expect("valid").is_in_git());
    }

    proptest! {
        #[test]
        fn what_is_taken_has_no_way_up_and_is_taken_again(text in "[a./ é]{0,24}") {
            if let Ok(path) = RelPath::parse(&text) {
                prop_assert!(path.segments().all(|segment| segment != ".." && segment != "." && !segment.is_empty()));
                prop_assert!(!path.as_str().starts_with('/'));
                prop_assert_eq!(RelPath::parse(path.as_str()).expect("own form"), path);
            }
        }
    }
}
