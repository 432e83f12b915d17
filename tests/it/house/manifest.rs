//! What every manifest of the house says alike.

use super::tree::{assert_none, files, packages, relative, text};

#[test]
fn the_minimum_rust_is_the_pinned_tool_chain() {
    let toolchain = &files()["rust-toolchain.toml"];
    let channel = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = \""))
        .and_then(|rest| rest.strip_suffix('"'))
        .expect("a channel");
    for package in packages() {
        let minimum = text(package, "rust_version");
        assert!(
            !minimum.is_empty() && channel.starts_with(&format!("{minimum}.")),
            "{}: rust-version {minimum:?}, tool chain {channel}",
            text(package, "name")
        );
    }
}

#[test]
fn packages_share_edition_licence_and_lints() {
    for package in packages() {
        let name = text(package, "name");
        assert_eq!(text(package, "edition"), "2024", "{name}");
        assert_eq!(text(package, "license"), "Apache-2.0", "{name}");
        assert!(!text(package, "description").is_empty(), "{name}");
        let manifest = &files()[&relative(text(package, "manifest_path"))];
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name}: lints are the workspace's"
        );
    }
}

#[test]
fn versions_stand_in_the_workspace_manifest_only() {
    let mut places = Vec::new();
    for (name, manifest) in files() {
        if name == "Cargo.toml" || !name.ends_with("/Cargo.toml") {
            continue;
        }
        for (index, line) in manifest.lines().enumerate() {
            if line.contains("version = \"") {
                places.push(format!("{name}:{} {line}", index + 1));
            }
        }
    }
    assert_none("a version belongs to [workspace.dependencies]", &places);
}

#[test]
fn a_worker_has_at_most_one_integration_binary() {
    for package in packages() {
        let name = text(package, "name");
        let tests: Vec<&str> = package["targets"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|target| target["kind"][0] == "test")
            .map(|target| text(target, "name"))
            .collect();
        let allowed: &[&str] = if name == "teamster" {
            &["it", "crash"]
        } else {
            &["it"]
        };
        assert!(
            tests.iter().all(|test| allowed.contains(test)),
            "{name}: {tests:?}; each binary is linked anew"
        );
    }
}
