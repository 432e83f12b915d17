//! `fs::grep`: which lines match a regular expression.

use std::{fmt::Write as _, fs::File, io::Read, ops::ControlFlow};

use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract, limits};

use crate::{
    budget::Budget,
    error::Error,
    functions::{contract as contract_of, items_max, list::here, open_path, with_near_name},
    page::SNIFF_BYTES,
    path::RelPath,
    pattern::{self, Glob},
    pool::Job,
    root::Kind,
    stop::Stop,
    text::{self, Lines},
    walk::{self, LeftOut, Options},
};

/// Matches of an answer when the request states nothing.
const ITEMS_DEFAULT: usize = 100;
/// Lines around a match that an answer may show on each side.
const CONTEXT_MAX: usize = 10;
/// Lines searched between two looks at the clock.
const LINES_PER_CHECK: u64 = 4096;

/// What to search for.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// A regular expression (Rust syntax: no look-around, no back-references), matched against one line at a time.
    pub(crate) pattern: String,
    /// The directory or file to search, relative to the workspace. Default: the workspace itself.
    #[serde(default = "here")]
    pub(crate) path: String,
    /// Only files that match this glob, for example `*.rs` or `src/**/*.rs`.
    #[serde(default)]
    pub(crate) glob: Option<String>,
    /// Whether letters match in either case. Default: no.
    #[serde(default)]
    pub(crate) ignore_case: bool,
    /// Lines to show before and after each match, up to 10. Default: 0.
    #[serde(default)]
    pub(crate) context: Option<u32>,
    /// At most this many matches, up to 1000. Default: 100.
    #[serde(default)]
    pub(crate) max: Option<u32>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// The matching lines, in the order of paths and lines.
    pub(crate) matches: Vec<Match>,
    /// Files that were searched.
    pub(crate) files_searched: u64,
    /// Whether there are more matches than these.
    pub(crate) truncated: bool,
    /// How many, what was left out, and whether that is all.
    pub(crate) summary: String,
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Match {
    /// The file, relative to the workspace.
    pub(crate) path: String,
    /// The line's number, from 1.
    pub(crate) line: u64,
    /// The line; a long one is cut around the match.
    pub(crate) text: String,
    /// The lines before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<String>,
    /// The lines after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<String>,
}

/// The contract of `fs::grep`.
pub(crate) fn contract() -> Contract {
    contract_of::<Request, Reply>(
        "fs::grep",
        Class::Read,
        "Searches the text files of the workspace for lines that match a regular expression. Skips binary and very large files \
         and `.git` (unless `path` lies there), and follows no symbolic links.",
    )
}

/// Searches.
pub(crate) fn grep(job: &Job, request: &Request) -> Result<Reply, Error> {
    let path = open_path(job, &request.path)?;
    let glob = request.glob.as_deref().map(Glob::new).transpose()?;
    let context = request
        .context
        .map_or(0, |context| usize::try_from(context).unwrap_or(CONTEXT_MAX));
    let stop = job.stop.within(limits::FS_SEARCH_MAX);
    let mut search = Search {
        regex: pattern::regex(&request.pattern, request.ignore_case)?,
        context: context.min(CONTEXT_MAX),
        items_max: items_max(request.max, ITEMS_DEFAULT),
        budget: Budget::of_answer(),
        stop: &stop,
        buffer: Vec::new(),
        matches: Vec::new(),
        skipped: Skipped::default(),
        files: 0,
    };
    let kind = job
        .root
        .kind(&path)
        .map_err(|error| with_near_name(job, &path, error))?;
    let (left_out, end) = if kind == Kind::Directory {
        search.directory(job, &path, glob.as_ref())?
    } else {
        let (file, _) = job.root.file(&path)?;
        let end = match search.file(file, &path) {
            ControlFlow::Break(end) => Some(end),
            ControlFlow::Continue(()) => None,
        };
        (LeftOut::default(), end)
    };
    if let Some(End::Cancelled) = end {
        return Err(Error::Cancelled);
    }
    Ok(search.reply(&left_out, end.as_ref()))
}

/// Why a search ended before it was through.
enum End {
    /// The answer is full.
    Full,
    /// The time is over.
    Time,
    /// Nobody wants the answer.
    Cancelled,
}

/// Files that were not searched.
#[derive(Debug, Default)]
struct Skipped {
    binary: u64,
    large: u64,
    unreadable: u64,
}

struct Search<'a> {
    regex: Regex,
    context: usize,
    items_max: usize,
    budget: Budget,
    stop: &'a Stop,
    buffer: Vec<u8>,
    matches: Vec<Match>,
    skipped: Skipped,
    files: u64,
}

