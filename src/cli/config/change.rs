//! `teamster config set` and `unset`: one value of what is set live in the mesh.
//!
//! Invariants: what is put was checked by the code that puts it in force; nobody else's change is lost, since each write is bound
//! to the revision that was read; no secret is written or repeated, because the checks take references alone.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};
use teamster_core::display;
use teamster_mesh::config::Problem;
use teamster_protocol::{id::WorkerName, limits, text};

use super::{known, taken};
use crate::{
    cli::{
        Global,
        exit::Exit,
        failure::Failure,
        fit,
        output::Output,
        place,
        reach::{self, Absent},
    },
    client::Client,
    config::{Source, error::nearest_key, merge, path, section::Kind},
};

/// Tries of a change that others change at the same time.
const TRIES: u32 = 5;

/// Set a value in the mesh; the workers take it while they run.
///
/// A turn that runs keeps what it began with; the next one takes the new value. Keys of providers are references (`env:NAME`,
/// `file:/path`), never the secret itself.
#[derive(Debug, Args)]
pub(in crate::cli) struct Set {
    /// For example `harness.default_max_turns`
    #[arg(value_name = "KEY")]
    key: String,
    /// A YAML value: 32, true, a text, [a, b], {a: b}
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
    /// Only if this is still the newest revision of the worker's values (0: nothing was ever set)
    #[arg(long, value_name = "N")]
    if_revision: Option<u64>,
}

/// Take away a value that was set in the mesh, so that the file counts again.
#[derive(Debug, Args)]
pub(in crate::cli) struct Unset {
    /// For example `harness.default_max_turns`, or a whole worker
    #[arg(value_name = "KEY")]
    key: String,
    /// Only if this is still the newest revision of the worker's values
    #[arg(long, value_name = "N")]
    if_revision: Option<u64>,
}

/// What was changed.
struct Changed {
    old: Value,
    new: Value,
    revision: u64,
}

/// One change in the making.
struct Change<'a> {
    client: Client,
    kind: &'static Kind,
    worker: WorkerName,
    /// The key, with the section.
    key: String,
    /// The key within the section.
    within: Vec<String>,
    /// What the section is without anything that is set live.
    base: Value,
    if_revision: Option<u64>,
    out: &'a Output,
}

pub(super) async fn set(global: &Global, out: &Output, options: &Set) -> Result<Exit, Failure> {
    let change = begin(global, out, &options.key, options.if_revision).await?;
    let changed = change.set(&options.value).await?;
    change.finish(&changed).await
}

pub(super) async fn unset(global: &Global, out: &Output, options: &Unset) -> Result<Exit, Failure> {
    let change = begin(global, out, &options.key, options.if_revision).await?;
    let changed = change.unset().await?;
    change.finish(&changed).await
}

async fn begin<'a>(
    global: &Global,
    out: &'a Output,
    key: &str,
    if_revision: Option<u64>,
) -> Result<Change<'a>, Failure> {
    let path = super::key(key)?;
    let (kind, within) = known::section(&path)?;
    let data = place::data_dir(global.data.as_deref())?;
    let base = kind.of(&Source::of_process(&data).read()?.config);
    let client = reach::client(global, out, Absent::Resume).await?;
    Ok(Change {
        client,
        kind,
        worker: known::worker(kind)?,
        key: path::join(&path),
        within,
        base,
        if_revision,
        out,
    })
}

