//! Who may know whom.

use serde_json::Value;

use super::tree::{assert_none, code, is_test, packages, sources, text};

/// What `protocol` and `core` may use: pure code, without runtime, clock, randomness, file or network.
const PURE: &[&str] = &[
    "globset",
    "regex",
    "schemars",
    "serde",
    "serde_json",
    "sha2",
    "teamster-protocol",
    "thiserror",
    "uuid",
    "yaml_serde",
];

/// Heavy dependencies and the only packages that may name them.
const OWNERS: &[(&str, &[&str])] = &[
    ("anyhow", &["teamster"]),
    ("async-nats", &["teamster-mesh"]),
    ("axum", &["teamster-gateway"]),
    ("clap", &["teamster"]),
    ("landlock", &["teamster-sandbox"]),
    ("opentelemetry", &["teamster-telemetry"]),
    ("opentelemetry-otlp", &["teamster-telemetry"]),
    ("opentelemetry_sdk", &["teamster-telemetry"]),
    (
        "reqwest",
        &[
            "teamster-router",
            "teamster-telegram",
            "teamster-gateway",
            "teamster-telemetry",
        ],
    ),
    ("rmcp", &["teamster-mcp", "teamster-gateway"]),
    ("rusqlite", &["teamster-session"]),
    ("seccompiler", &["teamster-sandbox"]),
    ("tracing-opentelemetry", &["teamster-telemetry"]),
    ("tracing-subscriber", &["teamster-telemetry"]),
];

/// The names that `package` depends on, with the kind: empty, `dev` or `build`.
fn dependencies(package: &Value) -> impl Iterator<Item = (&str, &str)> {
    package["dependencies"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|dependency| (text(dependency, "name"), text(dependency, "kind")))
}

/// The packages of the workspace that `package` may depend on outside of its tests.
fn may_know(package: &str) -> &'static [&'static str] {
    match package {
        "teamster-protocol" | "teamster-telemetry" => &[],
        "teamster-core" => &["teamster-protocol"],
        "teamster-mesh" => &["teamster-protocol", "teamster-telemetry"],
        "teamster-testkit" => &["teamster-mesh", "teamster-protocol"],
        _ => &[
            "teamster-core",
            "teamster-mesh",
            "teamster-protocol",
            "teamster-telemetry",
        ],
    }
}

#[test]
fn a_worker_never_depends_on_another_worker() {
    let mut places = Vec::new();
    for package in packages() {
        let name = text(package, "name");
        for (dependency, kind) in dependencies(package) {
            let is_ours = dependency.starts_with("teamster-");
            let is_allowed = name == "teamster"
                || may_know(name).contains(&dependency)
                || (kind == "dev" && dependency == "teamster-testkit");
            if is_ours && !is_allowed {
                places.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert_none(
        "workers meet on subjects, with types from protocol",
        &places,
    );
}

#[test]
fn testkit_is_a_dev_dependency_only() {
    let places: Vec<String> = packages()
        .iter()
        .filter(|package| {
            dependencies(package)
                .any(|(dependency, kind)| dependency == "teamster-testkit" && kind != "dev")
        })
        .map(|package| text(package, "name").to_owned())
        .collect();
    assert_none("testkit never ships", &places);
}

#[test]
fn protocol_and_core_depend_on_pure_code_only() {
    let mut places = Vec::new();
    for package in packages() {
        let name = text(package, "name");
        if !["teamster-protocol", "teamster-core"].contains(&name) {
            continue;
        }
        for (dependency, kind) in dependencies(package) {
            if kind != "dev" && !PURE.contains(&dependency) {
                places.push(format!("{name} -> {dependency}"));
            }
        }
        let uuid = package["dependencies"]
            .as_array()
            .and_then(|list| list.iter().find(|one| text(one, "name") == "uuid"))
            .map(|uuid| uuid["features"].to_string())
            .unwrap_or_default();
        for feature in ["\"v1\"", "\"v4\"", "\"v6\"", "\"v7\""] {
            if uuid.contains(feature) {
                places.push(format!("{name} -> uuid with {feature}"));
            }
        }
    }
    assert_none("time, ids and files come in as arguments", &places);
}

#[test]
fn protocol_and_core_know_no_clock_file_network_environment_or_thread() {
    let forbidden = [
        "SystemTime::now",
        "Instant::now",
        "std::env",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "now_v7",
        "new_v4",
    ];
    let mut places = Vec::new();
    for (name, text) in sources() {
        if !name.starts_with("workers/protocol/src") && !name.starts_with("workers/core/src") {
            continue;
        }
        for (line, code) in code(text) {
            for word in forbidden {
                if code.contains(word) && !is_test(name, text, line) {
                    places.push(format!("{name}:{line} {word}"));
                }
            }
        }
    }
    assert_none("decide in pure code, act at the edge", &places);
}

#[test]
fn a_heavy_dependency_has_one_owner() {
    let mut places = Vec::new();
    for package in packages() {
        let name = text(package, "name");
        for (dependency, _) in dependencies(package) {
            let owners = OWNERS.iter().find(|(heavy, _)| *heavy == dependency);
            if owners.is_some_and(|(_, owners)| !owners.contains(&name)) {
                places.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert_none("ask the owner of a heavy dependency", &places);
}
