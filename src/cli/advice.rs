//! What to do about a failure that says nothing of it itself: what the page of errors says about its code.
//!
//! Invariant: a code that the page explains has a next step here, unless the page says that there is nothing to do.

use std::borrow::Cow;

/// The page, compiled in, so that it says the same as this build.
const PAGE: &str = include_str!("../../docs/errors.md");

/// What the page says to do about `code`; `None` where it has no such code, or nothing is to be done.
pub(super) fn of(code: &str) -> Option<Cow<'static, str>> {
    PAGE.lines()
        .find_map(|line| {
            let row = line.strip_prefix("| `")?.strip_suffix(" |")?;
            let (_, action) = row
                .strip_prefix(code)?
                .strip_prefix("` | ")?
                .rsplit_once(" | ")?;
            Some(action)
        })
        .filter(|action| !action.starts_with("Nothing"))
        .map(begun)
}

/// Behind `next:` no sentence begins.
fn begun(action: &'static str) -> Cow<'static, str> {
    let action = action.strip_suffix('.').unwrap_or(action);
    let mut characters = action.chars();
    match characters.next() {
        Some(first) if first.is_ascii_uppercase() => Cow::Owned(format!(
            "{}{}",
            first.to_ascii_lowercase(),
            characters.as_str()
        )),
        _ => Cow::Borrowed(action),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{exit::Exit, failure::Failure};

    /// Codes about which nothing is to be done: no person meets them as a failure.
    const NOTHING: [&str; 6] = [
        "cli.closed",
        "harness.owner_lost",
        "harness.router_lost",
        "mesh.stream_lost",
        "mesh.too_late",
        "session.log_noise",
    ];

    #[test]
    fn each_failure_at_the_shell_has_a_next_step() {
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
        let codes: Vec<&str> = rows
            .filter_map(|row| Some(row.split_once('`')?.0))
            .collect();
        assert!(codes.len() > 150, "the page was read: {}", codes.len());
        let without: Vec<&str> = codes
            .iter()
            .copied()
            .filter(|code| {
                let failure = Failure::new(Exit::Failed, code, "it failed").advised();
                failure.hint.is_none_or(|hint| hint.is_empty())
            })
            .collect();
        assert_eq!(without, NOTHING);
    }

    #[test]
    fn a_hint_of_its_own_counts_more_and_a_foreign_code_has_none() {
        let failure = Failure::new(Exit::Failed, "cli.stdin", "x").hint("do this");
        assert_eq!(failure.advised().hint.as_deref(), Some("do this"));
        assert_eq!(of("fs.not_foun"), None);
        assert_eq!(of("nobody.knows"), None);
        assert_eq!(
            of("fs.not_found").as_deref(),
            Some("`fs::list` and `fs::find` show what is there")
        );
        assert_eq!(
            of("cli.unconfirmed").as_deref(),
            Some("repeat it with `--yes`")
        );
    }
}