impl Change<'_> {
    async fn set(&self, text: &str) -> Result<Changed, Failure> {
        for _ in 0..TRIES {
            let (revision, tree) = self.read().await?;
            let (old, new, tree) = self.with(&tree, text)?;
            let body = serde_json::to_vec(&tree).unwrap_or_default();
            if body.len() > limits::CONFIG_BYTES_MAX {
                return Err(Failure::usage(
                    "config.refused",
                    format_args!(
                        "all that is set for {} would have {} bytes; at most {} are kept",
                        self.worker,
                        body.len(),
                        limits::CONFIG_BYTES_MAX
                    ),
                ));
            }
            let configs = self.client.mesh().configs();
            let by = person();
            let put = configs.put(&self.worker, Bytes::from(body), &by, Some(revision));
            if let Some(revision) = put.await? {
                return Ok(Changed { old, new, revision });
            }
            self.may_try_again()?;
        }
        Err(self.conflict())
    }

    async fn unset(&self) -> Result<Changed, Failure> {
        for _ in 0..TRIES {
            let (revision, tree) = self.read().await?;
            if !path::says(&tree, &self.within) || tree.as_object().is_some_and(Map::is_empty) {
                let key = text::operand(&self.key);
                let section = self.kind.name;
                return Err(Failure::new(
                    Exit::Failed,
                    "config.not_set",
                    format_args!("{} is not set in the mesh", self.key),
                )
                .hint(if path::says(&self.base, &self.within) {
                    format!("`teamster config explain {key}` shows where its value comes from")
                } else {
                    format!(
                        "no key of this name has a value; `teamster config explain {section}` shows those that have"
                    )
                }));
            }
            let left = path::unset(tree.clone(), &self.within);
            self.check(&left)?;
            let at = |tree: &Value| {
                let merged = merge(self.base.clone(), tree.clone());
                path::get(&merged, &self.within)
                    .cloned()
                    .unwrap_or(Value::Null)
            };
            let (old, new) = (at(&tree), at(&left));
            let configs = self.client.mesh().configs();
            let by = person();
            let written = if left.as_object().is_some_and(Map::is_empty) {
                configs.remove(&self.worker, &by, Some(revision)).await?
            } else {
                let body = serde_json::to_vec(&left).unwrap_or_default();
                configs
                    .put(&self.worker, Bytes::from(body), &by, Some(revision))
                    .await?
            };
            if let Some(revision) = written {
                return Ok(Changed { old, new, revision });
            }
            self.may_try_again()?;
        }
        Err(self.conflict())
    }

    /// The newest revision and what it says.
    async fn read(&self) -> Result<(u64, Value), Failure> {
        let entry = self.client.mesh().configs().get(&self.worker).await?;
        let revision = entry.as_ref().map_or(0, |entry| entry.revision);
        if self.if_revision.is_some_and(|wanted| wanted != revision) {
            return Err(self.conflict());
        }
        let tree = known::live_layer(entry.as_ref()).map(|layer| layer.tree);
        Ok((revision, tree.unwrap_or(Value::Object(Map::new()))))
    }

    /// The tree with the new value, if that can be used: old value, new value, tree.
    fn with(&self, tree: &Value, typed: &str) -> Result<(Value, Value, Value), Failure> {
        let key = text::operand(&self.key);
        if self.within.is_empty() {
            return Err(Failure::usage(
                "config.key",
                format_args!("{} is a whole section; name one key of it", self.key),
            )
            .hint(format_args!("`teamster config explain {key}` shows them")));
        }
        let mut first = None;
        for value in values(typed) {
            if value.is_null() {
                return Err(Failure::usage(
                    "config.refused",
                    "null says nothing, so that a lower layer would count",
                )
                .hint(format_args!("teamster config unset {key}")));
            }
            let changed = path::set(tree.clone(), &self.within, value.clone());
            match self.check(&changed) {
                Ok(()) => {
                    let merged = merge(self.base.clone(), tree.clone());
                    let old = path::get(&merged, &self.within).cloned();
                    return Ok((old.unwrap_or(Value::Null), value, changed));
                }
                Err(failure) => {
                    first.get_or_insert(failure);
                }
            }
        }
        let refused =
            first.unwrap_or_else(|| Failure::usage("config.refused", "the value cannot be read"));
        let refused = match &refused.hint {
            Some(_) => refused,
            None => refused.hint(format_args!(
                "`teamster config explain {key}` shows the value in force, which has the right form"
            )),
        };
        Err(without(refused, typed, &self.key))
    }

    fn check(&self, tree: &Value) -> Result<(), Failure> {
        self.kind
            .check(&self.base, tree)
            .map_err(|problem| refused(self.kind, &problem))
    }

    fn may_try_again(&self) -> Result<(), Failure> {
        match self.if_revision {
            Some(_) => Err(self.conflict()),
            None => Ok(()),
        }
    }

    fn conflict(&self) -> Failure {
        let section = self.kind.name;
        Failure::new(
            Exit::TryAgain,
            "config.conflict",
            format_args!("somebody else has changed what is set for {}", self.worker),
        )
        .hint(format_args!(
            "`teamster config history {section}` shows who and what"
        ))
    }

    /// Waits until the worker has seen the change, and says what became of it.
    async fn finish(&self, changed: &Changed) -> Result<Exit, Failure> {
        let name = self.kind.name;
        let taken = taken::wait(&self.client, self.kind, changed.revision)
            .await?
            .or_refused(name, &self.key)?;
        let late = [&changed.old, &changed.new]
            .into_iter()
            .find_map(|value| self.kind.late(&self.within, value));
        if self.out.is_text() {
            self.out.line(&format!(
                "{}: {} -> {} (revision {})",
                display::terminal(&self.key),
                display::terminal(&changed.old.to_string()),
                display::terminal(&changed.new.to_string()),
                changed.revision
            ))?;
        } else {
            self.out.document(&json!({
                "v": 1,
                "key": self.key,
                "old": changed.old,
                "new": changed.new,
                "revision": changed.revision,
                "in_force": taken.is_in_force() && self.kind.is_hot(&self.within),
                "late_seconds": late.map_or(0, |late| late.as_secs()),
                "processes": taken.document(),
            }))?;
        }
        if let Some(note) = taken.note(name) {
            self.out.note(&note);
        } else if !self.kind.is_hot(&self.within) {
            self.out
                .note(&format!("it counts from the next start of {name}"));
        }
        if let Some(late) = late {
            self.out.note(&remembered(late));
        }
        for unfit in fit::look(&self.client, &self.key).await {
            self.out.note(&unfit.to_string());
        }
        Ok(Exit::Completed)
    }
}

