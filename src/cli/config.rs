//! `teamster config`: which value is in force, where it comes from, and how it is changed while the workers run.

mod apply;
mod change;
mod known;
mod taken;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use teamster_core::display;
use teamster_mesh::config::Entry;

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::{Format, Output},
    reach, show,
};
use crate::config::{
    explain::{Explained, Layer, Refusal},
    path,
};
use known::Known;
pub(super) use known::status;

/// See and change the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// The value that is in force
    Get(Get),
    /// Set a value in the mesh; the workers take it while they run
    Set(change::Set),
    /// Take away a value that was set in the mesh, so that the file counts again
    Unset(change::Unset),
    /// Set what a file says, for whole sections
    Apply(apply::Apply),
    /// Each value, the layer it comes from, and what was not taken
    Explain(Explain),
    /// The revisions of what is set in the mesh for a worker
    History(History),
}

/// The value that is in force.
#[derive(Debug, Args)]
pub(super) struct Get {
    /// For example `harness.default_max_turns`. Default: everything
    #[arg(value_name = "KEY")]
    key: Option<String>,
}

/// Each value, the layer it comes from, and what was not taken.
///
/// Layers, weakest first: compiled in, the file config.yaml, the environment, set in the mesh.
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Only what lies under this key
    #[arg(value_name = "KEY")]
    key: Option<String>,
}

/// The revisions of what is set in the mesh for a worker.
#[derive(Debug, Args)]
pub(super) struct History {
    /// The worker, or a key of it
    #[arg(value_name = "KEY")]
    key: String,
}

pub(super) async fn run(global: &Global, out: &Output, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Get(options) => get(global, out, options.key.as_deref()).await,
        Command::Set(options) => change::set(global, out, &options).await,
        Command::Unset(options) => change::unset(global, out, &options).await,
        Command::Apply(options) => apply::run(global, out, &options).await,
        Command::Explain(options) => explain(global, out, options.key.as_deref()).await,
        Command::History(options) => history(global, out, &options.key).await,
    }
}

/// Reads a key.
fn key(text: &str) -> Result<Vec<String>, Failure> {
    path::parse(text).map_err(|error| Failure::usage("config.key", error))
}

async fn get(global: &Global, out: &Output, text: Option<&str>) -> Result<Exit, Failure> {
    let path = key(text.unwrap_or_default())?;
    let known = Known::look(global, &path).await?;
    let tree = known.effective();
    let Some(value) = path::get(&tree, &path) else {
        return Err(known.no_such_key(&path));
    };
    if !out.is_text() {
        out.document(&json!({ "v": 1, "key": path::join(&path), "value": value }))?;
        return Ok(Exit::Completed);
    }
    let text = match value {
        Value::String(text) => format!("{}\n", display::terminal(text)),
        value => display::terminal(&serde_yaml::to_string(value).unwrap_or_default()),
    };
    out.text(&text)?;
    Ok(Exit::Completed)
}

async fn explain(global: &Global, out: &Output, text: Option<&str>) -> Result<Exit, Failure> {
    let path = key(text.unwrap_or_default())?;
    let known = Known::look(global, &path).await?;
    let values: Vec<&Explained> = known.values(&path);
    if values.is_empty() {
        return Err(known.no_such_key(&path));
    }
    let refusals = known.refusals(&path);
    let after_restart = known.after_restart(&path);
    match out.format {
        Format::Json => out.document(&json!({
            "v": 1,
            "values": values,
            "refusals": refusals,
            "after_restart": after_restart,
            "silent": known.silent(),
        }))?,
        Format::JsonLines => {
            for value in &values {
                out.document(value)?;
            }
        }
        Format::Text => {
            for value in &values {
                out.line(&format!(
                    "{:<36} {:<24} {}{}",
                    display::terminal(&value.key),
                    display::terminal(&value.value.to_string()),
                    layer(&value.layer),
                    if value.hot {
                        ""
                    } else {
                        "  (counts from the next start)"
                    },
                ))?;
            }
            for refusal in &refusals {
                out.line(&refused(refusal))?;
            }
            for key in &after_restart {
                out.line(&format!(
                    "waits      {key} counts from the worker's next start"
                ))?;
            }
        }
    }
    if !known.silent().is_empty() {
        out.note(&format!(
            "not asked, because nobody answers: {}; shown is what they would begin with",
            known.silent().join(", ")
        ));
    }
    Ok(Exit::Completed)
}

/// A layer in words.
pub(super) fn layer(layer: &Layer) -> String {
    match layer {
        Layer::CompiledIn => "compiled in".to_owned(),
        Layer::File {
            path,
            line: Some(line),
        } => format!("{}, line {line}", display::terminal(path)),
        Layer::File { path, line: None } => display::terminal(path),
        Layer::Environment { variable } => format!("environment {variable}"),
        Layer::Live(revision) => format!(
            "set live, {}revision {} by {} at {}",
            if revision.or_before {
                "at the latest by "
            } else {
                ""
            },
            revision.revision,
            display::terminal(revision.by.as_deref().unwrap_or("another tool")),
            display::terminal(&revision.at),
        ),
    }
}

/// A refused change in words.
pub(super) fn refused(refusal: &Refusal) -> String {
    let (place, problem) = (layer(&refusal.layer), display::terminal(&refusal.problem));
    // What is wrong with a file begins with its place.
    let problem = problem
        .strip_prefix(&place)
        .map_or_else(|| format!(": {problem}"), str::to_owned);
    format!(
        "NOT TAKEN  {}  {place}{problem}",
        show::moment(refusal.at_ms)
    )
}

async fn history(global: &Global, out: &Output, text: &str) -> Result<Exit, Failure> {
    let path = key(text)?;
    let (kind, within) = known::section(&path)?;
    let client = reach::log(global, out).await?;
    let entries = client
        .mesh()
        .configs()
        .history(&known::worker(kind)?)
        .await?;
    let was_said = |entry| tree(entry).is_some_and(|tree| path::says(&tree, &within));
    if !kind.has(&within) && !entries.iter().any(was_said) {
        let known = Known::look(global, &path).await?;
        if known.values(&path).is_empty() {
            return Err(known.no_such_key(&path));
        }
    }
    let shown: Vec<Value> = entries
        .iter()
        .rev()
        .map(|entry| {
            json!({
                "revision": entry.revision,
                "at": entry.at,
                "by": entry.by,
                "value": tree(entry).and_then(|tree| path::get(&tree, &within).cloned()),
            })
        })
        .collect();
    match out.format {
        Format::Json => {
            out.document(&json!({ "v": 1, "key": path::join(&path), "revisions": shown }))?;
        }
        Format::JsonLines => {
            for revision in &shown {
                out.document(revision)?;
            }
        }
        Format::Text => {
            for (entry, revision) in entries.iter().rev().zip(&shown) {
                let value = match revision.get("value") {
                    Some(Value::Null) | None => "-".to_owned(),
                    Some(value) => value.to_string(),
                };
                out.line(&format!(
                    "{:>6}  {}  {:<20} {}",
                    entry.revision,
                    display::terminal(&entry.at),
                    display::terminal(entry.by.as_deref().unwrap_or("another tool")),
                    display::terminal(&value),
                ))?;
            }
            if entries.is_empty() {
                out.note(&format!("nothing was ever set live for {}", kind.name));
            }
        }
    }
    Ok(Exit::Completed)
}

/// What a revision says, if that can be read.
fn tree(entry: &Entry) -> Option<Value> {
    serde_json::from_slice(entry.body.as_deref()?).ok()
}
