//! References to values that are too large for a commit: stored by their digest before the commit that names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// A stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// SHA-256 of its bytes: its name.
    pub sha256: Digest,
    /// Its length, in bytes; at most `BLOB_BYTES_MAX`.
    pub bytes: u64,
}

impl BlobRef {
    /// The reference of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            sha256: Digest::of(bytes),
            bytes: bytes.len() as u64,
        }
    }
}
