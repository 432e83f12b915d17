//! The target of a call: what its contract says the call is about, in one form for all rules.

use serde_json::Value;
use teamster_protocol::{Contract, limits, policy::Effect, text};

use super::{file::Targets, when::Match};

/// The last parts of pointers that mean a path.
const PATH_WORDS: [&str; 9] = [
    "path",
    "paths",
    "file",
    "files",
    "dir",
    "directory",
    "folder",
    "root",
    "cwd",
];
/// The namespaces whose targets are always paths.
const PATH_NAMESPACES: [&str; 2] = ["fs", "sandbox"];

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The contract names no target.
    None,
    /// Paths relative to the workspace; the workspace itself is empty.
    Paths(Vec<String>),
    /// A path that is not within the workspace, or that cannot be told to be: as it was written.
    Outside(String),
    /// Anything else: hosts, mail addresses, names.
    Texts(Vec<String>),
    /// Arguments whose target is of no form that rules can speak about.
    Unreadable,
}

impl Target {
    /// The target of a call of `contract` with these arguments. A target that is left out is the empty one: for a path,
    /// the workspace.
    pub(super) fn of(
        contract: &Contract,
        arguments: Option<&Value>,
        workspace: Option<&str>,
    ) -> Self {
        let Some(pointer) = contract.target.as_deref() else {
            return Self::None;
        };
        let Some(arguments) = arguments else {
            return Self::Unreadable;
        };
        let texts = match arguments.pointer(pointer) {
            None | Some(Value::Null) => vec![String::new()],
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(items)) => {
                match items.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
                    Some(items) if items.is_empty() => vec![String::new()],
                    Some(items) => items.into_iter().map(str::to_owned).collect(),
                    None => return Self::Unreadable,
                }
            }
            Some(_) => return Self::Unreadable,
        };
        if !is_path(contract, pointer) {
            return Self::Texts(texts);
        }
        let mut paths = Vec::with_capacity(texts.len());
        for text in texts {
            match within(&text, workspace) {
                Some(path) => paths.push(path),
                None => return Self::Outside(text),
            }
        }
        Self::Paths(paths)
    }

    /// Whether a rule with these globs and this effect speaks about the target. Denies and asks speak when one of several
    /// targets matches, an allow only when all do.
    pub(super) fn matches(&self, globs: &Targets, effect: Effect) -> Match {
        let is_allow = effect == Effect::Allow;
        let any_or_all = |targets: &[String], is_match: &dyn Fn(&str) -> bool| {
            let mut found = targets.iter().map(|target| is_match(target));
            Match::of(if is_allow {
                found.all(|one| one)
            } else {
                found.any(|one| one)
            })
        };
        match self {
            Self::None => Match::No,
            Self::Paths(paths) => any_or_all(paths, &|path| globs.is_match(path)),
            Self::Texts(texts) if is_allow => any_or_all(texts, &|text| globs.is_match(text)),
            Self::Texts(texts) => any_or_all(texts, &|text| globs.is_match_folded(text)),
            Self::Outside(_) | Self::Unreadable => Match::Unknown,
        }
    }

    /// The paths that it is about; none where it is about something else.
    pub(super) fn paths(&self) -> &[String] {
        match self {
            Self::Paths(paths) => paths,
            Self::None | Self::Outside(_) | Self::Texts(_) | Self::Unreadable => &[],
        }
    }

    /// The target as judgements show it.
    pub(super) fn shown(&self) -> Option<String> {
        let text = match self {
            Self::None | Self::Unreadable => return None,
            Self::Outside(path) => path.clone(),
            Self::Texts(texts) => texts.join(", "),
            Self::Paths(paths) => paths
                .iter()
                .map(|path| if path.is_empty() { "." } else { path })
                .collect::<Vec<_>>()
                .join(", "),
        };
        Some(text::cut(&text, limits::TARGET_TEXT_BYTES_MAX))
    }
}

fn is_path(contract: &Contract, pointer: &str) -> bool {
    let word = pointer.rsplit('/').next().unwrap_or_default();
    let word = word.rsplit('_').next().unwrap_or_default();
    PATH_NAMESPACES.contains(&contract.id.namespace()) || PATH_WORDS.contains(&word)
}

/// A path relative to the workspace, without `.` and empty parts. `None` where it is not within, has a part `..` or a NUL.
/// Links are not followed here: the functions that open files refuse them.
fn within(path: &str, workspace: Option<&str>) -> Option<String> {
    if path.contains('\0') {
        return None;
    }
    let mut parts = parts(path)?;
    if path.starts_with('/') {
        let root = self::parts(workspace.filter(|root| root.starts_with('/'))?)?;
        parts = parts.strip_prefix(root.as_slice())?.to_vec();
    }
    Some(parts.join("/"))
}

fn parts(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    (!parts.contains(&"..")).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_relative_to_the_workspace() {
        for (path, want) in [
            ("a/b", Some("a/b")),
            ("./a//b/.", Some("a/b")),
            ("", Some("")),
            (".", Some("")),
            ("/home/me/w/a", Some("a")),
            ("/home/me/w/", Some("")),
            ("//home/./me/w//a/", Some("a")),
            ("/home/me/w2/a", None),
            ("/home/me", None),
            ("/", None),
            ("/etc/passwd", None),
            ("../x", None),
            ("a/../b", None),
            ("/home/me/w/../w/a", None),
            ("a\0b", None),
            ("..a/b..", Some("..a/b..")),
            ("~/x", Some("~/x")),
        ] {
            assert_eq!(within(path, Some("/home/me/w")).as_deref(), want, "{path}");
        }
        assert_eq!(within("/a", None), None);
        assert_eq!(within("a", None).as_deref(), Some("a"));
        assert_eq!(within("/a", Some("relative")), None);
        assert_eq!(within("/a/b", Some("/")).as_deref(), Some("a/b"));
    }
}
