//! CLI-1 over every verb that the help names: no mesh, a dead server, a wrong configuration, an unknown id, a reader that
//! goes away. Standard output parses and the code is from the table, whatever happens.

use std::process::Output;

use serde_json::Value;

use super::{
    help::GOLDEN,
    place::{Place, code, document, lines, written_to},
};

/// The codes that the help publishes.
const CODES: [i32; 10] = [0, 1, 2, 3, 4, 5, 6, 69, 75, 130];

/// What a verb needs, and so what is expected where there is no mesh.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Needs {
    /// A mesh that has run before.
    Mesh,
    /// A mesh; it is started where none runs.
    Start,
    /// Nothing but this machine.
    Nothing,
    /// The files of this machine, where no mesh runs and no server is named.
    Files,
    /// It is a mesh itself.
    Server,
}
use Needs::{Files, Mesh, Nothing, Server, Start};

/// Where no server is. What stands before the `@` is never printed.
const DEAD: &str = "nats://somebody:hidden-word@127.0.0.1:1";
/// A session that is not there.
const NOBODY: &str = "nobody";

/// Each verb with arguments that can be understood, none of which names something that exists.
const VERBS: &[(&str, &[&str], Needs)] = &[
    ("demo", &[], Server),
    ("run", &["hi"], Start),
    ("chat", &[], Start),
    ("send", &[NOBODY, "hi"], Start),
    ("stop", &[NOBODY], Mesh),
    ("sessions ls", &[], Mesh),
    ("sessions show", &[NOBODY], Mesh),
    ("sessions search", &["words"], Mesh),
    ("sessions fork", &[NOBODY], Mesh),
    ("sessions rm", &[NOBODY, "--yes"], Mesh),
    ("sessions export", &[NOBODY, "-o", "export.jsonl"], Mesh),
    ("sessions verify", &["nothing.jsonl"], Nothing),
    ("sessions rename", &[NOBODY, "a title"], Mesh),
    ("sessions set-meta", &[NOBODY, "key=value"], Mesh),
    ("sessions tail", &[NOBODY], Mesh),
    ("sessions accept-loss", &[NOBODY, "--yes"], Mesh),
    ("events", &[], Mesh),
    ("cost", &[], Mesh),
    ("approvals ls", &[], Mesh),
    ("approvals show", &["apr_nobody"], Mesh),
    ("approvals approve", &["apr_nobody", "--yes"], Mesh),
    ("approvals deny", &["apr_nobody"], Mesh),
    ("approvals history", &[], Mesh),
    ("functions ls", &[], Mesh),
    ("functions info", &["fs::nothing"], Mesh),
    ("functions call", &["fs::nothing"], Mesh),
    ("policy explain", &["fs::write"], Mesh),
    ("config get", &[], Files),
    ("config set", &["harness.nothing", "7"], Mesh),
    ("config unset", &["harness.nothing"], Mesh),
    ("config apply", &["/dev/null"], Mesh),
    ("config explain", &["harness.nothing"], Files),
    ("config history", &["harness"], Mesh),
    ("workers ls", &[], Mesh),
    ("workers info", &["nobody"], Mesh),
    ("workers grant", &["nobody"], Nothing),
    ("workers revoke", &["nobody", "--yes"], Nothing),
    ("workers unbind", &["nobody"], Mesh),
    ("up", &[], Server),
    ("worker", &["router"], Server),
    ("doctor", &[], Nothing),
    ("completions", &["bash"], Nothing),
    ("man", &[], Nothing),
    ("deploy nats-accounts", &[], Nothing),
];

/// The verbs that the help shows: commands that have no commands of their own.
fn published() -> Vec<String> {
    let golden = std::fs::read_to_string(GOLDEN).expect("tests/golden/help.txt");
    golden
        .split("$ teamster ")
        .filter(|help| !help.contains("\nCommands:\n"))
        .filter_map(|help| help.split_once(" --help\n"))
        .map(|(verb, _)| verb.trim().to_owned())
        .filter(|verb| !verb.is_empty())
        .collect()
}

#[test]
fn cli_1_the_table_holds_every_verb() {
    let known: Vec<&str> = VERBS.iter().map(|(verb, ..)| *verb).collect();
    for verb in published() {
        assert!(known.contains(&verb.as_str()), "{verb} is not in the table");
    }
}

