//! The sections that belong to workers, by name: how each is read, checked and shown. A new worker is one line more.

use std::time::Duration;

use serde_json::Value;
use teamster_mesh::config::{Problem, Section, parse};

use super::{Config, layer};

/// One worker's section.
pub struct Kind {
    /// The section's name, which is the worker's.
    pub name: &'static str,
    /// Keys, with dots, whose change counts from the worker's next start only.
    pub cold: &'static [&'static str],
    /// Keys, with dots, that only the machine's own layers may set.
    pub local: &'static [&'static str],
    /// Keys whose change may count later for turns, and how much.
    late: (&'static [&'static str], Duration),
    check: fn(&Value) -> Result<(), Problem>,
    of: fn(&Config) -> Value,
}

/// All sections of workers. The section `mesh` belongs to none, and counts at the start only.
pub const SECTIONS: [Kind; 6] = [
    kind::<crate::harness::Config>("harness", |config| value(&config.harness)),
    kind::<teamster_router::Config>("router", |config| value(&config.router)),
    kind::<teamster_approval_gate::Config>("approval-gate", |config| value(&config.approval_gate)),
    kind::<teamster_context::Config>("context", |config| value(&config.context)),
    kind::<teamster_sandbox::Config>("sandbox", |config| value(&config.sandbox)),
    kind::<teamster_session::Config>("session", |config| value(&config.session)),
];

const fn kind<C: Section>(name: &'static str, of: fn(&Config) -> Value) -> Kind {
    Kind {
        name,
        cold: C::COLD,
        local: C::LOCAL,
        late: C::LATE,
        check: |section| parse::<C>(section).map(drop),
        of,
    }
}

fn value(section: &impl serde::Serialize) -> Value {
    serde_json::to_value(section).unwrap_or_default()
}

/// The section of a name.
pub fn named(name: &str) -> Option<&'static Kind> {
    SECTIONS.iter().find(|kind| kind.name == name)
}

impl Kind {
    /// What of a configuration is this section's.
    pub fn of(&self, config: &Config) -> Value {
        (self.of)(config)
    }

    /// Whether there is a key at `path`, set or not: whoever reads the section takes a value there or dislikes the value, and does
    /// not say that nobody knows the field.
    pub fn has(&self, path: &[String]) -> bool {
        let compiled_in = Config::compiled_in().map_or(Value::Null, |config| self.of(&config));
        let is_below_a_value = (1..path.len()).any(|length| {
            let above = path
                .get(..length)
                .and_then(|above| super::path::get(&compiled_in, above));
            above.is_some_and(|value| !value.is_object() && !value.is_null())
        });
        let over = super::path::set(Value::Null, path, Value::Array(Vec::new()));
        let says_unknown = || match self.check(&compiled_in, &over) {
            Ok(()) => false,
            Err(problem) => problem.problem.contains("unknown field"),
        };
        !is_below_a_value && !says_unknown()
    }

    /// Whether a change of the key at `path` counts without a start.
    pub fn is_hot(&self, path: &[String]) -> bool {
        let key = super::path::join(path);
        !self.cold.contains(&key.as_str())
    }

    /// How much later a change of `value` at `path` may count for turns, where it does: what it says is remembered elsewhere.
    pub fn late(&self, path: &[String], value: &Value) -> Option<Duration> {
        let (names, by) = self.late;
        let is_one = |path: &[String]| path.iter().any(|key| names.contains(&key.as_str()));
        let mut leaves = layer::leaves(value).into_iter();
        (is_one(path) || leaves.any(|(below, _)| is_one(&below))).then_some(by)
    }

