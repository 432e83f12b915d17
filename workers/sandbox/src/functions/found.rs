//! One page of what lies below a directory: what `fs::list` and `fs::find` have in common.

use std::ops::ControlFlow;

use serde::Serialize;
use teamster_protocol::limits;

use crate::{
    budget::Budget,
    error::Error,
    functions::{items_max, with_near_name},
    path::RelPath,
    pool::Job,
    walk::{self, Entry, Options},
};

/// What of a directory is asked for.
pub(super) struct Wanted<'a> {
    /// The directory, which may be opened.
    pub(super) path: &'a RelPath,
    /// How many levels below it.
    pub(super) depth: usize,
    /// How many items at most, as asked for.
    pub(super) max: Option<u32>,
    /// How many where nothing was asked for.
    pub(super) max_default: usize,
    /// The last path of the page before.
    pub(super) after: Option<&'a str>,
    /// What the items are, for the summary.
    pub(super) noun: &'static str,
}

/// A page.
pub(super) struct Page<Item> {
    /// The items in order.
    pub(super) items: Vec<Item>,
    /// Whether more follow.
    pub(super) truncated: bool,
    /// How many, and whether that is all.
    pub(super) summary: String,
}

/// Walks, and keeps what `pick` makes of an entry, as much as one answer holds.
pub(super) fn page<Item: Serialize>(
    job: &Job,
    wanted: &Wanted<'_>,
    mut pick: impl FnMut(&Entry<'_>) -> Option<Item>,
) -> Result<Page<Item>, Error> {
    let most = items_max(wanted.max, wanted.max_default);
    let stop = job.stop.within(limits::FS_SEARCH_MAX);
    let options = Options {
        protected: &job.protected,
        depth: wanted.depth,
        enters_git: wanted.path.is_in_git(),
        after: wanted.after.map(RelPath::parse).transpose()?,
        stop: &stop,
    };
    let dir = job
        .root
        .dir(wanted.path)
        .map_err(|error| with_near_name(job, wanted.path, error))?;
    let mut items = Vec::new();
    let mut budget = Budget::of_answer();
    let mut truncated = false;
    let left_out = walk::walk(dir, wanted.path, &options, |entry| {
        let Some(item) = pick(entry) else {
            return ControlFlow::Continue(());
        };
        if items.len() == most || !budget.take(&item) {
            truncated = true;
            return ControlFlow::Break(());
        }
        items.push(item);
        ControlFlow::Continue(())
    })?;
    let end = if truncated {
        "more follow: call again with `after` = `next`"
    } else if left_out.cut.is_some() {
        "not all"
    } else {
        "complete"
    };
    let (count, noun, rest) = (items.len(), wanted.noun, left_out.sentence());
    Ok(Page {
        items,
        truncated,
        summary: format!("{count} {noun}, {end}{rest}"),
    })
}
