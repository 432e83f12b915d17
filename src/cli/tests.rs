//! Every command that a page, a hint or an error names can be typed as it stands there.

use std::path::{Path, PathBuf};

use clap::{Parser as _, error::ErrorKind};

use super::{Cli, plain};

/// What stands for something that the reader puts in, and an example of it.
const EXAMPLES: &[(&str, &str)] = &[
    ("PROVIDER/NAME", "provider/name"),
    ("URL,URL,URL", "nats://a:1,nats://b:1"),
    ("NAME...", "router"),
    ("URL", "nats://a:1"),
    ("JSON", "{}"),
    ("COMMIT", "1"),
    ("SEQ", "1"),
    ("TOKENS", "1"),
    ("COMMAND", "run"),
];

/// The commands of a text: in backticks, or, in a page, on a line of their own inside of a block.
fn commands(path: &Path, text: &str) -> Vec<String> {
    // A text of the code may go on behind a backslash, one of a page on the next line.
    let joined: Vec<&str> = text
        .split("\\\n")
        .enumerate()
        .map(|(n, part)| if n == 0 { part } else { part.trim_start() })
        .collect();
    let joined = joined.concat().replace("\\\"", "\"");
    let mut found: Vec<String> = joined
        .split("`teamster ")
        .skip(1)
        .filter_map(|rest| rest.split_once('`'))
        .map(|(command, _)| command.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    if path.extension().is_some_and(|extension| extension == "md") {
        let lines = text.lines().filter_map(|line| {
            let command = line.strip_prefix("teamster ")?;
            let typed = command.split(" #").next().unwrap_or(command);
            Some(typed.trim().to_owned())
        });
        // Prose that begins with the name is no command: it has no backtick before it, and a sentence's end.
        found.extend(lines.filter(|line| !line.ends_with(['.', ':', ','])));
    }
    found
}

/// The words of a command as a shell reads them, up to a redirection.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '>' | '|') => break,
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A word with an example in the place of what the reader, or the code, puts in.
fn example(word: &str) -> String {
    if let Some((_, example)) = EXAMPLES.iter().find(|(name, _)| *name == word) {
        return (*example).to_owned();
    }
    let mut said = String::new();
    let mut rest = word;
    while word != "{}"
        && let Some((before, after)) = rest.split_once('{')
        && let Some((name, after)) = after.split_once('}')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || "_.:".contains(c))
    {
        said.push_str(before);
        said.push('1');
        rest = after;
    }
    if word == "{}" {
        "1".to_owned()
    } else {
        said + rest
    }
}

fn is_placeholder(word: &str) -> bool {
    word.contains('{')
        || !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '.')
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "tests" {
            files(&path, found);
        } else if path
            .extension()
            .is_some_and(|one| one == "md" || one == "rs")
            && name != "tests.rs"
        {
            found.push(path);
        }
    }
}

/// CLI-1: the next step that an error names, and each command of the pages, is understood.
#[test]
fn cli_1_every_command_that_is_named_can_be_typed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for folder in ["docs", "examples", "deploy", "src", "workers"] {
        files(&root.join(folder), &mut all);
    }
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in all {
        let text = std::fs::read_to_string(&path).expect("readable");
        for command in commands(&path, &text) {
            count += 1;
            let named = words(&command);
            let typed = named.iter().map(|word| example(word));
            let Err(error) =
                Cli::try_parse_from(std::iter::once("teamster".to_owned()).chain(typed))
            else {
                continue;
            };
            // A verb may be named without what it needs.
            let is_named = matches!(
                error.kind(),
                ErrorKind::DisplayHelp
                    | ErrorKind::DisplayVersion
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::MissingRequiredArgument
            );
            // What the reader, or the code, puts in may be of any form.
            let is_put_in = error.kind() == ErrorKind::ValueValidation
                && named.iter().any(|word| is_placeholder(word));
            if !is_named && !is_put_in {
                let place = path.strip_prefix(root).unwrap_or(&path).display();
                wrong.push(format!("{place}: teamster {command}: {error}"));
            }
        }
    }
    assert!(count > 80, "the pages name commands: {count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_word_is_told_in_words_and_fills_or_drives_no_screen() {
    for (arguments, says, never) in [
        (
            vec!["teamster", "events", "--after", "x"],
            "no whole number",
            "digit",
        ),
        (
            vec!["teamster", "sessions", "fork", "s", "--at", "0"],
            "is not 1 or more",
            "18446744073709551615",
        ),
        (
            vec!["teamster", "stop", "a\u{1b}[2Jb"],
            "\\u{1b}[2J",
            "\u{1b}",
        ),
    ] {
        let error = Cli::try_parse_from(&arguments).expect_err("wrong");
        let told = plain(&error.render().to_string());
        assert!(told.contains(says) && !told.contains(never), "{told:?}");
    }
    let long = "a".repeat(100_000);
    let error = Cli::try_parse_from(["teamster", "stop", &long]).expect_err("wrong");
    let told = plain(&error.render().to_string());
    assert!(told.len() < 1000, "{}", told.len());
    // Both the beginning and what is wrong with it are there.
    assert!(told.starts_with("error: invalid value 'aaa"), "{told}");
    assert!(told.contains("128 bytes"), "{told}");
}
