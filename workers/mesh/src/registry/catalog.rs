//! The catalog: what the entries of the registry say together. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use teamster_protocol::{
    Contract, Digest, FunctionId,
    hook::{Binding, Point},
    registry,
};

use crate::permission;

/// What the registry says at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// Living worker processes, by name and incarnation.
    pub workers: Vec<Arc<registry::Worker>>,
    /// Functions that somebody serves, with the worker's name. Where two processes of one worker differ, the newest
    /// incarnation's contract counts; where two workers claim one id, neither is served (`doctor` names both).
    pub functions: BTreeMap<FunctionId, (Arc<Contract>, String)>,
    /// Bound hooks with the worker that bound them, in the order (point, stage, priority, function id). They outlive their
    /// worker.
    pub hooks: Vec<(Binding, String)>,
    /// Entries of hooks that cannot be read, each a worker's name as a token of a subject. Nobody knows what they bind: until they
    /// are bound anew or removed, nothing may count as judged.
    pub unreadable_hooks: Vec<String>,
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
fn claims(workers: &[Arc<registry::Worker>]) -> BTreeMap<FunctionId, BTreeSet<String>> {
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

/// One entry as it was read. A registration is renewed with the same bytes again and again: it is read once, and all catalogs share it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    of: Digest,
    says: Says,
}

#[derive(Debug, Clone)]
enum Says {
    Worker(Arc<registry::Worker>),
    Hooks(Arc<registry::Hooks>),
    /// Something about hooks, but nobody knows what.
    Unreadable,
    /// Nothing that counts.
    Nothing,
}

impl Entry {
    /// Reads an entry, unless it is what was `known` under this key. One that cannot be read says nothing and is reported in the log:
    /// one bad worker takes nobody else down. But hooks that were bound stay bound: the server can be made to write its own answers
    /// over them, and a guard does not go away by what nobody can read.
    pub(super) fn read(key: &str, body: &[u8], known: Option<&Self>) -> Self {
        let of = Digest::of(body);
        if let Some(known) = known.filter(|known| known.of == of) {
            return known.clone();
        }
        let says = match (says(key, body), known.map(|known| &known.says)) {
            (Says::Unreadable, Some(Says::Hooks(bound))) => Says::Hooks(Arc::clone(bound)),
            (says, _) => says,
        };
        Self { of, says }
    }
}

fn says(key: &str, body: &[u8]) -> Says {
    // The broker lets a worker write its own keys only; what such an entry says of itself counts no further.
    if key.starts_with("worker.")
        && let Some(worker) = read::<registry::Worker>(key, body)
        && *key == super::worker_key(worker.name.as_str(), worker.incarnation.as_str())
    {
        Says::Worker(Arc::new(worker))
    } else if key.starts_with("hooks.") {
        match read::<registry::Hooks>(key, body) {
            Some(hooks) if *key == super::hooks_key(hooks.name.as_str()) => {
                Says::Hooks(Arc::new(hooks))
            }
            _ => Says::Unreadable,
        }
    } else {
        Says::Nothing
    }
}

