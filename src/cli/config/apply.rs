//! `teamster config apply`: what a file says, section by section, as what is set live in the mesh.
//!
//! Invariants: everything is checked before anything is written, by the code that puts it in force; each section is one write,
//! bound to the revision that was read; where one cannot be written, because somebody else was faster, those before it are taken
//! back, unless somebody has changed them since. So two files that are applied at once never leave the halves of both.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};
use teamster_core::display;
use teamster_protocol::{arguments::NoDuplicates, id::WorkerName, limits, text};

use super::{
    change::{person, refused, remembered, without},
    known,
    taken::{self, Taken},
};
use crate::{
    cli::{
        Global,
        exit::Exit,
        failure::Failure,
        output::Output,
        place,
        reach::{self, Absent},
    },
    client::Client,
    config::{Source, error::located, leaves, path, section::Kind},
};

/// Set what a file says, for whole sections.
///
/// The file is YAML with the sections of config.yaml. Of each section that stands in it the mesh holds exactly that afterwards;
/// other sections stay as they are, and `name: {}` takes away what is set. Applied again it changes nothing.
#[derive(Debug, Args)]
pub(in crate::cli) struct Apply {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Check everything and say what would change; write nothing
    #[arg(long)]
    dry_run: bool,
}

/// A section as it is to be.
struct Wanted {
    kind: &'static Kind,
    worker: WorkerName,
    tree: Value,
}

/// A section beside what is set now.
struct Planned {
    wanted: Wanted,
    /// The newest revision; 0 where nothing was ever set.
    revision: u64,
    /// What is set now, whether it can be read or not; `None` where nothing is.
    before: Option<Bytes>,
    is_changed: bool,
}

/// A section that was dealt with.
struct Done {
    planned: Planned,
    /// Its newest revision now.
    revision: u64,
    /// What its worker made of it; `None` where nothing was written.
    taken: Option<Taken>,
}

impl Done {
    fn section(&self) -> &'static str {
        self.planned.wanted.kind.name
    }
}

pub(super) async fn run(global: &Global, out: &Output, options: &Apply) -> Result<Exit, Failure> {
    let data = place::data_dir(global.data.as_deref())?;
    let wanted = read(&options.file, &data).map_err(|failure| match failure.hint {
        Some(_) => failure,
        None => failure.hint(
            "correct the file, then apply it again; `teamster config explain` shows each key with a value of the right form",
        ),
    })?;
    let client = reach::client(global, out, Absent::Resume).await?;
    let planned = plan(&client, wanted).await?;
    let mut done = write_all(&client, planned, options.dry_run).await?;
    let mut refused = Vec::new();
    for one in &mut done {
        if options.dry_run || !one.planned.is_changed {
            continue;
        }
        let (kind, section) = (one.planned.wanted.kind, one.section());
        let taken = taken::wait(&client, kind, one.revision).await?;
        match taken.or_refused(section, section) {
            Ok(taken) => one.taken = Some(taken),
            Err(failure) => refused.push(failure),
        }
    }
    if let Some(failure) = together(refused, &done) {
        return Err(failure);
    }
    report(out, options.dry_run, &done)
}

/// Writes the sections that change, all of them or none.
async fn write_all(
    client: &Client,
    planned: Vec<Planned>,
    dry_run: bool,
) -> Result<Vec<Done>, Failure> {
    let mut done: Vec<Done> = Vec::new();
    for planned in planned {
        let mut revision = planned.revision;
        if planned.is_changed && !dry_run {
            let Wanted { worker, tree, .. } = &planned.wanted;
            let body = body_of(tree);
            match write(client, worker, body, revision).await {
                Ok(written) => revision = written,
                Err(failure) => {
                    let left = take_back(client, &done).await;
                    return Err(half_done(failure, planned.wanted.kind.name, &left));
                }
            }
        }
        done.push(Done {
            planned,
            revision,
            taken: None,
        });
    }
    Ok(done)
}

