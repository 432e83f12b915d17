//! Characters that a reader of a log would not see, or that would drive the reader's terminal.

use std::fmt::Write as _;

/// Replaces control, bidirectional, zero-width and tag characters by `\uXXXX`, as JSON writes them. Everything else stays.
pub(crate) fn escape_unseen(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unseen(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}"); // writing to a string cannot fail
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_or_hides_text_becomes_visible() {
        for (text, escaped) in [
            ("plain äöü 你好 🦀", "plain äöü 你好 🦀"),
            ("\u{9b}2J", "\\u009b2J"),
            ("a\u{202e}b\u{200b}c", "a\\u202eb\\u200bc"),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("\u{1b}[2J\r\n", "\\u001b[2J\\u000d\\u000a"),
        ] {
            assert_eq!(escape_unseen(text), escaped);
        }
    }
}