/// Builds the catalog from the entries by key.
pub(super) fn build(entries: &BTreeMap<String, Entry>) -> Catalog {
    let mut catalog = Catalog::default();
    for (key, entry) in entries {
        match &entry.says {
            Says::Worker(worker) => catalog.workers.push(Arc::clone(worker)),
            Says::Hooks(hooks) => {
                let bound = hooks.bindings.iter().cloned();
                let name = hooks.name.to_string();
                catalog
                    .hooks
                    .extend(bound.map(|binding| (binding, name.clone())));
            }
            Says::Unreadable => {
                let name = key.trim_start_matches("hooks.");
                catalog.unreadable_hooks.push(name.to_owned());
            }
            Says::Nothing => {}
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
                    (Arc::clone(contract), worker.name.to_string()),
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

    fn worker(name: &str, incarnation: &str, functions: &[(&str, &str)]) -> (String, Vec<u8>) {
        let entry = registry::Worker {
            name: WorkerName::parse(name).expect("a name"),
            incarnation: Incarnation::parse(incarnation).expect("an incarnation"),
            version: "0.1.0".to_owned(),
            description: String::new(),
            functions: functions
                .iter()
                .map(|(id, description)| {
                    Arc::new(Contract::new::<(), ()>(function(id), description))
                })
                .collect(),
        };
        (
            format!("worker.{name}.{incarnation}"),
            serde_json::to_vec(&entry).expect("json"),
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

    fn catalog<const N: usize>(entries: [(String, Vec<u8>); N]) -> Catalog {
        build(&BTreeMap::from(entries.map(|(key, body)| {
            let entry = Entry::read(&key, &body, None);
            (key, entry)
        })))
    }

    #[test]
    fn the_newest_incarnation_counts() {
        let catalog = catalog([
            worker("fs", "01b", &[("fs::read", "new")]),
            worker("fs", "01a", &[("fs::read", "old"), ("fs::gone", "old")]),
        ]);
        assert_eq!(catalog.workers.len(), 2);
        assert_eq!(catalog.instances("fs"), 2);
        let description = |id: &str| catalog.functions[&function(id)].0.description.clone();
        assert_eq!(description("fs::read"), "new");
        assert_eq!(description("fs::gone"), "old");
    }

    #[test]
    fn what_two_workers_claim_is_served_by_neither() {
        let catalog = catalog([
            worker("good", "1", &[("fs::read", ""), ("good::one", "")]),
            worker("evil", "2", &[("fs::read", "")]),
        ]);
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
        let catalog = catalog([
            worker("sandbox", "1", &[("fs::read", "ours")]),
            worker("evil", "2", &[("fs::read", "theirs"), ("evil::x", "")]),
            ("worker.evil.9".to_owned(), forged),
        ]);
        assert_eq!(catalog.functions[&function("fs::read")].1, "sandbox");
        assert_eq!(
            catalog.functions[&function("fs::read")].0.description,
            "ours"
        );
        assert_eq!(catalog.functions.len(), 2, "{:?}", catalog.functions.keys());
        assert_eq!(catalog.conflicts(), BTreeMap::new());
    }

    #[test]
    fn a_registration_that_is_renewed_is_read_once() {
        let (key, body) = worker("fs", "01a", &[("fs::read", "old")]);
        let first = Entry::read(&key, &body, None);
        let again = Entry::read(&key, &body, Some(&first));
        let (_, changed) = worker("fs", "01a", &[("fs::read", "new")]);
        let changed = Entry::read(&key, &changed, Some(&again));
        let worker = |entry: &Entry| match &entry.says {
            Says::Worker(worker) => Arc::clone(worker),
            other => panic!("{other:?}"),
        };
        assert!(Arc::ptr_eq(&worker(&first), &worker(&again)));
        assert_eq!(worker(&changed).functions[0].description, "new");
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
        let catalog = catalog([
            (
                "hooks.gate".to_owned(),
                serde_json::to_vec(&hooks).expect("json"),
            ),
            ("hooks.bad".to_owned(), b"{".to_vec()),
            ("worker.bad.1".to_owned(), b"[]".to_vec()),
            ("else".to_owned(), Vec::new()),
        ]);
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
        assert_eq!(catalog.unreadable_hooks, ["bad"]);
    }

    /// What the server answers can be sent over an entry by whoever may ask it anything.
    #[test]
    fn hooks_stay_bound_when_their_entry_is_overwritten_with_what_nobody_can_read() {
        let hooks = registry::Hooks {
            name: WorkerName::parse("guard").expect("a name"),
            bindings: vec![binding(Point::PreTrigger, Stage::Judge, 0, "guard::look")],
        };
        let body = serde_json::to_vec(&hooks).expect("json");
        let answer = br#"{"stream":"KV_registry","seq":116}"#;
        let bound = Entry::read("hooks.guard", &body, None);
        let overwritten = Entry::read("hooks.guard", answer, Some(&bound));
        let again = Entry::read("hooks.guard", b"", Some(&overwritten));
        let catalog = build(&BTreeMap::from([("hooks.guard".to_owned(), again)]));
        assert_eq!(catalog.hooks_at(Point::PreTrigger).count(), 1);
        assert!(catalog.unreadable_hooks.is_empty());
        // Who begins afterwards knows only that something was bound.
        let found = Entry::read("hooks.guard", answer, None);
        let catalog = build(&BTreeMap::from([("hooks.guard".to_owned(), found)]));
        assert_eq!(catalog.unreadable_hooks, ["guard"]);
    }
}