/// Puts back what was set before, newest first; what somebody else has changed since is left as it is. Answers what is left of
/// what was written.
async fn take_back(client: &Client, done: &[Done]) -> Vec<String> {
    let mut left = Vec::new();
    for one in done.iter().rev().filter(|one| one.planned.is_changed) {
        let before = one.planned.before.clone();
        let worker = &one.planned.wanted.worker;
        if let Err(failure) = write(client, worker, before, one.revision).await {
            left.push(format!(
                "{} (revision {}: {})",
                one.section(),
                one.revision,
                failure.message
            ));
        }
    }
    left
}

/// Reads and checks the whole file.
fn read(file: &Path, data: &Path) -> Result<Vec<Wanted>, Failure> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).and_then(|opened| {
        // One byte more than allowed, so that a longer file is seen to be longer.
        opened
            .take(limits::YAML_BYTES_MAX as u64 + 1)
            .read_to_string(&mut text)
    });
    opened.map_err(|error| Failure::io("read", file, &error))?;
    let bad = |problem: String| {
        Failure::usage(
            "config.refused",
            format_args!("{}: {problem}; nothing was written", file.display()),
        )
    };
    if text.len() > limits::YAML_BYTES_MAX {
        let most = limits::YAML_BYTES_MAX;
        return Err(bad(format!("it has more than {most} bytes")));
    }
    let unread = |error: serde_yaml::Error| match located(&error) {
        (Some(line), problem) => bad(format!("line {line}: {problem}")),
        (None, problem) => bad(problem),
    };
    let tree: Option<Value> = serde_yaml::from_str(&text).map_err(unread)?;
    if tree.is_some() {
        // One of two values of a key would not count, and nobody would be told which.
        serde_yaml::from_str::<NoDuplicates>(&text).map_err(unread)?;
    }
    let sections = match tree.unwrap_or(Value::Null) {
        Value::Null => Map::new(),
        Value::Object(sections) => sections,
        _ => return Err(bad("it is no mapping of sections".to_owned())),
    };
    let config = Source::of_process(data).read()?.config;
    let mut wanted = Vec::new();
    for (name, tree) in sections {
        let (kind, _) = known::section(&[name])?;
        check(kind, &kind.of(&config), &tree).map_err(|mut failure| {
            failure.message = format!(
                "{}: {}; nothing was written",
                file.display(),
                failure.message
            );
            failure
        })?;
        wanted.push(Wanted {
            kind,
            worker: known::worker(kind)?,
            tree,
        });
    }
    Ok(wanted)
}

fn check(kind: &Kind, base: &Value, tree: &Value) -> Result<(), Failure> {
    let said =
        |problem: &str| Failure::usage("config.refused", format_args!("{}: {problem}", kind.name));
    if !tree.is_object() {
        return Err(said("it is no mapping; {} takes away what is set"));
    }
    let values = leaves(tree);
    if let Some((path, _)) = values.iter().find(|(_, value)| value.is_null()) {
        return Err(said(&format!("{} says nothing", path::join(path))));
    }
    let bytes = serde_json::to_vec(tree).map_or(usize::MAX, |bytes| bytes.len());
    if bytes > limits::CONFIG_BYTES_MAX {
        return Err(said(&format!(
            "{bytes} bytes; at most {} are kept",
            limits::CONFIG_BYTES_MAX
        )));
    }
    kind.check(base, tree).map_err(|problem| {
        let failure = refused(kind, &problem);
        // A secret may have been written where a reference belongs.
        values.iter().fold(failure, |failure, (path, value)| {
            let key = format!("{}.{}", kind.name, path::join(path));
            match value.as_str() {
                Some(text) => without(failure, text, &key),
                None => failure,
            }
        })
    })
}

/// Compares with what is set now.
async fn plan(client: &Client, wanted: Vec<Wanted>) -> Result<Vec<Planned>, Failure> {
    let mut planned = Vec::new();
    for wanted in wanted {
        let entry = client.mesh().configs().get(&wanted.worker).await?;
        let now = known::live_layer(entry.as_ref()).map(|layer| layer.tree);
        let is_there = entry.as_ref().is_some_and(|entry| entry.body.is_some());
        let is_changed = match now {
            Some(tree) => tree != wanted.tree,
            // What is there and cannot be read is replaced.
            None => is_there || wanted.tree != Value::Object(Map::new()),
        };
        planned.push(Planned {
            revision: entry.as_ref().map_or(0, |entry| entry.revision),
            before: entry.and_then(|entry| entry.body),
            is_changed,
            wanted,
        });
    }
    Ok(planned)
}

