//! `fs::read`: one page of a file.

use std::{fs::File, os::unix::fs::FileExt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::{Class, Contract, Digest, limits};

use crate::{
    budget::{Budget, json_bytes},
    error::Error,
    functions::{contract as contract_of, open_path, with_near_name},
    page::{self, Fit, SNIFF_BYTES, WINDOW_BYTES},
    path::RelPath,
    pool::Job,
};

/// What to read.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The file, relative to the workspace, for example `docs/notes.md`.
    pub(crate) path: String,
    /// The first line wanted, from 1. Default: 1.
    #[serde(default)]
    pub(crate) offset_line: Option<u64>,
    /// How many lines at most. Default: as many as fit into one answer.
    #[serde(default)]
    pub(crate) limit_lines: Option<u64>,
    /// Where to begin in bytes, instead of `offset_line`: the `next_byte` of the answer before. The way through very long
    /// lines and very large files.
    #[serde(default)]
    pub(crate) offset_byte: Option<u64>,
}

/// What the file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// Text: one page of it.
    Text {
        /// The path as it was taken.
        path: String,
        /// Bytes of the whole file.
        bytes: u64,
        /// The page, exactly as it stands in the file.
        content: String,
        /// Number of the page's first line, from 1; absent after `offset_byte`.
        #[serde(skip_serializing_if = "Option::is_none")]
        first_line: Option<u64>,
        /// Lines on the page.
        lines: u64,
        /// Lines of the whole file, where they were counted.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_lines: Option<u64>,
        /// SHA-256 of the whole file, where it was read whole: `expected_sha256` of a later change.
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<Digest>,
        /// Whether the file goes on after this page.
        truncated: bool,
        /// `offset_line` of the next page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next_line: Option<u64>,
        /// `offset_byte` of the next page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next_byte: Option<u64>,
        /// What is worth knowing about the page.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// No text; its content is not shown.
    Binary {
        /// The path as it was taken.
        path: String,
        /// Bytes of the whole file.
        bytes: u64,
        /// What to know about it.
        note: String,
    },
    /// The wanted line lies further in the file than lines are counted; pages by `offset_byte` go on.
    TooLarge {
        /// The path as it was taken.
        path: String,
        /// Bytes of the whole file.
        bytes: u64,
        /// How to go on.
        note: String,
    },
}

/// The contract of `fs::read`.
pub(crate) fn contract() -> Contract {
    contract_of::<Request, Reply>(
        "fs::read",
        Class::Read,
        "Reads a text file of the workspace, one page at a time. Binary files are reported, not shown. Where `truncated` is \
         true, call again with `offset_line` = `next_line` (or `offset_byte` = `next_byte`).",
    )
}

/// Reads one page.
pub(crate) fn read(job: &Job, request: &Request) -> Result<Reply, Error> {
    if request.offset_byte.is_some() && request.offset_line.is_some() {
        return Err(Error::Request(
            "`offset_line` and `offset_byte` exclude each other; give one of them",
        ));
    }
    if request.offset_line == Some(0) || request.limit_lines == Some(0) {
        return Err(Error::Request(
            "`offset_line` and `limit_lines` count from 1",
        ));
    }
    let path = open_path(job, &request.path)?;
    let (mut file, meta) = job
        .root
        .file(&path)
        .map_err(|error| with_near_name(job, &path, error))?;
    let fail = |error: &std::io::Error| Error::io("read", &path, error);
    let mut beginning = vec![0; SNIFF_BYTES];
    let count = file
        .read_at(&mut beginning, 0)
        .map_err(|error| fail(&error))?;
    beginning.truncate(count);
    if beginning.contains(&0) {
        return Ok(binary(&path, meta.len(), &beginning));
    }
    match request.offset_byte {
        Some(offset) => by_byte(&file, &path, meta.len(), offset, request.limit_lines)
            .map_err(|error| fail(&error)),
        None => by_line(job, &mut file, &path, meta.len(), request),
    }
}

fn binary(path: &RelPath, bytes: u64, beginning: &[u8]) -> Reply {
    let what = if beginning.starts_with(b"\xff\xfe") || beginning.starts_with(b"\xfe\xff") {
        "the file is UTF-16 text, which is not shown; convert it to UTF-8 first"
    } else {
        "the file is binary; its content is not shown"
    };
    Reply::Binary {
        path: path.as_str().to_owned(),
        bytes,
        note: what.to_owned(),
    }
}

