//! `fs::find`: which paths match a glob.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract, limits};

use crate::{
    error::Error,
    functions::{
        contract as contract_of,
        found::{Wanted, page},
        list::here,
        open_path,
    },
    pattern::Glob,
    pool::Job,
    root::Kind,
};

/// Paths of an answer when the request states nothing.
const ITEMS_DEFAULT: usize = 200;

/// What to find.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// A glob. Without `/` it is matched against names (`*.rs`), with `/` against paths (`src/**/*.rs`). `*` stays within one
    /// name, `**` spans directories, `{a,b}` is either.
    pub(crate) glob: String,
    /// The directory to search, relative to the workspace. Default: the workspace itself.
    #[serde(default = "here")]
    pub(crate) path: String,
    /// At most this many paths, up to 1000. Default: 200.
    #[serde(default)]
    pub(crate) max: Option<u32>,
    /// Goes on after this path: the `next` of the answer before.
    #[serde(default)]
    pub(crate) after: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// The paths in order, relative to the workspace; directories end in `/`.
    pub(crate) paths: Vec<String>,
    /// Whether more paths follow.
    pub(crate) truncated: bool,
    /// `after` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// How many, and whether that is all.
    pub(crate) summary: String,
}

/// The contract of `fs::find`.
pub(crate) fn contract() -> Contract {
    contract_of::<Request, Reply>(
        "fs::find",
        Class::Read,
        "Finds files and directories of the workspace whose name or path matches a glob. Does not look into `.git` unless \
         `path` lies there, and follows no symbolic links.",
    )
}

/// Finds.
pub(crate) fn find(job: &Job, request: &Request) -> Result<Reply, Error> {
    let path = open_path(job, &request.path)?;
    let glob = Glob::new(&request.glob)?;
    let wanted = Wanted {
        path: &path,
        depth: limits::FS_DEPTH_MAX,
        max: request.max,
        max_default: ITEMS_DEFAULT,
        after: request.after.as_deref(),
        noun: "paths",
    };
    let page = page(job, &wanted, |entry| {
        let slash = if entry.kind == Kind::Directory {
            "/"
        } else {
            ""
        };
        glob.is_match(entry.path, &path)
            .then(|| format!("{}{slash}", entry.path.as_str()))
    })?;
    Ok(Reply {
        summary: page.summary,
        next: page.items.last().filter(|_| page.truncated).cloned(),
        paths: page.items,
        truncated: page.truncated,
    })
}