/// What is written for a section; nothing for an empty one, which is removed.
fn body_of(tree: &Value) -> Option<Bytes> {
    let is_empty = tree.as_object().is_some_and(Map::is_empty);
    (!is_empty).then(|| Bytes::from(serde_json::to_vec(tree).unwrap_or_default()))
}

/// Writes a section, or removes it, if `revision` is still its newest; its new revision.
async fn write(
    client: &Client,
    worker: &WorkerName,
    body: Option<Bytes>,
    revision: u64,
) -> Result<u64, Failure> {
    let (configs, by) = (client.mesh().configs(), person());
    let written = match body {
        None => configs.remove(worker, &by, Some(revision)).await?,
        Some(body) => configs.put(worker, body, &by, Some(revision)).await?,
    };
    written.ok_or_else(|| {
        Failure::new(
            Exit::TryAgain,
            "config.conflict",
            format_args!("somebody else has changed what is set for {worker}"),
        )
    })
}

/// Says of a write that failed what is left of those before it.
fn half_done(mut failure: Failure, section: &str, left: &[String]) -> Failure {
    let before = if left.is_empty() {
        "nothing of the file is set".to_owned()
    } else {
        format!("written before it and not taken back: {}", left.join(", "))
    };
    failure.message = format!("{section}: {}; {before}", failure.message);
    let section = text::operand(section);
    failure.hint(format_args!(
        "`teamster config history {section}` shows who and what; then apply the file again"
    ))
}

/// The refusals of several sections as one failure, with what is set all the same.
fn together(refused: Vec<Failure>, done: &[Done]) -> Option<Failure> {
    let messages: Vec<String> = refused
        .iter()
        .map(|failure| failure.message.clone())
        .collect();
    let mut first = refused.into_iter().next()?;
    let set: Vec<&str> = done
        .iter()
        .filter(|one| one.taken.is_some())
        .map(Done::section)
        .collect();
    first.message = messages.join("; ");
    if !set.is_empty() {
        first.message = format!("{}; set and taken: {}", first.message, set.join(", "));
    }
    Some(first)
}

fn report(out: &Output, dry_run: bool, done: &[Done]) -> Result<Exit, Failure> {
    if out.is_text() {
        for one in done {
            let what = match (&one.taken, one.planned.is_changed, dry_run) {
                (_, false, _) => "as it should be".to_owned(),
                (_, true, true) => "would be changed".to_owned(),
                (_, true, false) => format!("set (revision {})", one.revision),
            };
            out.line(&format!("{:<14} {what}", display::terminal(one.section())))?;
        }
    } else {
        let sections: Vec<Value> = done
            .iter()
            .map(|one| {
                json!({
                    "section": one.section(),
                    "changed": one.planned.is_changed,
                    "revision": one.revision,
                    "in_force": one.taken.as_ref().map(Taken::is_in_force),
                    "processes": one.taken.as_ref().map(Taken::document),
                })
            })
            .collect();
        out.document(&json!({ "v": 1, "dry_run": dry_run, "sections": sections }))?;
    }
    if done.is_empty() {
        out.note("the file names no section; nothing was changed");
    }
    for one in done {
        if let Some(note) = one
            .taken
            .as_ref()
            .and_then(|taken| taken.note(one.section()))
        {
            out.note(&note);
        }
        let late = one.planned.wanted.kind.late(&[], &one.planned.wanted.tree);
        if let Some(late) = late.filter(|_| one.taken.is_some()) {
            out.note(&format!("{}: {}", one.section(), remembered(late)));
        }
    }
    Ok(Exit::Completed)
}

#[cfg(test)]
mod tests;
