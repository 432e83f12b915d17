//! `fs::find`: which paths match a glob.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract, limits};

use crate::{
    budget::Budget,
    error::Error,
    functions::{contract as contract_of, items_max, list::here, open_path, with_near_name},
    path::RelPath,
    pattern::Glob,
    pool::Job,
    root::Kind,
    walk::{self, Options},
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
    let items_max = items_max(request.max, ITEMS_DEFAULT);
    let stop = job.stop.within(limits::FS_SEARCH_MAX);
    let options = Options {
        protected: &job.protected,
        depth: limits::FS_DEPTH_MAX,
        enters_git: path.is_in_git(),
        after: request.after.as_deref().map(RelPath::parse).transpose()?,
        stop: &stop,
    };
    let dir = job
        .root
        .dir(&path)
        .map_err(|error| with_near_name(job, &path, error))?;
    let mut paths: Vec<String> = Vec::new();
    let mut budget = Budget::of_answer();
    let mut truncated = false;
    let left_out = walk::walk(dir, &path, &options, |entry| {
        if !glob.is_match(entry.path, &path) {
            return ControlFlow::Continue(());
        }
        let mut found = entry.path.as_str().to_owned();
        if entry.kind == Kind::Directory {
            found.push('/');
        }
        if paths.len() == items_max || !budget.take(&found) {
            truncated = true;
            return ControlFlow::Break(());
        }
        paths.push(found);
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
        summary: format!("{} paths, {end}{}", paths.len(), left_out.sentence()),
        next: paths.last().filter(|_| truncated).cloned(),
        paths,
        truncated,
    })
}
