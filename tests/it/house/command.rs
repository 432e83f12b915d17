//! A command that somebody is told to type does what it says whatever the ids, paths and names are that are put into it: no shell reads
//! them otherwise, and none is read as an option. A value of an option is written `--option={value}` and went through `text::shell`;
//! everything else went through `text::operand`, and options stand before it.

use super::tree::{assert_none, is_test, sources};

/// Placeholders that hold no word of somebody else: names of workers and sections, numbers, digests.
const HARMLESS: &[&str] = &[
    "digest",
    "earlier",
    "last",
    "section",
    "names",
    "worker",
    "IDLE_EXIT",
];

#[test]
fn what_is_put_into_a_command_is_quoted_for_a_shell() {
    let mut seen = 0;
    let mut found = Vec::new();
    for (name, text) in sources().filter(|(name, _)| !is_test(name, "", 0)) {
        if name.starts_with("examples/") || name.contains("testkit") {
            continue;
        }
        let product = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or(text);
        for literal in literals(product) {
            let commands = commands(&literal);
            for placed in commands.into_iter().flat_map(placeholders) {
                seen += 1;
                let is_harmless = HARMLESS.contains(&placed.name.as_str());
                if !is_harmless && !is_safe(product, &placed) {
                    found.push(format!("{name}: {{{}}} in {literal:?}", placed.name));
                }
            }
        }
    }
    assert!(seen > 30, "the commands were found: {seen}");
    assert_none(
        "a command must quote what is put into it: operands by text::operand, behind all options; values of options by text::shell, \
         as --option={value}",
        &found,
    );
}

/// What is put into a command, and where.
#[derive(Debug, PartialEq, Eq)]
struct Placed {
    name: String,
    /// Whether it is the value of an option, joined to it.
    is_value: bool,
    /// Whether an option follows in the same command.
    is_followed: bool,
}

/// Whether what is put there is made so that it can stand there.
fn is_safe(text: &str, placed: &Placed) -> bool {
    if placed.is_value {
        return is_made(text, &placed.name, "text::shell(");
    }
    !placed.is_followed && is_made(text, &placed.name, "text::operand(")
}

/// Whether a variable of that name is made by that.
fn is_made(text: &str, name: &str, by: &str) -> bool {
    let made = format!("let {name} =");
    let mut statements = text.match_indices(&made).map(|(at, _)| {
        let statement = text.get(at..).unwrap_or_default();
        statement.split(';').next().unwrap_or_default()
    });
    statements.any(|statement| statement.contains(by))
}

/// The string literals of a source, without the escapes of line ends.
fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in joined(text) {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once('"') {
            let end = end_of(after);
            found.push(after.get(..end).unwrap_or_default().to_owned());
            rest = after.get(end + 1..).unwrap_or_default();
        }
    }
    found
}

/// The lines of a source without comments; a line that ends in a backslash goes on in the next one.
fn joined(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("//") {
            continue;
        }
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| is_open) {
            Some(last) => last.push_str(line),
            None => lines.push(line.to_owned()),
        }
        is_open = goes_on;
    }
    lines
}

/// Where the next quote stands that is not escaped.
fn end_of(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return at,
            _ => is_escaped = false,
        }
    }
    text.len()
}

/// The commands in a literal: from the program's name to where the words of the sentence go on.
fn commands(literal: &str) -> Vec<&str> {
    literal
        .match_indices("teamster ")
        .filter_map(|(at, name)| {
            let after = literal.get(at + name.len()..)?;
            let is_verb = after.starts_with(|first: char| first.is_ascii_lowercase());
            let ends = ["`", ";", "\\n", " (", ": ", ", "];
            let end = ends.iter().filter_map(|end| after.find(end)).min();
            is_verb.then(|| after.get(..end.unwrap_or(after.len())))?
        })
        .collect()
}

/// What stands between braces.
fn placeholders(command: &str) -> Vec<Placed> {
    let places = command.match_indices('{');
    places
        .filter_map(|(at, _)| {
            let (before, after) = command.split_at(at);
            let (name, rest) = after.get(1..)?.split_once('}')?;
            let word = before.rsplit(' ').next().unwrap_or_default();
            Some(Placed {
                name: name.split(':').next().unwrap_or_default().to_owned(),
                is_value: word.starts_with("--") && word.ends_with('='),
                is_followed: rest.contains(" -"),
            })
        })
        .collect()
}

#[test]
fn commands_and_what_is_put_into_them_are_found() {
    let source = r#"
        // "teamster not {this}"
        hint("go on: `teamster sessions fork {session} --at {n}`; or send {less}, \
              or teamster stop {} (or {not}), teamster run --data={dir} {x} --yes")
        let x = "cannot start teamster up: {error}";
    "#;
    let all: Vec<Placed> = literals(source)
        .iter()
        .flat_map(|literal| {
            commands(literal)
                .into_iter()
                .flat_map(placeholders)
                .collect::<Vec<_>>()
        })
        .collect();
    let placed = |name: &str, is_value, is_followed| Placed {
        name: name.to_owned(),
        is_value,
        is_followed,
    };
    let want = [
        placed("session", false, true),
        placed("n", false, false),
        placed("", false, false),
        placed("dir", true, true),
        placed("x", false, true),
    ];
    assert_eq!(all, want);
    let made = "let x = text::operand(id); let dir = text::shell(dir);";
    let safe: Vec<bool> = all.iter().map(|placed| is_safe(made, placed)).collect();
    assert_eq!(safe, [false, false, false, true, false]);
    assert!(is_safe(made, &placed("x", false, false)));
}
