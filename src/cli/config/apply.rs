//! `teamster config apply`: what a file says, section by section, as what is set live in the mesh.
//!
//! Invariants: everything is checked before anything is written, by the code that puts it in force; each section is one write,
//! bound to the revision that was read; where one cannot be written, it is said which were.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};
use teamster_core::display;
use teamster_protocol::{id::WorkerName, limits};

use super::{
    change::{person, refused, taken, without},
    known,
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
    config::{Source, leaves, path, section::Kind},
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
    is_changed: bool,
}

/// A section that was dealt with.
struct Done {
    section: &'static str,
    is_changed: bool,
    revision: u64,
    is_in_force: Option<bool>,
}

pub(super) async fn run(global: &Global, out: &Output, options: &Apply) -> Result<Exit, Failure> {
    let data = place::data_dir(global.data.as_deref())?;
    let wanted = read(&options.file, &data)?;
    let client = reach::client(global, out, Absent::Resume).await?;
    let planned = plan(&client, wanted).await?;
    let mut done = Vec::new();
    for planned in planned {
        if options.dry_run || !planned.is_changed {
            done.push(Done {
                section: planned.wanted.kind.name,
                is_changed: planned.is_changed,
                revision: planned.revision,
                is_in_force: None,
            });
            continue;
        }
        let section = planned.wanted.kind.name;
        let written = write(&client, &planned).await;
        let revision = written.map_err(|failure| half_done(failure, section, &done))?;
        done.push(Done {
            section,
            is_changed: true,
            revision,
            is_in_force: Some(false),
        });
    }
    for one in &mut done {
        if one.is_in_force.is_some() {
            let kind = known::section(&[one.section.to_owned()])?.0;
            one.is_in_force = Some(taken(&client, kind, one.revision, one.section).await?);
        }
    }
    report(out, options.dry_run, &done)
}

/// Reads and checks the whole file.
fn read(file: &Path, data: &Path) -> Result<Vec<Wanted>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::io("read", file, &error))?;
    let bad = |problem: String| {
        Failure::usage(
            "config.refused",
            format_args!("{}: {problem}; nothing was written", file.display()),
        )
    };
    let tree: Option<Value> =
        serde_yaml::from_str(&text).map_err(|error| bad(error.to_string()))?;
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
            revision: entry.map_or(0, |entry| entry.revision),
            is_changed,
            wanted,
        });
    }
    Ok(planned)
}

/// Writes a section; its new revision.
async fn write(client: &Client, planned: &Planned) -> Result<u64, Failure> {
    let (configs, by) = (client.mesh().configs(), person());
    let Wanted { worker, tree, .. } = &planned.wanted;
    let at = Some(planned.revision);
    let written = if tree.as_object().is_some_and(Map::is_empty) {
        configs.remove(worker, &by, at).await?
    } else {
        let body = Bytes::from(serde_json::to_vec(tree).unwrap_or_default());
        configs.put(worker, body, &by, at).await?
    };
    written.ok_or_else(|| {
        Failure::new(
            Exit::TryAgain,
            "config.conflict",
            format_args!("somebody else has changed what is set for {worker}"),
        )
    })
}

/// Says of a write that failed what was written before it.
fn half_done(mut failure: Failure, section: &str, done: &[Done]) -> Failure {
    let written: Vec<String> = done
        .iter()
        .filter(|one| one.is_changed)
        .map(|one| format!("{} (revision {})", one.section, one.revision))
        .collect();
    let before = if written.is_empty() {
        "nothing was written".to_owned()
    } else {
        format!("written before it: {}", written.join(", "))
    };
    failure.message = format!("{section}: {}; {before}", failure.message);
    failure.hint("run it again: what is as it should be is left alone")
}

fn report(out: &Output, dry_run: bool, done: &[Done]) -> Result<Exit, Failure> {
    if !out.is_text() {
        let sections: Vec<Value> = done
            .iter()
            .map(|one| {
                json!({
                    "section": one.section,
                    "changed": one.is_changed,
                    "revision": one.revision,
                    "in_force": one.is_in_force,
                })
            })
            .collect();
        out.document(&json!({ "v": 1, "dry_run": dry_run, "sections": sections }))?;
        return Ok(Exit::Completed);
    }
    for one in done {
        let what = match (one.is_changed, dry_run, one.is_in_force) {
            (false, ..) => "as it should be".to_owned(),
            (true, true, _) => "would be changed".to_owned(),
            (true, false, Some(true)) => format!("set (revision {})", one.revision),
            (true, false, _) => format!(
                "set (revision {}); no worker answers now, it counts from its start",
                one.revision
            ),
        };
        out.line(&format!("{:<14} {what}", display::terminal(one.section)))?;
    }
    Ok(Exit::Completed)
}