fn by_line(
    job: &Job,
    file: &mut File,
    path: &RelPath,
    bytes: u64,
    request: &Request,
) -> Result<Reply, Error> {
    let line = request.offset_line.unwrap_or(1);
    let is_whole = bytes <= limits::FS_DIGEST_BYTES_MAX;
    let scan = page::scan(
        file,
        line,
        is_whole,
        limits::FS_SCAN_BYTES_MAX,
        || job.stop.check(),
        |error| Error::io("read", path, &error),
    )?;
    let (total_lines, sha256) = scan.whole.map(|whole| (whole.lines, whole.sha256)).unzip();
    let Some(start) = scan.start else {
        return Ok(beyond(path, bytes, total_lines, sha256, line));
    };
    let fit = page::fit(
        &scan.window,
        page_budget(path),
        request.limit_lines.unwrap_or(u64::MAX),
        scan.is_end,
    );
    let is_at_end = scan.is_end && fit.bytes == scan.window.len();
    let page = Page {
        start,
        first_line: Some(line),
        is_at_end,
        is_counted: is_whole,
    };
    Ok(page.reply(path, bytes, fit, total_lines, sha256))
}

/// The answer where the wanted line was not found.
fn beyond(
    path: &RelPath,
    bytes: u64,
    total_lines: Option<u64>,
    sha256: Option<Digest>,
    line: u64,
) -> Reply {
    let path = path.as_str().to_owned();
    let Some(total) = total_lines else {
        return Reply::TooLarge {
            path,
            bytes,
            note: format!(
                "line {line} was not found in the first {} bytes of this file; read it with `offset_byte`, from 0 to {bytes}",
                bytes.min(limits::FS_SCAN_BYTES_MAX)
            ),
        };
    };
    Reply::Text {
        path,
        bytes,
        content: String::new(),
        first_line: Some(line),
        lines: 0,
        total_lines,
        sha256,
        truncated: false,
        next_line: None,
        next_byte: None,
        note: Some(format!(
            "the file has {total} lines; there is no line {line}"
        )),
    }
}

fn by_byte(
    file: &File,
    path: &RelPath,
    bytes: u64,
    offset: u64,
    limit_lines: Option<u64>,
) -> std::io::Result<Reply> {
    let mut window = vec![0; WINDOW_BYTES];
    let mut filled = 0;
    while let Some(rest) = window.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let is_end = filled < WINDOW_BYTES;
    window.truncate(filled);
    // An offset in the middle of a character begins at the next one.
    let skipped = window
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80)
        .count();
    let from = if offset == 0 { 0 } else { skipped };
    let window = window.get(from..).unwrap_or_default();
    let fit = page::fit(
        window,
        page_budget(path),
        limit_lines.unwrap_or(u64::MAX),
        is_end,
    );
    let page = Page {
        start: offset.saturating_add(from as u64),
        first_line: None,
        is_at_end: is_end && fit.bytes == window.len(),
        is_counted: true,
    };
    Ok(page.reply(path, bytes, fit, None, None))
}

/// Bytes that the content may take as JSON.
fn page_budget(path: &RelPath) -> usize {
    let named: usize = path.as_str().chars().map(json_bytes).sum();
    Budget::of_answer().left().saturating_sub(named)
}

/// Where a page lies.
struct Page {
    start: u64,
    first_line: Option<u64>,
    is_at_end: bool,
    /// Whether the lines of a file that is read by line were counted to its end.
    is_counted: bool,
}

impl Page {
    fn reply(
        self,
        path: &RelPath,
        bytes: u64,
        fit: Fit,
        total_lines: Option<u64>,
        sha256: Option<Digest>,
    ) -> Reply {
        let newlines = fit.text.bytes().filter(|byte| *byte == b'\n').count() as u64;
        let ends_in_line = !fit.text.is_empty() && !fit.text.ends_with('\n');
        let truncated = !self.is_at_end;
        let mut notes = Vec::new();
        if bytes == 0 {
            notes.push("the file is empty");
        }
        if fit.is_lossy {
            notes.push("bytes that are not UTF-8 are shown as U+FFFD");
        }
        if truncated && ends_in_line {
            notes.push(
                "the page ends inside a long line; `offset_byte` = `next_byte` goes on there",
            );
        }
        if !self.is_counted {
            notes.push("the file is too large to count its lines");
        }
        Reply::Text {
            path: path.as_str().to_owned(),
            bytes,
            first_line: self.first_line,
            lines: newlines + u64::from(ends_in_line),
            total_lines,
            sha256,
            truncated,
            next_line: self
                .first_line
                .filter(|_| truncated && !ends_in_line)
                .map(|first| first + newlines),
            next_byte: truncated.then(|| self.start + fit.bytes as u64),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            content: fit.text,
        }
    }
}
