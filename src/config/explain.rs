//! Which value is in force, and which layer it comes from. Pure, and the same for a worker that runs and for a look at the files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use teamster_protocol::limits;

use super::{
    Reading,
    path::{self, says},
    section::Kind,
};

/// Where a value comes from. A later one is stronger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "layer", rename_all = "snake_case")]
pub enum Layer {
    /// The compiled-in defaults.
    CompiledIn,
    /// The configuration file.
    File {
        /// The file.
        path: String,
        /// The line, from 1, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<usize>,
    },
    /// A variable of the process's environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// Set live in the mesh. Said by a worker, it is the revision of its section that is in force; said by `teamster config explain`, the one
    /// that set this value last.
    Live(Revision),
}

/// One revision of what is set live for a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revision {
    /// Its number.
    pub revision: u64,
    /// When it was written, RFC 3339.
    pub at: String,
    /// Who says to have written it, if it was a tool of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether an earlier one may have set the value, because no earlier one is kept or could be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_before: bool,
}

/// One value, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// The key, with the section.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Where it comes from.
    #[serde(flatten)]
    pub layer: Layer,
    /// Whether a change counts without a start of the worker.
    pub hot: bool,
}

/// A change that was not taken. What was in force before stays so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Where the change came from.
    #[serde(flatten)]
    pub layer: Layer,
    /// What is wrong: key, value, reason.
    pub problem: String,
}

/// What a worker says about its section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The worker.
    pub worker: String,
    /// What is in force, value by value.
    pub values: Vec<Explained>,
    /// The newest live revision that it has seen, in force or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// Changes that were not taken since the last good one of the same layer, oldest first.
    pub refusals: Vec<Refusal>,
    /// Keys whose value counts from the worker's next start.
    pub after_restart: Vec<String>,
}

/// What one process of a worker says of itself in its answer to `STATS`, under `data` of the endpoint `<worker>-config`: a
/// request reaches one process of several, and each takes or refuses a change by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The newest live revision that it has seen, in force or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// Changes that it did not take since the last good one of the same layer, oldest first.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
}

/// What asks nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusRequest {}

/// What is set live for one worker.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveLayer {
    /// Which revision it is.
    pub revision: Revision,
    /// What it says.
    pub tree: Value,
}

/// Which revision set last what is in force at a key of the section: the first of those in a row, the one in force being the last, that
/// say the same there. `history` is what is kept, oldest first; `None` where nothing could be read of a revision.
pub fn set_by(
    history: &[(Revision, Option<Value>)],
    in_force: &Revision,
    within: &[String],
) -> Revision {
    let unknown = Revision {
        or_before: true,
        ..in_force.clone()
    };
    let seen = history.partition_point(|(kept, _)| kept.revision <= in_force.revision);
    let seen = history.get(..seen).unwrap_or_default();
    let said = |tree: &Option<Value>| {
        tree.as_ref()
            .and_then(|tree| path::get(tree, within))
            .cloned()
    };
    let Some(now) = seen.last().and_then(|(_, tree)| said(tree)) else {
        return unknown;
    };
    let same = seen
        .iter()
        .rev()
        .take_while(|(_, tree)| said(tree).as_ref() == Some(&now))
        .count();
    let Some((first, _)) = seen.get(seen.len() - same) else {
        return unknown;
    };
    Revision {
        or_before: same == seen.len() && history.len() >= limits::CONFIG_HISTORY_MAX,
        ..first.clone()
    }
}

/// Explains one section. `effective` is what is in force.
pub fn section(
    kind: &Kind,
    effective: &Value,
    reading: &Reading,
    live: Option<&LiveLayer>,
) -> Vec<Explained> {
    super::leaves(effective)
        .into_iter()
        .map(|(within, value)| {
            let mut full = vec![kind.name.to_owned()];
            full.extend(within.iter().cloned());
            Explained {
                key: path::join(&full),
                value: value.clone(),
                layer: layer(&full, &within, reading, live),
                hot: kind.is_hot(&within),
            }
        })
        .collect()
}

/// The values that belong to no worker.
pub fn mesh(reading: &Reading) -> Vec<Explained> {
    let tree = serde_json::to_value(&reading.config.mesh).unwrap_or_default();
    super::leaves(&tree)
        .into_iter()
        .map(|(within, value)| {
            let mut full = vec!["mesh".to_owned()];
            full.extend(within.iter().cloned());
            Explained {
                key: path::join(&full),
                value: value.clone(),
                layer: layer(&full, &within, reading, None),
                hot: false,
            }
        })
        .collect()
}

