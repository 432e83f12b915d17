//! The session's events in a short table. Pure.

use teamster_protocol::Commit;

use crate::cli::sessions::event_words;

/// Characters of a line; longer ones are cut, since this is an overview.
const WIDTH: usize = 110;

/// One line an event: commit, time since the first commit, words.
pub(super) fn table(commits: &[(u64, Commit)]) -> Vec<String> {
    let began = commits.first().map_or(0, |(_, commit)| commit.at_ms);
    let mut lines = vec![format!("{:>6} {:>9}  event", "commit", "seconds")];
    for (_, commit) in commits {
        let since = commit.at_ms.saturating_sub(began);
        for event in &commit.events {
            let words: Vec<String> = event_words(event).split(' ').map(short).collect();
            let line = format!(
                "{:>6} {:>7}.{:01}  {}",
                commit.n,
                since / 1000,
                since % 1000 / 100,
                words.join(" ")
            );
            lines.push(line.chars().take(WIDTH).collect());
        }
    }
    lines
}

/// An id by its kind and its end.
fn short(word: &str) -> String {
    match word.split_once('_') {
        Some((kind @ ("call" | "apr"), rest)) if rest.len() > 12 => {
            format!(
                "{kind}_…{}",
                teamster_protocol::text::tail(rest.trim_end_matches([',', ':']), 6)
            )
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shortened_and_nothing_else() {
        assert_eq!(
            short("call_01a22df3aed7752da0095c57a84a3ce7,"),
            "call_…4a3ce7"
        );
        assert_eq!(short("call_1"), "call_1");
        assert_eq!(
            short("a_long_word_that_is_no_id"),
            "a_long_word_that_is_no_id"
        );
    }
}
