//! References to secrets, and the removal of secrets from text.
//!
//! Owns: `env:NAME`, `file:/path` and `none`, resolved at use into a `SecretString`. Invariants: what a reference stands
//! for is in no log, error, `Debug` output or answer; nor is what looks like a key in a provider's words.
//!
//! Never: keeping a secret longer than one request.

mod alike;
mod forms;

use std::{fmt, path::PathBuf};

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

/// Bytes of a key file; a longer one holds something else.
const FILE_BYTES_MAX: u64 = 16 * 1024;
/// What stands where a secret stood.
const MASK: &str = "[redacted]";

/// Where a secret is found: `env:NAME`, `file:/path` or `none`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Reference {
    /// Nowhere: no secret is needed.
    None,
    /// In an environment variable of the router's process.
    Env(String),
    /// In a file that holds nothing else.
    File(PathBuf),
}

/// A text that is no reference. The text is not repeated: it may be the secret itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret is given by reference: `env:NAME`, `file:/path` or `none`, never by its own text"
)]
pub struct ParseError;

/// Why a secret cannot be had. It names the reference, which is no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is wrong.
    pub problem: String,
    /// What the user should do.
    pub hint: String,
}

impl Reference {
    /// Reads a reference.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => {
                Ok(Self::Env(name.to_owned()))
            }
            Some(("file", path)) if path.starts_with('/') => Ok(Self::File(PathBuf::from(path))),
            _ => Err(ParseError),
        }
    }

    /// The secret, read now. `env` looks a variable up.
    pub async fn resolve(
        &self,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<SecretString>, Missing> {
        let secret = match self {
            Self::None => return Ok(None),
            Self::Env(name) => env(name).unwrap_or_default(),
            Self::File(path) => read(path).await.map_err(|error| Missing {
                problem: format!("the key file {} cannot be read: {error}", path.display()),
                hint: format!("put the key into {}", path.display()),
            })?,
        };
        let secret = secret.trim();
        if secret.is_empty() {
            return Err(self.missing());
        }
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Missing {
                problem: format!("what {self} holds cannot be a key"),
                hint: format!("{self} must hold the key alone, on one line"),
            });
        }
        Ok(Some(SecretString::from(secret)))
    }

    fn missing(&self) -> Missing {
        match self {
            Self::Env(name) => Missing {
                problem: format!("the environment variable {name} is not set"),
                hint: format!(
                    "set {name} where the router runs, or name another `key` in its configuration"
                ),
            },
            Self::File(_) | Self::None => Missing {
                problem: format!("{self} is empty"),
                hint: format!("put the key into {self}"),
            },
        }
    }
}

async fn read(path: &std::path::Path) -> std::io::Result<String> {
    if tokio::fs::metadata(path).await?.len() > FILE_BYTES_MAX {
        return Err(std::io::Error::other("it is too large for a key"));
    }
    tokio::fs::read_to_string(path).await
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

impl TryFrom<String> for Reference {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        Self::parse(&text)
    }
}

/// `text`, which a provider said about a request, without any of `secrets` and without what looks like a secret of somebody.
pub fn scrub<'a>(text: &str, secrets: impl IntoIterator<Item = &'a SecretString>) -> String {
    let text = secrets.into_iter().fold(text.to_owned(), |text, secret| {
        match secret.expose_secret() {
            "" => text,
            secret => forms::of(secret)
                .iter()
                .fold(text, |text, form| text.replace(form.as_str(), MASK)),
        }
    });
    alike::mask(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_back_and_secrets_are_refused() {
        for text in ["none", "env:OPENAI_API_KEY", "file:/run/secrets/key"] {
            assert_eq!(Reference::parse(text).expect(text).to_string(), text);
        }
        for bad in ["", "sk-abc123", "env:", "file:key", "env:A=B", "None"] {
            let error = Reference::parse(bad).expect_err(bad);
            assert!(!error.to_string().contains("sk-abc123"));
        }
    }

    #[tokio::test]
    async fn a_missing_key_names_its_variable() {
        let reference = Reference::parse("env:SOME_KEY").expect("valid");
        let missing = reference.resolve(|_| None).await.expect_err("missing");
        assert!(missing.problem.contains("SOME_KEY") && missing.hint.contains("SOME_KEY"));
        let found = reference
            .resolve(|name| Some(format!(" {name}-value\n")))
            .await;
        let found = found.expect("set").expect("a key");
        assert_eq!(found.expose_secret(), "SOME_KEY-value");
        let odd = reference.resolve(|_| Some("two words".to_owned())).await;
        assert!(!odd.expect_err("no key").problem.contains("two words"));
    }

    #[tokio::test]
    async fn a_key_file_is_read_at_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        let reference = Reference::File(path.clone());
        assert!(reference.resolve(|_| None).await.is_err());
        std::fs::write(&path, "k1\n").expect("written");
        let key = reference
            .resolve(|_| None)
            .await
            .expect("read")
            .expect("a key");
        assert_eq!(key.expose_secret(), "k1");
        assert!(!format!("{key:?}").contains("k1"));
    }

    #[test]
    fn a_secret_that_a_provider_repeats_is_masked() {
        let secret = SecretString::from("sk-1234");
        let text = scrub("Incorrect API key provided: sk-1234.", [&secret]);
        assert_eq!(text, "Incorrect API key provided: [redacted].");
    }
}
