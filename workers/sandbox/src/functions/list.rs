//! `fs::list`: what lies in a directory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract};

use crate::{
    error::Error,
    functions::{
        contract as contract_of,
        found::{Wanted, page},
        open_path,
    },
    pool::Job,
    root::Kind,
};

/// Levels that one listing may show.
const DEPTH_MAX: usize = 8;
/// Entries of a listing when the request states nothing.
const ITEMS_DEFAULT: usize = 500;

/// What to list.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The directory, relative to the workspace. Default: the workspace itself.
    #[serde(default = "here")]
    pub(crate) path: String,
    /// How many levels, 1 to 8. Default: 1.
    #[serde(default)]
    pub(crate) depth: Option<u32>,
    /// At most this many entries, up to 1000. Default: 500.
    #[serde(default)]
    pub(crate) max: Option<u32>,
    /// Goes on after this path: the `next` of the answer before.
    #[serde(default)]
    pub(crate) after: Option<String>,
}

/// The path of the workspace itself.
pub(super) fn here() -> String {
    ".".to_owned()
}

/// What lies there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// The directory as it was taken.
    pub(crate) path: String,
    /// Its entries in order, each directory before what is in it.
    pub(crate) entries: Vec<Item>,
    /// Whether more entries follow.
    pub(crate) truncated: bool,
    /// `after` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// How many, and whether that is all.
    pub(crate) summary: String,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Item {
    /// Its path, relative to the workspace.
    pub(crate) path: String,
    /// What it is.
    pub(crate) kind: Kind,
    /// Bytes, of a regular file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

/// The contract of `fs::list`.
pub(crate) fn contract() -> Contract {
    contract_of::<Request, Reply>(
        "fs::list",
        Class::Read,
        "Lists a directory of the workspace: path, kind and size of each entry, sorted. Symbolic links are shown but never \
         followed.",
    )
}

/// Lists.
pub(crate) fn list(job: &Job, request: &Request) -> Result<Reply, Error> {
    let path = open_path(job, &request.path)?;
    let depth = request
        .depth
        .map_or(1, |depth| usize::try_from(depth).unwrap_or(DEPTH_MAX));
    let wanted = Wanted {
        path: &path,
        depth: depth.clamp(1, DEPTH_MAX),
        max: request.max,
        max_default: ITEMS_DEFAULT,
        after: request.after.as_deref(),
        noun: "entries",
    };
    let page = page(job, &wanted, |entry| {
        let bytes = match entry.kind {
            Kind::File => entry
                .stat()
                .and_then(|stat| u64::try_from(stat.st_size).ok()),
            _ => None,
        };
        Some(Item {
            path: entry.path.as_str().to_owned(),
            kind: entry.kind,
            bytes,
        })
    })?;
    let last = page.items.last().filter(|_| page.truncated);
    Ok(Reply {
        path: path.as_str().to_owned(),
        summary: page.summary,
        next: last.map(|last| last.path.clone()),
        entries: page.items,
        truncated: page.truncated,
    })
}
