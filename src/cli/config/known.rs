//! What is known about the configuration here: what the workers say, and for those that do not answer what the files say.

use std::collections::BTreeMap;

use serde_json::Value;
use teamster_mesh::config::Entry;
use teamster_protocol::id::WorkerName;

use super::taken;
use crate::{
    cli::{Global, failure::Failure, place},
    client::Client,
    config::{
        Reading, Source,
        explain::{self, Explained, LiveLayer, Refusal, Revision, Status, StatusRequest},
        merge, nearest, path,
        section::{Kind, SECTIONS, named},
    },
    host,
};

/// What is known.
pub(in crate::cli) struct Known {
    mesh: Vec<Explained>,
    sections: BTreeMap<&'static str, Status>,
    silent: Vec<&'static str>,
}

/// The worker's section that a key lies in, and the rest of the key.
pub(super) fn section(path: &[String]) -> Result<(&'static Kind, Vec<String>), Failure> {
    let (first, rest) = path.split_first().ok_or_else(|| {
        Failure::usage(
            "config.key",
            "name a key, for example harness.default_model",
        )
        .hint("`teamster config explain` shows all keys")
    })?;
    if let Some(kind) = named(first) {
        return Ok((kind, rest.to_vec()));
    }
    if first == "mesh" {
        return Err(Failure::usage(
            "config.not_live",
            "the section mesh counts at the start of a mesh only",
        )
        .hint("write it into config.yaml and start again"));
    }
    let names = SECTIONS.iter().map(|kind| kind.name);
    let failure = Failure::usage("config.key", format_args!("there is no section {first:?}"));
    Err(match nearest(first, names.clone()) {
        Some(near) => failure.hint(format_args!("did you mean `{near}`?")),
        None => failure.hint(format_args!(
            "sections: {}",
            names.collect::<Vec<_>>().join(", ")
        )),
    })
}

/// The worker that a section belongs to.
pub(super) fn worker(kind: &Kind) -> Result<WorkerName, Failure> {
    WorkerName::parse(kind.name).map_err(|error| Failure::usage("config.key", error))
}

/// What is set live for a worker; `None` where nothing is, or nothing that can be read.
pub(super) fn live_layer(entry: Option<&Entry>) -> Option<LiveLayer> {
    let entry = entry?;
    let tree: Value = serde_json::from_slice(entry.body.as_deref()?).ok()?;
    tree.is_object().then(|| LiveLayer {
        revision: Revision {
            revision: entry.revision,
            at: entry.at.clone(),
            by: entry.by.clone(),
            or_before: false,
        },
        tree,
    })
}

/// Names for each value that is set live the revision that set it: a worker knows only the revision of its section.
async fn date(client: &Client, kind: &Kind, status: &mut Status) -> Result<(), Failure> {
    let is_live = |explained: &Explained| matches!(explained.layer, explain::Layer::Live(_));
    if !status.values.iter().any(is_live) {
        return Ok(());
    }
    // What cannot be read leaves the section's revision, marked as the latest that it can be.
    let entries = client.mesh().configs().history(&worker(kind)?).await;
    let history: Vec<(Revision, Option<Value>)> = entries
        .unwrap_or_default()
        .into_iter()
        .map(|entry| {
            let tree = super::tree(&entry);
            let revision = Revision {
                revision: entry.revision,
                at: entry.at,
                by: entry.by,
                or_before: false,
            };
            (revision, tree)
        })
        .collect();
    for explained in &mut status.values {
        let path = path::parse(&explained.key).unwrap_or_default();
        if let explain::Layer::Live(revision) = &mut explained.layer {
            let within = path.get(1..).unwrap_or_default();
            *revision = explain::set_by(&history, revision, within);
        }
    }
    Ok(())
}

/// What a worker says about its section, with what each of its processes refused; `None` where nobody answers.
pub(in crate::cli) async fn status(client: &Client, kind: &Kind) -> Option<Status> {
    let function = format!("{}::config", kind.name);
    let mut status: Status = client.operate(&function, &StatusRequest {}).await.ok()?;
    for refusal in taken::refusals(client, kind).await {
        let is_known = status
            .refusals
            .iter()
            .any(|known| known.layer == refusal.layer && known.problem == refusal.problem);
        if !is_known {
            status.refusals.push(refusal);
        }
    }
    status.refusals.sort_by_key(|refusal| refusal.at_ms);
    Some(status)
}

impl Known {
    /// Looks at the sections that a key concerns. Nothing is started for that.
    pub(super) async fn look(global: &Global, path: &[String]) -> Result<Self, Failure> {
        let data = place::data_dir(global.data.as_deref())?;
        let client = match &global.nats {
            Some(url) => {
                let connect = place::foreign(url, global.creds.as_deref())?;
                Some(Client::connect(&connect).await?)
            }
            None => match host::embedded::locate(&data) {
                Some(connect) => Client::connect(&connect).await.ok(),
                None => None,
            },
        };
        // The files of this machine count for those that do not answer; where all do, they need not even be good.
        let reading = Source::of_process(&data).read();
        let mut known = Self {
            mesh: Vec::new(),
            sections: BTreeMap::new(),
            silent: Vec::new(),
        };
        let wanted = |name: &str| path.first().is_none_or(|first| first == name);
        let kinds = SECTIONS.iter().filter(|kind| wanted(kind.name));
        let statuses = futures::future::join_all(kinds.map(|kind| {
            let client = client.as_ref();
            async move {
                let status = match client {
                    Some(client) => status(client, kind).await,
                    None => None,
                };
                (kind, status)
            }
        }))
        .await;
        for (kind, status) in statuses {
            let mut status = if let Some(status) = status {
                status
            } else {
                known.silent.push(kind.name);
                let reading = match &reading {
                    Ok(reading) => reading,
                    Err(_) => &Source::of_process(&data).read()?,
                };
                at_rest(client.as_ref(), kind, reading).await?
            };
            if let Some(client) = &client {
                date(client, kind, &mut status).await?;
            }
            known.sections.insert(kind.name, status);
        }
        if wanted("mesh") {
            known.mesh = match &reading {
                Ok(reading) => explain::mesh(reading),
                // The workers tell what they have in force; what a start would take is asked for by name only.
                Err(_) if path.is_empty() => Vec::new(),
                Err(_) => explain::mesh(&Source::of_process(&data).read()?),
            };
        }
        Ok(known)
    }