impl Search<'_> {
    fn directory(
        &mut self,
        job: &Job,
        path: &RelPath,
        glob: Option<&Glob>,
    ) -> Result<(LeftOut, Option<End>), Error> {
        let options = Options {
            protected: &job.protected,
            depth: limits::FS_DEPTH_MAX,
            enters_git: path.is_in_git(),
            after: None,
            stop: self.stop,
        };
        let mut end = None;
        let left_out = walk::walk(job.root.dir(path)?, path, &options, |entry| {
            let is_meant =
                entry.kind == Kind::File && glob.is_none_or(|glob| glob.is_match(entry.path, path));
            if !is_meant {
                return ControlFlow::Continue(());
            }
            let Ok((file, _)) = entry.open() else {
                self.skipped.unreadable += 1;
                return ControlFlow::Continue(());
            };
            match self.file(file, entry.path) {
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
                ControlFlow::Break(why) => {
                    end = Some(why);
                    ControlFlow::Break(())
                }
            }
        })?;
        Ok((left_out, end))
    }

    fn file(&mut self, file: File, path: &RelPath) -> ControlFlow<End> {
        self.buffer.clear();
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = match file
            .take(limits::FS_GREP_BYTES_MAX + 1)
            .read_to_end(&mut buffer)
        {
            Err(_) => {
                self.skipped.unreadable += 1;
                ControlFlow::Continue(())
            }
            Ok(_) if buffer.iter().take(SNIFF_BYTES).any(|byte| *byte == 0) => {
                self.skipped.binary += 1;
                ControlFlow::Continue(())
            }
            Ok(_) if buffer.len() as u64 > limits::FS_GREP_BYTES_MAX => {
                self.skipped.large += 1;
                ControlFlow::Continue(())
            }
            Ok(_) => {
                self.files += 1;
                self.lines(&buffer, path)
            }
        };
        self.buffer = buffer;
        outcome
    }

    fn lines(&mut self, content: &[u8], path: &RelPath) -> ControlFlow<End> {
        for (number, line) in (1..).zip(Lines::of(content)) {
            if number % LINES_PER_CHECK == 0 {
                match self.stop.check() {
                    Ok(()) => {}
                    Err(Error::Cancelled) => return ControlFlow::Break(End::Cancelled),
                    Err(_) => return ControlFlow::Break(End::Time),
                }
            }
            let Some(found) = self.regex.find(line.bytes) else {
                continue;
            };
            let excerpt = text::around(line.bytes, found.range(), limits::FS_LINE_BYTES_MAX);
            let whole = |line: &[u8]| text::around(line, 0..0, limits::FS_LINE_BYTES_MAX);
            let item = Match {
                path: path.as_str().to_owned(),
                line: number,
                text: excerpt,
                before: text::lines_before(content, line.start, self.context)
                    .into_iter()
                    .map(whole)
                    .collect(),
                after: Lines::of(content.get(line.end..).unwrap_or_default())
                    .take(self.context)
                    .map(|line| whole(line.bytes))
                    .collect(),
            };
            if !self.add(item) {
                return ControlFlow::Break(End::Full);
            }
        }
        ControlFlow::Continue(())
    }

    fn add(&mut self, mut item: Match) -> bool {
        if self.matches.len() == self.items_max {
            return false;
        }
        if !self.budget.take(&item) {
            // The first match is always shown, if need be without the lines around it.
            item.before.clear();
            item.after.clear();
            if !self.matches.is_empty() || !self.budget.take(&item) {
                return false;
            }
        }
        self.matches.push(item);
        true
    }

    fn reply(self, left_out: &LeftOut, end: Option<&End>) -> Reply {
        let truncated = matches!(end, Some(End::Full));
        let is_timed_out = matches!(end, Some(End::Time));
        let ending = if truncated {
            "more follow: narrow `pattern`, `path` or `glob`"
        } else if is_timed_out || left_out.cut.is_some() {
            "not all"
        } else {
            "complete"
        };
        let mut summary = format!(
            "{} matches in {} files searched, {ending}",
            self.matches.len(),
            self.files
        );
        for (count, what) in [
            (self.skipped.binary, "binary"),
            (self.skipped.large, "larger than 8 MiB"),
            (self.skipped.unreadable, "unreadable"),
        ] {
            if count > 0 {
                let _ = write!(summary, "; {count} {what} not searched");
            }
        }
        if is_timed_out {
            summary.push_str("; INCOMPLETE because the time for one search was over");
        }
        summary.push_str(&left_out.sentence());
        Reply {
            matches: self.matches,
            files_searched: self.files,
            truncated,
            summary,
        }
    }
}
