//! `fs::edit`: one place in a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract, Digest, limits};

use crate::{
    error::Error,
    functions::{contract as contract_of, with_near_name, written_path},
    pool::Job,
    replace::{self, Miss},
    store::Place,
};

/// What to change.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The file, relative to the workspace, for example `docs/notes.md`.
    #[schemars(length(min = 1))]
    pub(crate) path: String,
    /// The text to replace, exactly as it stands in the file, white space included. It must stand there once.
    pub(crate) old: String,
    /// What to put in its place; empty removes it.
    pub(crate) new: String,
    /// Whether to replace every place where `old` stands. Default: no.
    #[serde(default)]
    pub(crate) replace_all: bool,
    /// Edits only if the file still has this SHA-256 (from `fs::read`).
    #[serde(default)]
    pub(crate) expected_sha256: Option<Digest>,
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// The path as it was taken.
    pub(crate) path: String,
    /// Places that were changed.
    pub(crate) replacements: u64,
    /// The line of the first of them, from 1.
    pub(crate) line: u64,
    /// Bytes of the file now.
    pub(crate) bytes: u64,
    /// SHA-256 of its content now.
    pub(crate) sha256: Digest,
}

/// The contract of `fs::edit`.
///
/// Not idempotent: where `new` contains `old`, a repetition would change the file again, and a repetition that no longer
/// finds `old` cannot tell whether the first run succeeded or never ran.
pub(crate) fn contract() -> Contract {
    contract_of::<Request, Reply>(
        "fs::edit",
        Class::Write,
        "Replaces one exact piece of text in a file of the workspace. Fails without a change if the piece is missing or not \
         unique.",
    )
}

/// Edits.
pub(crate) fn edit(job: &Job, request: &Request) -> Result<Reply, Error> {
    if request.old.is_empty() {
        return Err(Error::Request(
            "`old` is empty; to write a whole file use fs::write",
        ));
    }
    if request.old == request.new {
        return Err(Error::Request(
            "`old` and `new` are equal, so there is nothing to change",
        ));
    }
    let path = written_path(job, &request.path)?;
    let place =
        Place::find(&job.root, &path, false).map_err(|error| with_near_name(job, &path, error))?;
    let Some(old) = place.current(limits::FS_WRITE_BYTES_MAX as u64)? else {
        let path_text = path.as_str().to_owned();
        let missing = Error::NotFound {
            path: path_text,
            near: None,
        };
        return Err(with_near_name(job, &path, missing));
    };
    if let Some(expected) = request.expected_sha256
        && Digest::of(&old.content) != expected
    {
        return Err(place.changed());
    }
    let text = std::str::from_utf8(&old.content)
        .ok()
        .filter(|text| !text.contains('\0'))
        .ok_or_else(|| Error::NotText {
            path: path.as_str().to_owned(),
        })?;
    let done = replace::replace(
        text,
        &request.old,
        &request.new,
        request.replace_all,
        limits::FS_WRITE_BYTES_MAX,
    )
    .map_err(|miss| match miss {
        Miss::Place(why) => Error::NoMatch {
            path: path.as_str().to_owned(),
            why,
        },
        Miss::TooLarge(bytes) => place.too_large(bytes),
    })?;
    place.put(done.text.as_bytes(), Some(&old.meta), &job.stop)?;
    Ok(Reply {
        path: path.as_str().to_owned(),
        replacements: done.count as u64,
        line: done.line as u64,
        bytes: done.text.len() as u64,
        sha256: Digest::of(&done.text),
    })
}
