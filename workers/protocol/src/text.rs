//! The one helper that cuts text, and those that put a word into a command for a shell.

use std::borrow::Cow;

/// The longest beginning of `text` that has at most `bytes_max` bytes and ends between two characters.
pub fn head(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max))
        .unwrap_or_default()
}

/// The longest end of `text` that has at most `bytes_max` bytes and begins between two characters.
pub fn tail(text: &str, bytes_max: usize) -> &str {
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    text.get(from..).unwrap_or_default()
}

/// `text` if it fits; else its beginning and a mark that says how much is missing. The result fits too where `bytes_max`
/// leaves room for the mark. The mark is ASCII, so that it stays readable where everything else is escaped.
pub fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mark_bytes = 48;
    let kept = head(text, bytes_max.saturating_sub(mark_bytes));
    format!("{kept}... [{} bytes left out]", text.len() - kept.len())
}

/// `word` as one word of a POSIX shell's command line: as it is where nothing in it means anything there, else in single quotes.
/// Every id, path or name that stands in a command that somebody is told to type goes through this, or through [`operand`] where
/// it is not the value of an option (`--option=value`).
pub fn shell(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    // Some shells read a word that begins with `=` as the path of a command.
    let is_safe = !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain);
    if is_safe {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// `word` as an operand of one of our own commands: quoted as by [`shell`], and behind `--` where it begins like an option. Options of
/// the command stand before it, since what follows `--` is none.
pub fn operand(word: &str) -> String {
    let quoted = shell(word);
    if word.starts_with('-') {
        return format!("-- {quoted}");
    }
    quoted.into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// UNI-1: no cap lands inside a character.
    #[test]
    fn uni_1_a_long_text_is_cut_between_characters() {
        let text = "中".repeat(40_000);
        let cut = cut(&text, 25_000);
        assert!(cut.len() <= 25_000);
        assert!(cut.ends_with("... [95049 bytes left out]"));
        assert!(!cut.contains('\u{2026}'));
    }

    #[test]
    fn only_a_word_that_means_nothing_to_a_shell_stays_as_it_is() {
        for plain in [
            "ses_0190",
            "a/b.c",
            "x-1",
            "context.windows",
            "PROVIDER/NAME",
            "a=b",
            "-c",
        ] {
            assert_eq!(shell(plain), plain);
        }
        for (word, quoted) in [
            ("", "''"),
            ("x; touch y #", "'x; touch y #'"),
            ("it's", "'it'\\''s'"),
            ("$(id)", "'$(id)'"),
            ("~", "'~'"),
            ("=ls", "'=ls'"),
            ("世界", "'世界'"),
        ] {
            assert_eq!(shell(word), quoted);
        }
    }

    #[test]
    fn an_operand_is_never_read_as_an_option() {
        for (word, shown) in [
            ("ses_1", "ses_1"),
            ("-x", "-- -x"),
            ("--yes", "-- --yes"),
            ("-a b", "-- '-a b'"),
            ("a -b", "'a -b'"),
        ] {
            assert_eq!(operand(word), shown);
        }
    }

    proptest! {
        /// What stands in the command reaches the program byte for byte.
        #[test]
        fn a_quoted_word_has_no_quote_that_ends_it(word in "[ -~]{0,24}") {
            let quoted = shell(&word);
            let read: String = match quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
                Some(inner) => inner.replace("'\\''", "\u{0}"),
                None => quoted.to_string(),
            };
            prop_assert!(!read.contains('\''));
            prop_assert_eq!(read.replace('\u{0}', "'"), word);
        }

        #[test]
        fn uni_1_head_and_tail_hold_for_every_cap(text in ".{0,24}", cap in 0_usize..80) {
            prop_assert!(head(&text, cap).len() <= cap && text.starts_with(head(&text, cap)));
            prop_assert!(tail(&text, cap).len() <= cap && text.ends_with(tail(&text, cap)));
            prop_assert!(cut(&text, cap.max(64)).len() <= cap.max(64));
        }
    }
}
