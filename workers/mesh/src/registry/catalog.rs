//! The catalog: what the entries of the registry say together. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use teamster_protocol::{
    Contract, FunctionId,
    hook::{Binding, Point},
    registry,
};

use crate::permission;

/// What the registry says at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// Living worker processes, by name and incarnation.
    pub workers: Vec<registry::Worker>,
    /// Functions that somebody serves, with the worker's name. Where two processes of one worker differ, the newest
    /// incarnation's contract counts; where two workers claim one id, neither is served (`doctor` names both).
    pub functions: BTreeMap<FunctionId, (Contract, String)>,
    /// Bound hooks with the worker that bound them, in the order (point, stage, priority, function id). They outlive their
    /// worker.
    pub hooks: Vec<(Binding, String)>,
}

impl Catalog {
    /// The hooks of a point, in order.
    pub fn hooks_at(&self, point: Point) -> impl Iterator<Item = &Binding> {
        self.hooks
            .iter()
            .map(|(binding, _)| binding)
            .filter(move |binding| binding.point == point)
    }

    /// Function ids that more than one worker claims, with the workers' names.
    pub fn conflicts(&self) -> BTreeMap<FunctionId, BTreeSet<String>> {
        let mut conflicts = claims(&self.workers);
        conflicts.retain(|_, names| names.len() > 1);
        conflicts
    }

    /// Living processes that serve a function of a namespace.
    pub fn instances(&self, namespace: &str) -> usize {
        self.workers
            .iter()
            .filter(|worker| {
                let mut functions = worker.functions.iter();
                functions.any(|contract| contract.id.namespace() == namespace)
            })
            .count()
    }
}

/// Which workers claim which functions. In a namespace of the house only its owner's claim counts, where the owner makes one.
fn claims(workers: &[registry::Worker]) -> BTreeMap<FunctionId, BTreeSet<String>> {
    let mut claims: BTreeMap<FunctionId, BTreeSet<String>> = BTreeMap::new();
    for worker in workers {
        for contract in &worker.functions {
            claims
                .entry(contract.id.clone())
                .or_default()
                .insert(worker.name.to_string());
        }
    }
    for (id, names) in &mut claims {
        if let Some(owner) = permission::owner_of(id.namespace())
            && names.contains(owner)
        {
            names.retain(|name| name == owner);
        }
    }
    claims
}

/// Builds the catalog from the entries by key. An entry that cannot be read is left out and reported in the log: one bad worker
/// takes nobody else down.
pub(super) fn build(entries: &BTreeMap<String, Bytes>) -> Catalog {
    let mut catalog = Catalog::default();
    for (key, body) in entries {
        if key.starts_with("worker.") {
            // The broker lets a worker write its own keys only; what such an entry says of itself counts no further.
            let entry = read::<registry::Worker>(key, body);
            catalog.workers.extend(entry.filter(|entry| {
                *key == super::worker_key(entry.name.as_str(), entry.incarnation.as_str())
            }));
        } else if key.starts_with("hooks.")
            && let Some(hooks) = read::<registry::Hooks>(key, body)
            && *key == super::hooks_key(hooks.name.as_str())
        {
            let name = hooks.name.to_string();
            let bound = hooks.bindings.into_iter();
            catalog
                .hooks
                .extend(bound.map(|binding| (binding, name.clone())));
        }
    }
    // Incarnations are made of a time, so that the newest of a worker comes last and its contracts win.
    catalog
        .workers
        .sort_by(|a, b| (&a.name, &a.incarnation).cmp(&(&b.name, &b.incarnation)));
    let claims = claims(&catalog.workers);
    for worker in &catalog.workers {
        for contract in &worker.functions {
            if claims
                .get(&contract.id)
                .is_some_and(|names| names.len() == 1 && names.contains(worker.name.as_str()))
            {
                catalog.functions.insert(
                    contract.id.clone(),
                    (contract.clone(), worker.name.to_string()),
                );
            }
        }
    }
    catalog.hooks.sort_by(|(a, from_a), (b, from_b)| {
        (a.point, a.stage, a.priority, &a.function, from_a).cmp(&(
            b.point,
            b.stage,
            b.priority,
            &b.function,
            from_b,
        ))
    });
    catalog
}