/// The arguments of a verb in one of the two forms that programs read.
fn arguments<'a>(
    verb: &'a str,
    sample: &'a [&'a str],
    more: &[&'a str],
    form: &'a str,
) -> Vec<&'a str> {
    let words = verb.split_whitespace();
    words
        .chain(sample.iter().copied())
        .chain(more.iter().copied())
        .chain([form])
        .collect()
}

/// Checks what holds for every ending; the failure's code, if it is one.
fn checked(arguments: &[&str], output: &Output) -> Option<String> {
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(CODES.contains(&code(output)), "{arguments:?}: {words}");
    let said = format!("{words}{}", String::from_utf8_lossy(&output.stdout));
    assert!(!said.contains("hidden-word"), "{arguments:?}: {said}");
    let last: Value = if arguments.last() == Some(&"--json") {
        document(output)
    } else {
        lines(output).pop().unwrap_or_default()
    };
    if code(output) == 0 {
        return None;
    }
    // What a check found is no error of the checking.
    let Some(failure) = last["error"]["code"].as_str() else {
        assert_eq!(
            (arguments[0], code(output)),
            ("doctor", 1),
            "{arguments:?}: {last}"
        );
        return None;
    };
    assert!(
        last["error"]["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{arguments:?}: {last}"
    );
    assert!(
        words.contains(failure),
        "{arguments:?}: the same in words: {words}"
    );
    assert!(!words.contains("panicked"), "{arguments:?}: {words}");
    Some(failure.to_owned())
}

#[tokio::test]
async fn cli_1_every_verb_tells_that_there_is_no_mesh() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let dead = ["--nats", DEAD];
    for (verb, sample, needs) in VERBS {
        // Both forms are printed by one function; every second verb is asked for the other one.
        let form = if verb.len() % 2 == 0 {
            "--json"
        } else {
            "--jsonl"
        };
        if *needs == Mesh {
            let arguments = arguments(verb, sample, &[], form);
            let output = place.run(&arguments).await;
            assert_eq!(
                checked(&arguments, &output).as_deref(),
                Some("mesh.not_running")
            );
            assert_eq!(code(&output), 69, "{arguments:?}");
        }
        if matches!(needs, Mesh | Start | Files) {
            let arguments = arguments(verb, sample, &dead, form);
            let output = place.run(&arguments).await;
            assert_eq!(
                checked(&arguments, &output).as_deref(),
                Some("mesh.unavailable"),
                "{arguments:?}"
            );
            assert_eq!(code(&output), 69, "{arguments:?}");
        }
        if matches!(needs, Nothing | Files) {
            let arguments = arguments(verb, sample, &[], form);
            checked(&arguments, &elsewhere.run(&arguments).await);
        }
    }
}

#[tokio::test]
async fn cli_1_every_verb_tells_that_the_configuration_is_wrong() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    std::fs::write(place.data().join("config.yaml"), "harness: [\n").expect("a file");
    for (verb, sample, needs) in VERBS {
        if *needs == Server && *verb != "up" {
            continue;
        }
        let arguments = arguments(verb, sample, &[], "--json");
        let output = place.run(&arguments).await;
        let failure = checked(&arguments, &output);
        if *needs == Start || *verb == "up" {
            assert_eq!(
                (failure.as_deref(), code(&output)),
                (Some("config.invalid"), 2),
                "{arguments:?}"
            );
        }
    }
}

/// What a running mesh says about what is not there, and what a reader that goes away does to it.
pub(super) async fn every_verb_ends_by_the_table(place: &Place) {
    for (verb, sample, needs) in VERBS {
        if matches!(needs, Server | Start) {
            continue;
        }
        for form in ["--json", "--jsonl"] {
            let arguments = arguments(verb, sample, &[], form);
            checked(&arguments, &place.run(&arguments).await);
        }
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let arguments = arguments(verb, sample, &["--quiet"], "--jsonl");
        let output = written_to(place, &arguments, writer).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !words.contains("write") || words.starts_with("error: "),
            "{arguments:?}: {words}"
        );
        assert!(CODES.contains(&code(&output)), "{arguments:?}: {words}");
    }
    let _ = std::fs::remove_file(place.workspace().join("export.jsonl"));
}
