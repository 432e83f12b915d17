//! What a search looks for: globs over paths, regular expressions over lines.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use regex::bytes::{Regex, RegexBuilder};
use teamster_protocol::limits;

use crate::{error::Error, path::RelPath};

/// A glob: without `/` it is matched against names, with `/` against whole paths. `*` stays within one name, `**` spans
/// directories.
#[derive(Debug)]
pub(crate) struct Glob {
    set: GlobSet,
    is_of_names: bool,
}

impl Glob {
    /// Compiles what a model wrote.
    pub(crate) fn new(text: &str) -> Result<Self, Error> {
        let fail = |why: String| Error::Pattern { what: "glob", why };
        check_length("glob", text)?;
        let text = text.strip_prefix("./").unwrap_or(text);
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .build()
            .map_err(|error| fail(error.to_string()))?;
        // A set of one, because compiling it can fail; the single matcher panics instead.
        let set = GlobSetBuilder::new()
            .add(glob)
            .build()
            .map_err(|error| fail(error.to_string()))?;
        Ok(Self {
            set,
            is_of_names: !text.contains('/'),
        })
    }

    /// Whether `path`, found in a search of `base`, is meant. A glob of paths may begin at `base` or at the workspace.
    pub(crate) fn is_match(&self, path: &RelPath, base: &RelPath) -> bool {
        if self.is_of_names {
            return path
                .split()
                .is_some_and(|(_, name)| self.set.is_match(name));
        }
        self.set.is_match(path.as_str())
            || path
                .below(base)
                .is_some_and(|below| self.set.is_match(below))
    }
}

/// Compiles a regular expression that is matched against one line at a time. It needs time in proportion to the text.
pub(crate) fn regex(pattern: &str, ignore_case: bool) -> Result<Regex, Error> {
    check_length("pattern", pattern)?;
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .size_limit(limits::FS_PATTERN_COMPILED_BYTES_MAX)
        .dfa_size_limit(limits::FS_PATTERN_COMPILED_BYTES_MAX)
        .build()
        .map_err(|error| Error::Pattern {
            what: "pattern",
            why: teamster_protocol::text::cut(&error.to_string(), 600),
        })
}

fn check_length(what: &'static str, text: &str) -> Result<(), Error> {
    let why = match text.len() {
        0 => "it is empty",
        bytes if bytes > limits::FS_PATTERN_BYTES_MAX => "it is longer than 1024 bytes",
        _ => return Ok(()),
    };
    Err(Error::Pattern {
        what,
        why: why.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_means_names_or_paths() {
        let base = RelPath::parse("crates/x").expect("valid");
        for (glob, path, want) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "crates/x/src/a.rs", true),
            ("*.rs", "a.rs.txt", false),
            ("src/*.rs", "crates/x/src/a.rs", true),
            ("src/*.rs", "crates/x/src/b/a.rs", false),
            ("src/**/*.rs", "crates/x/src/b/a.rs", true),
            ("crates/**", "crates/x/src/a.rs", true),
            ("./crates/*/src/?.{rs,md}", "crates/x/src/a.md", true),
            ("*", "文件.md", true),
            ("src", "crates/x/src", true),
        ] {
            let path = RelPath::parse(path).expect("valid");
            let compiled = Glob::new(glob).expect(glob);
            assert_eq!(compiled.is_match(&path, &base), want, "{glob} {path:?}");
        }
    }

    #[test]
    fn patterns_that_are_wrong_or_too_large_are_refused() {
        let long = "a".repeat(1025);
        for glob in ["", "a{b", "[", long.as_str()] {
            assert!(Glob::new(glob).is_err(), "{glob:?}");
        }
        for pattern in ["", "(", "a{1000}{1000}", r"\p{L}{900}{90}", long.as_str()] {
            assert!(regex(pattern, false).is_err(), "{pattern:?}");
        }
        assert!(regex("É", true).expect("valid").is_match("é".as_bytes()));
    }
}