    /// The whole tree that is in force.
    pub(super) fn effective(&self) -> Value {
        let all = self.sections.values().flat_map(|status| &status.values);
        all.chain(&self.mesh).fold(Value::Null, |tree, explained| {
            let path = path::parse(&explained.key).unwrap_or_default();
            path::set(tree, &path, explained.value.clone())
        })
    }

    /// The values at a key and under it.
    pub(super) fn values(&self, path: &[String]) -> Vec<&Explained> {
        let all = self.sections.values().flat_map(|status| &status.values);
        self.mesh
            .iter()
            .chain(all)
            .filter(|explained| is_under(&explained.key, path))
            .collect()
    }

    /// What was not taken by the sections that a key concerns, each change once.
    pub(super) fn refusals(&self, path: &[String]) -> Vec<&Refusal> {
        let mut found: Vec<&Refusal> = Vec::new();
        for (name, status) in &self.sections {
            if path.first().is_some_and(|first| first != name) {
                continue;
            }
            for refusal in &status.refusals {
                let is_known = found
                    .iter()
                    .any(|other| other.layer == refusal.layer && other.problem == refusal.problem);
                if !is_known {
                    found.push(refusal);
                }
            }
        }
        found.sort_by_key(|refusal| refusal.at_ms);
        found
    }

    /// Keys whose value waits for a start.
    pub(super) fn after_restart(&self, path: &[String]) -> Vec<&str> {
        let all = self.sections.values();
        all.flat_map(|status| &status.after_restart)
            .filter(|key| is_under(key, path))
            .map(String::as_str)
            .collect()
    }

    /// Workers that did not answer.
    pub(super) fn silent(&self) -> &[&'static str] {
        &self.silent
    }

    /// A key that holds nothing, with the nearest one that does.
    pub(super) fn no_such_key(&self, path: &[String]) -> Failure {
        let key = path::join(path);
        let failure = Failure::usage("config.key", format_args!("there is no key {key}"));
        let known: Vec<&str> = self
            .values(&[])
            .into_iter()
            .map(|explained| explained.key.as_str())
            .collect();
        match nearest(&key, known.iter().copied()) {
            Some(near) => failure.hint(format_args!("did you mean `{near}`?")),
            None => failure.hint("`teamster config explain` shows all keys"),
        }
    }
}

fn is_under(key: &str, path: &[String]) -> bool {
    path::parse(key).is_ok_and(|segments| segments.starts_with(path))
}

/// What a worker that does not answer would begin with.
async fn at_rest(
    client: Option<&Client>,
    kind: &Kind,
    reading: &Reading,
) -> Result<Status, Failure> {
    let entry = match client {
        Some(client) => client.mesh().configs().get(&worker(kind)?).await?,
        None => None,
    };
    let live = live_layer(entry.as_ref());
    let base = kind.of(&reading.config);
    let over = live
        .as_ref()
        .map_or(Value::Null, |layer| layer.tree.clone());
    let (live, refusals) = match kind.check(&base, &over) {
        Ok(()) => (live, Vec::new()),
        Err(problem) => {
            let refusal = live.map(|layer| Refusal {
                at_ms: crate::cli::show::now_ms(),
                layer: explain::Layer::Live(layer.revision),
                problem: problem.to_string(),
            });
            (None, refusal.into_iter().collect())
        }
    };
    let over = live
        .as_ref()
        .map_or(Value::Null, |layer| layer.tree.clone());
    let effective = merge(base, over);
    Ok(Status {
        worker: kind.name.to_owned(),
        values: explain::section(kind, &effective, reading, live.as_ref()),
        seen: entry.map(|entry| entry.revision),
        refusals,
        after_restart: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Exit;

    #[test]
    fn sections_are_found_and_slips_are_told() {
        let path = |text: &str| path::parse(text).expect("a key");
        let (kind, rest) = section(&path("router.retry.base_ms")).expect("there");
        assert_eq!(
            (kind.name, path::join(&rest).as_str()),
            ("router", "retry.base_ms")
        );
        for (key, code, hint) in [
            ("mesh.replicas", "config.not_live", "config.yaml"),
            ("harnes.x", "config.key", "`harness`"),
            ("x.y", "config.key", "sections: "),
        ] {
            let Err(failure) = section(&path(key)) else {
                panic!("{key}");
            };
            assert_eq!((failure.exit, failure.code.as_str()), (Exit::Usage, code));
            assert!(failure.hint.expect("a hint").contains(hint), "{key}");
        }
    }
}
