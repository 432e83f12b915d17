//! `docs/coverage.md` says for each known failure of harnesses, and for each security case, which test shows it or what
//! it waits for. Here it is held to the tree.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{assert_none, files, sources};

const PAGE: &str = "docs/coverage.md";

/// The families of cases, and how many each has.
const FAMILIES: &[(&str, usize)] = &[
    ("STREAM", 7),
    ("HIST", 7),
    ("RETRY", 3),
    ("CTX", 5),
    ("COST", 3),
    ("LOOP", 3),
    ("MCP", 12),
    ("DUR", 9),
    ("CONC", 2),
    ("BUS", 5),
    ("APPR", 9),
    ("HOOK", 2),
    ("LEAK", 3),
    ("SUB", 2),
    ("SBX", 3),
    ("CHAN", 5),
    ("WEB", 1),
    ("TIME", 5),
    ("CONF", 2),
    ("SKILL", 1),
    ("UNI", 1),
    ("OBS", 2),
    ("CLI", 1),
    ("EVAL", 1),
    ("SEC", 61),
];

#[test]
fn every_case_has_a_row() {
    let rows = rows();
    let missing: Vec<String> = cases().filter(|case| !rows.contains_key(case)).collect();
    assert_none("docs/coverage.md lists every case", &missing);
    let known: BTreeSet<String> = cases().collect();
    let unknown: Vec<String> = rows
        .into_keys()
        .filter(|case| !known.contains(case))
        .collect();
    assert_none("no such case", &unknown);
}

#[test]
fn a_row_names_tests_of_the_tree_or_what_it_waits_for() {
    let functions = functions();
    let mut places = Vec::new();
    for (case, row) in rows() {
        let tests = tests_of(row);
        if tests.is_empty() && !row.contains("waits for: ") {
            places.push(format!("{case}: neither a test nor `waits for: ...`"));
        }
        for test in tests {
            if !functions.contains(test) {
                places.push(format!("{case}: there is no test {test}"));
            }
        }
    }
    assert_none("docs/coverage.md is true", &places);
}

#[test]
fn every_test_that_carries_a_case_stands_in_its_row() {
    let rows = rows();
    let functions = functions();
    let mut places = Vec::new();
    for case in cases() {
        let prefix = format!("{}_", case.to_lowercase().replace('-', "_"));
        let row = rows.get(&case).copied().unwrap_or_default();
        let listed = tests_of(row);
        for test in functions.iter().filter(|test| test.starts_with(&prefix)) {
            if !listed.contains(test) {
                places.push(format!("{case}: {test}"));
            }
        }
    }
    assert_none("docs/coverage.md must list the test", &places);
}

fn cases() -> impl Iterator<Item = String> {
    FAMILIES
        .iter()
        .flat_map(|(family, count)| (1..=*count).map(move |number| format!("{family}-{number}")))
}

/// The page's rows by case: each begins with `| CASE |`.
fn rows() -> BTreeMap<String, &'static str> {
    let page = files().get(PAGE).expect(PAGE);
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let Some((case, row)) = line
            .strip_prefix("| ")
            .and_then(|line| line.split_once(" | "))
        else {
            continue;
        };
        let is_case = case
            .split_once('-')
            .is_some_and(|(_, number)| number.parse::<usize>().is_ok());
        if is_case {
            let before = rows.insert(case.to_owned(), row);
            assert!(before.is_none(), "{case} has two rows");
        }
    }
    rows
}

/// The names in backticks that have the form of a test's name.
fn tests_of(row: &str) -> Vec<&str> {
    row.split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| {
            name.matches('_').count() >= 2
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect()
}

/// The names of the tests of the tree: functions without arguments, or of a property test, below `#[test]`.
fn functions() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for (_, text) in sources() {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line == "#[test]" || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some((_, rest)) = line.split_once("fn ")
                && std::mem::take(&mut is_test)
            {
                names.extend(rest.split('(').next());
            }
        }
    }
    names
}
