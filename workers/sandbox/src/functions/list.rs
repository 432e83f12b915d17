//! `fs::list`: what lies in a directory.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract, limits};

use crate::{
    budget::Budget,
    error::Error,
    functions::{contract as contract_of, items_max, open_path, with_near_name},
    path::RelPath,
    pool::Job,
    root::Kind,
    walk::{self, Options},
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
    let items_max = items_max(request.max, ITEMS_DEFAULT);
    let depth = request
        .depth
        .map_or(1, |depth| usize::try_from(depth).unwrap_or(DEPTH_MAX));
    let stop = job.stop.within(limits::FS_SEARCH_MAX);
    let options = Options {
        protected: &job.protected,
        depth: depth.clamp(1, DEPTH_MAX),
        enters_git: path.is_in_git(),
        after: request.after.as_deref().map(RelPath::parse).transpose()?,
        stop: &stop,
    };
    let dir = job
        .root
        .dir(&path)
        .map_err(|error| with_near_name(job, &path, error))?;
    let mut entries: Vec<Item> = Vec::new();
    let mut budget = Budget::of_answer();
    let mut truncated = false;
    let left_out = walk::walk(dir, &path, &options, |entry| {
        let bytes = match entry.kind {
            Kind::File => entry
                .stat()
                .and_then(|stat| u64::try_from(stat.st_size).ok()),
            _ => None,
        };
        let item = Item {
            path: entry.path.as_str().to_owned(),
            kind: entry.kind,
            bytes,
        };
        if entries.len() == items_max || !budget.take(&item) {
            truncated = true;
            return ControlFlow::Break(());
        }
        entries.push(item);
        ControlFlow::Continue(())
    })?;
    let end = if truncated {
        "more follow: call again with `after` = `next`"
    } else if left_out.cut.is_some() {
        "not all"
    } else {
        "complete"
    };
    Ok(Reply {
        path: path.as_str().to_owned(),
        summary: format!("{} entries, {end}{}", entries.len(), left_out.sentence()),
        next: entries
            .last()
            .filter(|_| truncated)
            .map(|last| last.path.clone()),
        entries,
        truncated,
    })
}
