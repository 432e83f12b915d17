//! What the functions declare.

use teamster_protocol::{Class, Data, Trust, Visibility};

use super::*;
use crate::{config::Config, functions::worker};

#[test]
fn every_function_declares_class_target_and_repeatability() {
    let worker = worker(Config::default());
    let declared: Vec<_> = worker
        .functions
        .iter()
        .filter(|function| function.contract.id.as_str().starts_with("fs::"))
        .map(|function| {
            let contract = &function.contract;
            assert_eq!(contract.target.as_deref(), Some("/path"));
            assert_eq!(contract.visibility, Visibility::Agent);
            assert_eq!(
                (contract.data, contract.trust),
                (Data::Personal, Trust::Untrusted)
            );
            assert_eq!(contract.timeout(), limits::FS_TIMEOUT);
            (contract.id.as_str(), contract.class, contract.idempotent)
        })
        .collect();
    assert_eq!(
        declared,
        [
            ("fs::read", Class::Read, false),
            ("fs::list", Class::Read, false),
            ("fs::find", Class::Read, false),
            ("fs::grep", Class::Read, false),
            ("fs::write", Class::Write, true),
            ("fs::edit", Class::Write, false),
        ]
    );
    assert_eq!(worker.name.as_str(), "sandbox");
}

#[test]
fn a_command_is_never_repeated_and_may_take_its_time() {
    let worker = worker(Config::default());
    let exec = worker.functions.last().expect("functions");
    let contract = &exec.contract;
    assert_eq!(contract.id.as_str(), "sandbox::exec");
    assert_eq!(
        (contract.class, contract.target.as_deref()),
        (Class::Exec, None)
    );
    assert_eq!(
        (contract.data, contract.trust),
        (Data::Personal, Trust::Untrusted)
    );
    assert_eq!(contract.visibility, Visibility::Agent);
    assert!(!contract.is_repeatable());
    assert!(
        contract.timeout()
            > limits::EXEC_WALL_MAX + limits::EXEC_TERM_GRACE + limits::EXEC_ANSWER_GRACE
    );
    let schema = serde_json::to_value(&contract.request).expect("JSON");
    assert_eq!(schema["required"], serde_json::json!(["argv"]));
    assert_eq!(schema["additionalProperties"], false);
}

/// APPR-4: what no call can do is excluded by the schema, so that nobody is asked about it.
#[test]
fn appr_4_a_schema_excludes_what_cannot_run() {
    let worker = worker(Config::default());
    for (function, property, keyword, bound) in [
        ("sandbox::exec", "argv", "minItems", 1),
        ("fs::write", "path", "minLength", 1),
        ("fs::write", "expected_sha256", "minLength", 64),
        ("fs::edit", "path", "minLength", 1),
    ] {
        let served = worker.functions.iter();
        let contract = served
            .map(|served| &served.contract)
            .find(|contract| contract.id.as_str() == function)
            .expect(function);
        let schema = serde_json::to_value(&contract.request).expect("JSON");
        let text = serde_json::to_string(&schema).expect("text");
        let own = &schema["properties"][property];
        let is_own = own[keyword] == bound;
        // An optional digest stands apart and is referred to.
        let is_shared =
            own.to_string().contains("Digest") && schema["$defs"]["Digest"][keyword] == bound;
        assert!(is_own || is_shared, "{function} {property}: {text}");
    }
}

#[test]
fn schemas_say_what_a_request_needs_and_refuse_the_rest() {
    let wants = [
        ("fs::read", vec!["path"]),
        ("fs::list", vec![]),
        ("fs::find", vec!["glob"]),
        ("fs::grep", vec!["pattern"]),
        ("fs::write", vec!["path", "content"]),
        ("fs::edit", vec!["path", "old", "new"]),
    ];
    for (function, (id, required)) in worker(Config::default()).functions.iter().zip(wants) {
        let schema = serde_json::to_value(&function.contract.request).expect("JSON");
        assert_eq!(function.contract.id.as_str(), id);
        assert_eq!(schema["additionalProperties"], false, "{id}");
        let stated = schema["required"].as_array().cloned().unwrap_or_default();
        assert_eq!(stated, required, "{id}");
        assert!(
            schema["properties"]["path"]["description"].is_string(),
            "{id}"
        );
    }
}

#[test]
fn configuration_is_checked_when_it_is_read() {
    let read = |text: &str| serde_json::from_str::<Config>(text);
    assert_eq!(read("{}").expect("valid"), Config::default());
    assert!(read(r#"{"protected": ["**/*.secret"]}"#).is_ok());
    for bad in [r#"{"protected": ["a{"]}"#, r#"{"protcted": []}"#] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
