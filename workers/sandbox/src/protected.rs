//! Which files are neither opened nor named.

use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::policy::SECRET_TARGETS;

use crate::{error::Error, path::RelPath};

/// A compiled list of globs over paths relative to the workspace root.
///
/// Letters match in either case, and a directory that matches protects all that lies below it: where two readings of a
/// glob are possible, this takes the one that hides more.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
#[schemars(with = "Vec<String>")]
pub struct Protected {
    globs: Vec<String>,
    /// `None` protects everything.
    set: Option<Arc<GlobSet>>,
}

impl Protected {
    /// Compiles `globs`.
    pub fn new(globs: Vec<String>) -> Result<Self, Error> {
        let set = Some(Arc::new(compile(&globs)?));
        Ok(Self { globs, set })
    }

    /// Whether `path` or a directory above it matches.
    pub(crate) fn holds(&self, path: &RelPath) -> bool {
        path.ancestors().any(|prefix| self.matches(prefix))
    }

    /// Whether the last segment's own path matches. Enough where the directories above were judged already.
    pub(crate) fn holds_entry(&self, path: &RelPath) -> bool {
        self.matches(path.as_str())
    }

    /// Whether this path itself matches, whatever lies above it.
    pub(crate) fn matches(&self, path: &str) -> bool {
        self.set.as_ref().is_none_or(|set| set.is_match(path))
    }
}

fn compile(globs: &[String]) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let compiled = GlobBuilder::new(glob)
            .literal_separator(true)
            .case_insensitive(true)
            .build()
            .map_err(Error::Protected)?;
        set.add(compiled);
    }
    set.build().map_err(Error::Protected)
}

impl Default for Protected {
    fn default() -> Self {
        let globs = SECRET_TARGETS.map(str::to_owned).to_vec();
        let set = compile(&globs).ok().map(Arc::new);
        Self { globs, set }
    }
}

impl PartialEq for Protected {
    fn eq(&self, other: &Self) -> bool {
        self.globs == other.globs
    }
}

impl Eq for Protected {}

impl From<Protected> for Vec<String> {
    fn from(protected: Protected) -> Self {
        protected.globs
    }
}

impl TryFrom<Vec<String>> for Protected {
    type Error = Error;

    fn try_from(globs: Vec<String>) -> Result<Self, Error> {
        Self::new(globs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).expect(text)
    }

    #[test]
    fn the_default_protects_secret_files_wherever_they_lie() {
        let protected = Protected::default();
        assert_eq!(
            Vec::from(protected.clone()),
            SECRET_TARGETS.map(str::to_owned)
        );
        for held in [
            ".env",
            "a/b/.env",
            ".ENV",
            "tls/server.pem",
            "id_rsa",
            ".ssh/id_rsa.pub",
            "deep/er/x.KEY",
            "vault.key/notes.md",
            ".env.local",
            "prod.env",
            ".envrc",
            "app/.env.production",
            ".netrc",
            ".aws/credentials",
            ".ssh/config",
            "id_ed25519",
            ".env.bak",
            ".env~",
            "credentials/operator.creds",
            "user.nk",
            ".dockercfg",
            ".vault-token",
            ".cargo/credentials.toml",
            ".config/gh/hosts.yml",
            ".config/gcloud/application_default_credentials.json",
        ] {
            assert!(protected.holds(&path(held)), "{held}");
        }
        for free in [
            ".",
            "env",
            ".env.example",
            "environment.md",
            "pem/notes.md",
            "src/key.rs",
            "aws/notes.md",
            ".cargo/config.toml",
            ".config/gh/config.yml",
            "src/creds.rs",
        ] {
            assert!(!protected.holds(&path(free)), "{free}");
        }
    }

    #[test]
    fn a_glob_of_a_directory_protects_what_lies_below() {
        let protected = Protected::new(vec!["private/**".into(), "**/.ssh".into()]).expect("valid");
        for held in ["private/a", "private/a/b", "home/.ssh", "home/.ssh/config"] {
            assert!(protected.holds(&path(held)), "{held}");
        }
        assert!(!protected.holds(&path("privateer/a")));
        assert!(Protected::new(vec!["a{".into()]).is_err());
    }
}
