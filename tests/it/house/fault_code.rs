//! Each fault code of the sources has its line in `docs/errors.md`, and the page names no other.

use std::collections::BTreeSet;

use super::tree::{assert_none, code, files, is_test, sources};

const PAGE: &str = "docs/errors.md";

/// Endings of file names, which look like codes.
const ENDINGS: &[&str] = &[
    "conf",
    "creds",
    "db",
    "env",
    "example",
    "git",
    "json",
    "jsonl",
    "limit_in_bytes",
    "lock",
    "log",
    "max",
    "md",
    "nk",
    "out",
    "pid",
    "rs",
    "sock",
    "sqlite",
    "toml",
    "txt",
    "types",
    "yaml",
    "yml",
];

/// First words of names of telemetry, which look like codes.
const TELEMETRY: &[&str] = &["error", "otel", "service", "teamster"];

/// Codes whose second word is also the ending of a file name.
const CODES: &[&str] = &["fs.git"];

/// Codes that no literal holds: `model.` and the kind of a completion's error are put together by the fold.
const BUILT: &[&str] = &[
    "model.transient",
    "model.rate_limited",
    "model.auth",
    "model.quota",
    "model.rejected",
    "model.not_configured",
];

#[test]
fn every_fault_code_is_explained() {
    let written = in_sources();
    assert!(written.contains("mesh.timeout"), "the sources were read");
    let explained = in_page();
    let missing: Vec<String> = written.difference(&explained).cloned().collect();
    assert_none("docs/errors.md must explain", &missing);
    let stale: Vec<String> = explained.difference(&written).cloned().collect();
    assert_none("docs/errors.md explains what nothing answers", &stale);
}

#[test]
fn an_explanation_says_what_it_means_and_what_to_do() {
    for row in rows() {
        let [_, meaning, action] = row.as_slice() else {
            panic!("three columns: {row:?}");
        };
        assert!(meaning.len() > 10 && action.len() > 10, "{row:?}");
    }
}

/// String literals of product code that have the form of a code.
fn in_sources() -> BTreeSet<String> {
    let mut codes: BTreeSet<String> = BUILT.iter().copied().map(str::to_owned).collect();
    // A worker of an outsider has codes of its own, which no page of ours explains.
    for (name, text) in sources().filter(|(name, _)| !name.starts_with("examples/")) {
        let test_from = text
            .lines()
            .position(|line| line.trim() == "#[cfg(test)]")
            .unwrap_or(usize::MAX);
        for (line, code) in code(text) {
            if line > test_from || is_test(name, "", 0) {
                continue;
            }
            // Between two quotes of a line stands a literal, or what is between two literals: never a code.
            codes.extend(
                code.split('"')
                    .filter(|word| is_code(word))
                    .map(str::to_owned),
            );
        }
    }
    codes
}

fn is_code(word: &str) -> bool {
    let Some((worker, name)) = word.split_once('.') else {
        return false;
    };
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let is_code = is_name(worker) && is_name(name) && !TELEMETRY.contains(&worker);
    is_code && (CODES.contains(&word) || !ENDINGS.contains(&name))
}

/// The codes that the page explains.
fn in_page() -> BTreeSet<String> {
    let rows = rows();
    let codes: BTreeSet<String> = rows.iter().filter_map(|row| row.first().cloned()).collect();
    assert_eq!(codes.len(), rows.len(), "a code is explained once");
    codes
}

/// The rows of the page's tables whose first column is a code, in backticks there.
fn rows() -> Vec<Vec<String>> {
    let page = files().get(PAGE).expect(PAGE);
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        })
        .collect()
}
