//! Rules that each source file obeys.

use std::collections::BTreeSet;

use super::tree::{assert_none, code, files, is_test, packages, relative, sources, text};

/// Lines of a file. Past 500 it should be split by noun; here it must be.
const LINES_MAX: usize = 700;

/// The only file of the sandbox that makes a process.
const SPAWN: &str = "workers/sandbox/src/stage.rs";

/// The only file with a `sleep` that tests may use, inside of a bounded wait.
const WAIT: &str = "workers/testkit/src/wait.rs";

#[test]
fn every_file_begins_with_what_it_owns() {
    let places: Vec<String> = sources()
        .filter(|(_, text)| {
            let first = text.lines().find(|line| !line.trim().is_empty());
            !first.is_some_and(|line| line.starts_with("//! ") || line.starts_with("#!["))
                || !text.lines().any(|line| line.starts_with("//! "))
        })
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_none("module docs (`//!`) come first", &places);
}

#[test]
fn every_tracked_source_file_is_a_module() {
    let mut reached = BTreeSet::new();
    for package in packages() {
        for target in package["targets"].as_array().expect("a list") {
            let file = relative(text(target, "src_path"));
            let folder = parent(&file);
            reach(&file, folder, &mut reached);
        }
    }
    let places: Vec<String> = sources()
        .filter(|(name, _)| !reached.contains(*name))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_none("no `mod` line leads to the file", &places);
}

/// Adds `file` and what its `mod name;` lines lead to. Children of `file` live in `folder`.
fn reach(file: &str, folder: &str, reached: &mut BTreeSet<String>) {
    let Some(text) = files().get(file) else {
        return;
    };
    if !reached.insert(file.to_owned()) {
        return;
    }
    for (_, line) in code(text) {
        let line = line.trim();
        let Some(name) = line
            .strip_suffix(';')
            .and_then(|line| line.rsplit_once("mod "))
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
            .map(|(_, name)| name)
        else {
            continue;
        };
        let inner = format!("{folder}/{name}");
        reach(&format!("{inner}.rs"), &inner, reached);
        reach(&format!("{inner}/mod.rs"), &inner, reached);
    }
}

fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let places: Vec<String> = sources()
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    assert_none("split by noun", &places);
}

#[test]
fn no_test_sleeps() {
    let sleep = concat!("sleep", "(");
    let mut places = Vec::new();
    for (name, text) in sources().filter(|(name, _)| *name != WAIT) {
        for (line, code) in code(text) {
            if code.contains(sleep) && is_test(name, text, line) {
                places.push(format!("{name}:{line}"));
            }
        }
    }
    assert_none("wait for a state, bounded (testkit)", &places);
}

/// SEC-52: there is no second way to run something. Whoever starts a process has one of these rooms; of the workers that a
/// model's call reaches only the sandbox does, and there it is one function in one file.
#[test]
fn sec_52_processes_are_started_in_known_rooms_only() {
    let rooms = [
        "src/cli/",
        "workers/mesh/src/broker/",
        "workers/testkit/",
        // A benchmark measures what it is compared with.
        "workers/sandbox/benches/",
        SPAWN,
    ];
    let ways = [
        concat!("Command", "::new("),
        concat!("Command", "::from("),
        "execv",
        "posix_spawn",
        "nix::unistd::fork",
    ];
    let mut places = Vec::new();
    for (name, text) in sources() {
        if name.starts_with("tests/") || rooms.iter().any(|room| name.starts_with(room)) {
            continue;
        }
        for (line, code) in code(text) {
            if ways.iter().any(|way| code.contains(way)) && !is_test(name, text, line) {
                places.push(format!("{name}:{line}"));
            }
        }
    }
    assert_none("a process is started by the room that owns it", &places);
    let ours = files().get(SPAWN).expect("the stages");
    let starts = code(ours).filter(|(_, line)| ways.iter().any(|way| line.contains(way)));
    assert_eq!(starts.count(), 1, "{SPAWN} has one way to start a process");
}

#[test]
fn no_test_is_switched_off() {
    let ignore = concat!("#[", "ignore");
    let places: Vec<String> = sources()
        .filter(|(_, text)| text.contains(ignore))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_none("assert what is true today instead", &places);
}

#[test]
fn a_lint_is_lifted_with_a_reason() {
    let mut places = Vec::new();
    for (name, text) in sources() {
        for opening in ["[allow(", "[expect(", "cfg_attr(test, allow("] {
            for (at, _) in text.match_indices(opening) {
                let rest = &text[at..];
                let end = rest.find(")]").unwrap_or(rest.len());
                let is_code = !text[..at].rsplit('\n').next().is_some_and(is_comment);
                if is_code && !rest[..end].contains("reason = ") {
                    let line = text[..at].lines().count();
                    places.push(format!("{name}:{line}"));
                }
            }
        }
    }
    // The openings above stand in strings of this file.
    places.retain(|place| !place.starts_with("tests/it/house/source.rs"));
    assert_none("say why with `reason = \"...\"`", &places);
}

fn is_comment(before: &str) -> bool {
    before.contains("//")
}

#[test]
fn no_file_knows_the_machine_that_it_was_written_on() {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut places = Vec::new();
    for (name, text) in files() {
        for (index, line) in text.lines().enumerate() {
            let is_absolute = |(at, _): (usize, &str)| {
                !line[..at].ends_with(|before: char| {
                    before.is_alphanumeric() || "._-}$~>".contains(before)
                })
            };
            if folders
                .iter()
                .any(|folder| line.match_indices(folder).any(is_absolute))
            {
                places.push(format!("{name}:{}", index + 1));
            }
        }
    }
    assert_none("paths come from configuration", &places);
}