    /// Checks `over`, which is set live, on top of `base`, which is good by itself, by the code that puts it in force. The problem names the key.
    pub fn check(&self, base: &Value, over: &Value) -> Result<(), Problem> {
        if let Some(path) = layer::clash(base, over) {
            return Err(Problem::of(&super::path::join(&path), "must be a mapping"));
        }
        let is_set = |key: &&&str| {
            let path = super::path::parse(key).unwrap_or_default();
            super::path::says(over, &path)
        };
        if let Some(key) = self.local.iter().find(is_set) {
            let said = "is set on the worker's own machine only: write it into its config.yaml";
            return Err(Problem::of(key, said));
        }
        let Err(problem) = (self.check)(&layer::merge(base.clone(), over.clone())) else {
            return Ok(());
        };
        if problem.key.is_some() {
            return Err(problem);
        }
        let culprit = layer::culprit(over, |alone| {
            let error = (self.check)(&layer::merge(base.clone(), alone)).err()?;
            Some(error.problem)
        });
        Err(match culprit {
            Some((path, number, said)) if !path.is_empty() => {
                let key = super::path::join(&path);
                match number {
                    Some(number) => Problem::of(&key, format_args!("element {number}: {said}")),
                    None => Problem::of(&key, said),
                }
            }
            _ => problem,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conf_1_a_problem_names_the_key_that_makes_it() {
        let config = Config::compiled_in().expect("valid");
        for (section, over, key, says) in [
            ("harness", json!({"default_max_turns": 32}), None, ""),
            (
                "harness",
                json!({"default_max_turns": -1, "max_calls": 2}),
                Some("default_max_turns"),
                "-1",
            ),
            (
                "harness",
                json!({"max_calls": 2, "max_turns": 3}),
                Some("max_turns"),
                "unknown field",
            ),
            (
                "harness",
                json!({"default_max_turns": 0}),
                Some("default_max_turns"),
                "1 or more",
            ),
            (
                "harness",
                json!({"default_model": "gpt"}),
                Some("default_model"),
                "provider/name",
            ),
            (
                "harness",
                json!({"required_hooks": ["a b"]}),
                Some("required_hooks"),
                "a b",
            ),
            (
                "router",
                json!({"retry": {"attempts_max": "x"}}),
                Some("retry.attempts_max"),
                "expected a whole number",
            ),
            (
                "router",
                json!({"providers": {"m": {"base_url": "ftp://x"}}}),
                Some("providers.m"),
                "http",
            ),
            (
                "approval-gate",
                json!({"policy_file": "p.yaml"}),
                Some("policy_file"),
                "absolute",
            ),
            (
                "router",
                json!({"retry": [3]}),
                Some("retry"),
                "must be a mapping",
            ),
            (
                "context",
                json!({"default_window": 0}),
                Some("default_window"),
                "1 or more",
            ),
            (
                "sandbox",
                json!({"protected": ["a{"]}),
                Some("protected"),
                "glob",
            ),
        ] {
            let kind = named(section).expect(section);
            let base = kind.of(&config);
            match (kind.check(&base, &over), key) {
                (Ok(()), None) => {}
                (Err(problem), Some(key)) => {
                    assert_eq!(problem.key.as_deref(), Some(key), "{over}: {problem}");
                    assert!(problem.problem.contains(says), "{over}: {problem}");
                }
                (checked, _) => panic!("{over}: {checked:?}"),
            }
        }
        assert!(
            !named("harness")
                .expect("there")
                .is_hot(&["sessions".to_owned()])
        );
        assert!(named("mesh").is_none());
    }

    #[test]
    fn keys_that_are_there_are_told_from_slips() {
        for (section, key, is_there) in [
            ("harness", "", true),
            ("harness", "default_model", true),
            ("harness", "default_max_turns", true),
            ("harness", "nope", false),
            ("harness", "default_model.x", false),
            ("router", "retry.base_ms", true),
            ("router", "retry.nope", false),
            ("router", "providers.mine", true),
            ("router", "providers.mine.base_url", true),
            ("router", "providers.mine.nope", false),
            ("router", "default_model", true),
            ("context", "windows.\"openai/x-4.1\"", true),
            ("sandbox", "protected", true),
            ("sandbox", "helper", true),
            ("approval-gate", "policy_file", true),
        ] {
            let path = super::super::path::parse(key).expect(key);
            assert_eq!(
                named(section).expect(section).has(&path),
                is_there,
                "{section}.{key}"
            );
        }
    }

    #[test]
    fn what_protects_a_machine_is_not_set_for_the_whole_mesh() {
        let config = Config::compiled_in().expect("valid");
        for (section, over, key) in [
            ("sandbox", json!({"helper": "/bin/sh"}), "helper"),
            ("sandbox", json!({"shown": ["/root"]}), "shown"),
            ("session", json!({"file": "/x"}), "file"),
        ] {
            let kind = named(section).expect(section);
            let problem = kind.check(&kind.of(&config), &over).expect_err(section);
            assert_eq!(problem.key.as_deref(), Some(key));
            assert!(problem.problem.contains("own machine"), "{problem}");
        }
    }

    /// What a section shows of itself is what it is read from.
    #[test]
    fn each_section_is_read_back_from_what_it_shows() {
        let config = Config::compiled_in().expect("valid");
        for kind in &SECTIONS {
            let shown = kind.of(&config);
            kind.check(&shown, &json!({})).expect(kind.name);
            assert!(crate::host::WORKERS.contains(&kind.name));
        }
    }
}
