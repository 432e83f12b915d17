//! `fs::write`: a file's whole content.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract, Digest, limits};

use crate::{
    error::Error,
    functions::{contract as contract_of, written_path},
    pool::Job,
    store::Place,
};

/// What to write.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The file, relative to the workspace, for example `docs/notes.md`.
    #[schemars(length(min = 1))]
    pub(crate) path: String,
    /// The whole content; what was there before is replaced.
    pub(crate) content: String,
    /// Whether to make the directories above the file that are missing. Default: no.
    #[serde(default)]
    pub(crate) create_dirs: bool,
    /// Writes only if the file still has this SHA-256 (from `fs::read`), so that nobody's change in between is lost.
    #[serde(default)]
    pub(crate) expected_sha256: Option<Digest>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// The path as it was taken.
    pub(crate) path: String,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// SHA-256 of its content.
    pub(crate) sha256: Digest,
    /// Whether the file is new.
    pub(crate) created: bool,
    /// Whether anything was written; false where the file had this content already.
    pub(crate) changed: bool,
}

/// The contract of `fs::write`.
///
/// Idempotent: a repetition puts the same bytes to the same place, and writes nothing where they already are, so after a
/// crash the call simply runs again. Between the lost call and its repetition (seconds) another program's change of the
/// same file would be replaced, just as it would have been by a call that came later; `expected_sha256` excludes that too.
pub(crate) fn contract() -> Contract {
    let mut contract = contract_of::<Request, Reply>(
        "fs::write",
        Class::Write,
        "Writes a whole file of the workspace, replacing what was there. For a change inside a file use `fs::edit`.",
    );
    contract.idempotent = true;
    contract
}

/// Writes.
pub(crate) fn write(job: &Job, request: &Request) -> Result<Reply, Error> {
    let path = written_path(job, &request.path)?;
    let content = request.content.as_bytes();
    let sha256 = Digest::of(content);
    let place =
        Place::find(&job.root, &path, request.create_dirs).map_err(|error| match error {
            Error::NotFound { path, .. } => Error::NoDirectory { path },
            error => error,
        })?;
    if content.len() > limits::FS_WRITE_BYTES_MAX {
        return Err(place.too_large(content.len() as u64));
    }
    let reply = |created, changed| Reply {
        path: path.as_str().to_owned(),
        bytes: content.len() as u64,
        sha256,
        created,
        changed,
    };
    let state = place.state()?;
    let is_compared = request.expected_sha256.is_some()
        || state
            .as_ref()
            .is_some_and(|state| state.len() == content.len() as u64);
    let mut old = state;
    if is_compared {
        let current = place.current(limits::FS_DIGEST_BYTES_MAX)?;
        if let Some(same) = current.as_ref().filter(|old| old.content == content) {
            // Also the answer to a repetition whose first run replaced what the request expects.
            place.keep(same)?;
            return Ok(reply(false, false));
        }
        let found = current.as_ref().map(|old| Digest::of(&old.content));
        if request.expected_sha256.is_some() && found != request.expected_sha256 {
            return Err(place.changed());
        }
        old = current.map(|old| old.meta);
    }
    let is_new = old.is_none();
    place.put(content, old.as_ref(), &job.stop)?;
    Ok(reply(is_new, true))
}