fn read<Entry: serde::de::DeserializeOwned>(key: &str, body: &[u8]) -> Option<Entry> {
    serde_json::from_slice(body)
        .inspect_err(|error| {
            tracing::warn!(key, %error, "an entry of the registry cannot be read and is left out");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{
        hook::Stage,
        id::{Incarnation, WorkerName},
    };

    use super::*;

    fn function(text: &str) -> FunctionId {
        FunctionId::parse(text).expect("a function id")
    }

    fn worker(name: &str, incarnation: &str, functions: &[(&str, &str)]) -> (String, Bytes) {
        let entry = registry::Worker {
            name: WorkerName::parse(name).expect("a name"),
            incarnation: Incarnation::parse(incarnation).expect("an incarnation"),
            version: "0.1.0".to_owned(),
            description: String::new(),
            functions: functions
                .iter()
                .map(|(id, description)| Contract::new::<(), ()>(function(id), description))
                .collect(),
        };
        (
            format!("worker.{name}.{incarnation}"),
            serde_json::to_vec(&entry).expect("json").into(),
        )
    }

    fn binding(point: Point, stage: Stage, priority: i32, id: &str) -> Binding {
        Binding {
            point,
            function: function(id),
            priority,
            stage,
            functions: Vec::new(),
            timeout_ms: None,
            on_error: None,
        }
    }

    #[test]
    fn the_newest_incarnation_counts() {
        let entries = BTreeMap::from([
            worker("fs", "01b", &[("fs::read", "new")]),
            worker("fs", "01a", &[("fs::read", "old"), ("fs::gone", "old")]),
        ]);
        let catalog = build(&entries);
        assert_eq!(catalog.workers.len(), 2);
        assert_eq!(catalog.instances("fs"), 2);
        let description = |id: &str| catalog.functions[&function(id)].0.description.clone();
        assert_eq!(description("fs::read"), "new");
        assert_eq!(description("fs::gone"), "old");
    }

    #[test]
    fn what_two_workers_claim_is_served_by_neither() {
        let entries = BTreeMap::from([
            worker("good", "1", &[("fs::read", ""), ("good::one", "")]),
            worker("evil", "2", &[("fs::read", "")]),
        ]);
        let catalog = build(&entries);
        assert_eq!(
            catalog.functions.keys().collect::<Vec<_>>(),
            [&function("good::one")]
        );
        let conflicts = catalog.conflicts();
        assert_eq!(
            conflicts[&function("fs::read")],
            BTreeSet::from(["evil".to_owned(), "good".to_owned()])
        );
        assert_eq!(conflicts.len(), 1);
    }

    #[test]
    fn a_worker_from_outside_takes_nothing_of_the_house() {
        let (_, forged) = worker("router", "9", &[("router::chat", "forged")]);
        let entries = BTreeMap::from([
            worker("sandbox", "1", &[("fs::read", "ours")]),
            worker("evil", "2", &[("fs::read", "theirs"), ("evil::x", "")]),
            ("worker.evil.9".to_owned(), forged),
        ]);
        let catalog = build(&entries);
        assert_eq!(catalog.functions[&function("fs::read")].1, "sandbox");
        assert_eq!(
            catalog.functions[&function("fs::read")].0.description,
            "ours"
        );
        assert_eq!(catalog.functions.len(), 2, "{:?}", catalog.functions.keys());
        assert_eq!(catalog.conflicts(), BTreeMap::new());
    }

    #[test]
    fn hooks_are_in_order_and_bad_entries_are_left_out() {
        let hooks = registry::Hooks {
            name: WorkerName::parse("gate").expect("a name"),
            bindings: vec![
                binding(Point::PreTrigger, Stage::Judge, -5, "gate::judge"),
                binding(Point::PreTrigger, Stage::Shape, 9, "gate::shape"),
                binding(Point::PreTrigger, Stage::Judge, -5, "gate::also"),
                binding(Point::PreTurn, Stage::Judge, 0, "gate::first"),
            ],
        };
        let entries = BTreeMap::from([
            (
                "hooks.gate".to_owned(),
                Bytes::from(serde_json::to_vec(&hooks).expect("json")),
            ),
            ("hooks.bad".to_owned(), Bytes::from_static(b"{")),
            ("worker.bad.1".to_owned(), Bytes::from_static(b"[]")),
            ("else".to_owned(), Bytes::new()),
        ]);
        let catalog = build(&entries);
        let order: Vec<&str> = catalog
            .hooks
            .iter()
            .map(|(b, _)| b.function.as_str())
            .collect();
        assert_eq!(
            order,
            ["gate::first", "gate::shape", "gate::also", "gate::judge"]
        );
        assert_eq!(catalog.hooks_at(Point::PreTrigger).count(), 3);
        assert!(catalog.workers.is_empty());
    }
}