/// What is to be said of a value that others remember.
pub(super) fn remembered(late: Duration) -> String {
    format!(
        "turns may go on with the old value for up to {} s: so long it is remembered",
        late.as_secs()
    )
}

/// A value as it was typed, and as a text: a model may have a number's name.
fn values(text: &str) -> Vec<Value> {
    let typed: Option<Value> = serde_yaml::from_str(text).ok();
    let plain = Value::String(text.to_owned());
    match typed {
        Some(typed) if typed == plain => vec![plain],
        Some(typed) => vec![typed, plain],
        None => vec![plain],
    }
}

pub(super) fn refused(kind: &Kind, problem: &Problem) -> Failure {
    let failure = Failure::usage(
        "config.refused",
        match &problem.key {
            Some(key) => format!("{}.{key}: {}", kind.name, problem.problem),
            None => format!("{}: {}", kind.name, problem.problem),
        },
    );
    match nearest_key(&problem.problem) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Where a secret may have been typed, the value is not repeated.
pub(super) fn without(mut failure: Failure, text: &str, key: &str) -> Failure {
    // The path of a script is needed to find what is wrong with it, and is no place for a secret.
    let may_be_secret = key.starts_with("router.providers.") && !key.contains(".scripts.");
    let text = text.trim();
    if may_be_secret && text.len() >= 4 {
        failure.message = failure.message.replace(text, "[value]");
    }
    failure
}

/// Who changes something: the user and the machine, as far as they are known.
pub(super) fn person() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid());
    let user = match user {
        Ok(Some(user)) => user.name,
        _ => nix::unistd::getuid().to_string(),
    };
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(machine) => format!("{user}@{}", machine.trim()),
        Err(_) => user,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_meant() {
        for (text, want) in [
            ("32", json!(32)),
            ("-1", json!(-1)),
            ("true", json!(true)),
            ("[a, b]", json!(["a", "b"])),
            ("{a: 1}", json!({"a": 1})),
            ("env:KEY", json!("env:KEY")),
            ("openai/gpt-5", json!("openai/gpt-5")),
            ("\"7\"", json!("7")),
            ("a: b: c", json!("a: b: c")),
            ("", Value::Null),
        ] {
            assert_eq!(values(text).first(), Some(&want), "{text}");
        }
        assert_eq!(values("7").last(), Some(&json!("7")));
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let failure = Failure::usage("config.refused", "invalid type: string \"sk-secret\"");
        let shown = without(failure.clone(), "sk-secret", "router.providers.openai");
        assert!(!shown.message.contains("sk-secret"), "{}", shown.message);
        let shown = without(failure, "sk-secret", "harness.default_model");
        assert!(shown.message.contains("sk-secret"));
    }
}
