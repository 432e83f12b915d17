//! SHA-256 of exact bytes, written as 64 lower-case hexadecimal digits.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("minLength" = 64, "maxLength" = 64))]
pub struct Digest([u8; 32]);

/// A text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits")]
pub struct ParseError;

impl Digest {
    /// The digest before the first commit of a session: 32 zero bytes.
    pub const ZERO: Self = Self([0; 32]);

    /// Digests `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes.as_ref()).into())
    }

    /// Digests a list of fields so that no two different lists share their input: each field is preceded by its length.
    pub fn of_fields(fields: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for field in fields {
            hasher.update((field.len() as u64).to_be_bytes());
            hasher.update(field);
        }
        Self(hasher.finalize().into())
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first twelve digits, for people.
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// From raw bytes, where they were digested piece by piece.
impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else {
                return Err(ParseError);
            };
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Result<u8, ParseError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(ParseError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_text_is_read_back() {
        let digest = Digest::of("abc");
        assert_eq!(
            digest.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            Digest::try_from(digest.to_string()).expect("parses"),
            digest
        );
        for bad in ["", "BA", &"A".repeat(64), &"0".repeat(63), &"g".repeat(64)] {
            assert!(Digest::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(
            Digest::of_fields(&[b"ab", b"c"]),
            Digest::of_fields(&[b"a", b"bc"])
        );
    }
}