fn layer(full: &[String], within: &[String], reading: &Reading, live: Option<&LiveLayer>) -> Layer {
    if let Some(live) = live
        && says(&live.tree, within)
    {
        return Layer::Live(live.revision.clone());
    }
    if let Some(found) = reading.environment.iter().find(|value| value.path == full) {
        return Layer::Environment {
            variable: found.variable.to_owned(),
        };
    }
    match &reading.file {
        Some(file) if says(&file.tree, full) => Layer::File {
            path: file.path.display().to_string(),
            line: file.line_of(full),
        },
        _ => Layer::CompiledIn,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::config::{Source, merge, section::named};

    fn reading(dir: &Path, text: &str, model: Option<&str>) -> Reading {
        std::fs::write(dir.join(crate::config::FILE), text).expect("written");
        let source = Source {
            data: dir.to_owned(),
            model: model.map(str::to_owned),
        };
        source.read().expect("valid")
    }

    fn revision(revision: u64) -> Revision {
        Revision {
            revision,
            at: format!("at {revision}"),
            by: None,
            or_before: false,
        }
    }

    #[test]
    fn a_value_names_the_revision_that_set_it_and_not_the_newest_of_its_section() {
        let history = [
            (revision(3), Some(json!({"a": 1}))),
            (revision(5), Some(json!({"a": 1, "b": {"c": 1}}))),
            (revision(8), None),
            (revision(9), Some(json!({"a": 1, "b": {"c": 2}}))),
            (revision(12), Some(json!({"a": 1, "b": {"c": 2}, "d": [1]}))),
            (revision(20), Some(json!({"a": 2}))),
        ];
        for (key, in_force, want) in [
            ("a", 12, 9),
            ("a", 5, 3),
            ("a", 20, 20),
            ("b.c", 12, 9),
            ("b.c", 5, 5),
            ("d", 12, 12),
        ] {
            let within = path::parse(key).expect("a key");
            let found = set_by(&history, &revision(in_force), &within);
            assert_eq!(found, revision(want), "{key} in force {in_force}");
        }
        let b = path::parse("b.c").expect("a key");
        assert!(
            set_by(&history, &revision(20), &b).or_before,
            "it is not there"
        );
        assert!(set_by(&[], &revision(20), &b).or_before, "nothing was read");
        let long: Vec<_> = (1..=limits::CONFIG_HISTORY_MAX as u64)
            .map(|n| (revision(n), Some(json!({"a": 1, "n": n}))))
            .collect();
        let (a, n) = (["a".to_owned()], ["n".to_owned()]);
        let newest = revision(limits::CONFIG_HISTORY_MAX as u64);
        let oldest = Revision {
            or_before: true,
            ..revision(1)
        };
        assert_eq!(set_by(&long, &newest, &a), oldest);
        assert_eq!(set_by(&long, &newest, &n), newest);
    }

    #[test]
    fn each_value_names_the_strongest_layer_that_says_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = "harness:\n  default_max_turns: 4\n  default_model: a/b\n  max_calls: 9\n";
        let reading = reading(dir.path(), text, Some("c/d"));
        let kind = named("harness").expect("there");
        let live = LiveLayer {
            revision: Revision {
                revision: 7,
                at: "2026-01-01T00:00:00Z".to_owned(),
                by: Some("me".to_owned()),
                or_before: false,
            },
            tree: json!({"max_calls": 2, "max_tokens": null}),
        };
        let effective = merge(kind.of(&reading.config), live.tree.clone());
        let explained = section(kind, &effective, &reading, Some(&live));
        let find = |key: &str| {
            explained
                .iter()
                .find(|value| value.key == key)
                .expect(key)
                .clone()
        };
        let file = |line| Layer::File {
            path: dir.path().join("config.yaml").display().to_string(),
            line: Some(line),
        };
        for (key, value, layer) in [
            ("harness.default_max_turns", json!(4), file(2)),
            (
                "harness.default_model",
                json!("c/d"),
                Layer::Environment {
                    variable: "TEAMSTER_MODEL".to_owned(),
                },
            ),
            (
                "harness.max_calls",
                json!(2),
                Layer::Live(live.revision.clone()),
            ),
            ("harness.max_tokens", Value::Null, Layer::CompiledIn),
            ("harness.max_output_tokens", json!(8192), Layer::CompiledIn),
        ] {
            let found = find(key);
            assert_eq!((found.value, found.layer), (value, layer), "{key}");
        }
        assert!(find("harness.default_model").hot && !find("harness.sessions").hot);
        assert_eq!(mesh(&reading)[0].key, "mesh.replicas");
    }
}
