//! How text of unknown origin is shown, so that it can neither drive a terminal nor look like something else.
//!
//! Owns two renderings and a count. [`ascii`] is for what a person approves: pure ASCII, reversible ([`from_ascii`]), so
//! that two different texts never look alike. [`terminal`] is for what a model or a function says: readable Unicode, with
//! everything that is invisible or that moves a cursor made visible. [`blanks`] says where long runs of white space
//! stand, because padding pushes what matters out of sight. Invariants: nothing is cut or collapsed; the output never
//! holds a control character other than line feed and tab ([`terminal`]) or none at all ([`ascii`]).
//!
//! Never: a decision about what to show, a terminal, a locale.

use std::fmt::Write as _;

/// White space characters in a row from which on [`blanks`] reports them.
pub const BLANK_RUN_MIN: usize = 16;
/// Runs that [`blanks`] returns; the last one says how many more there are.
pub const BLANK_RUNS_MAX: usize = 64;

/// The text in printable ASCII: every other UTF-16 unit as `\uXXXX` with upper-case hexadecimal digits.
///
/// A backslash that stands before `u` and four of `0-9A-F` would read as such a group; it becomes `\u005C` itself. All else
/// stays as it is, quotes and other backslashes included, so that the JSON escape `\u001b` of a model that writes
/// lower-case digits is shown as it was written. [`from_ascii`] is the inverse.
pub fn ascii(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let is_plain = matches!(character, ' '..='~')
            && !(character == '\\' && text.get(at..).and_then(group).is_some());
        if is_plain {
            shown.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(shown, "\\u{unit:04X}");
            }
        }
    }
    shown
}

/// The text that [`ascii`] shows as `shown`; `None` if it shows no text so.
pub fn from_ascii(shown: &str) -> Option<String> {
    let mut units = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some(character) = rest.chars().next() {
        if let Some(unit) = group(rest) {
            units.push(unit);
            rest = rest.get(6..)?;
        } else {
            units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
            rest = rest.get(character.len_utf8()..)?;
        }
    }
    let text = String::from_utf16(&units).ok()?;
    (ascii(&text) == shown).then_some(text)
}

/// The UTF-16 unit of a group `\uXXXX` at the beginning of `text`.
fn group(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits
        .bytes()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F'))
        .then(|| u16::from_str_radix(digits, 16).ok())?
}

/// The text for a terminal: printable Unicode, line feeds and tabs stay; everything that is invisible, has no meaning here
/// or could drive a terminal becomes `\u{...}`. A carriage return before a line feed is left out.
///
/// Two characters are kept where they belong to a visible picture: one emoji selector after a symbol, and a joiner between
/// two symbols.
pub fn terminal(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let after = characters.peek().copied();
        let is_kept = match character {
            '\n' | '\t' => true,
            '\r' if after == Some('\n') => continue,
            '\u{fe0f}' => before.is_some_and(is_symbol),
            '\u{200d}' => before.is_some_and(is_pictured) && after.is_some_and(is_symbol),
            _ => !is_hidden(character),
        };
        if is_kept {
            shown.push(character);
        } else {
            let _ = write!(shown, "{}", character.escape_unicode());
        }
        before = Some(character);
    }
    shown
}

/// Whether a character is a symbol that an emoji selector or a joiner may belong to.
fn is_symbol(character: char) -> bool {
    matches!(
        character,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
            | '\u{2190}'..='\u{27bf}'
            | '\u{2900}'..='\u{297f}'
            | '\u{2b00}'..='\u{2bff}'
            | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
            | '\u{1f000}'..='\u{1faff}'
    )
}

/// Whether a character can end a picture that a joiner goes on with.
fn is_pictured(character: char) -> bool {
    is_symbol(character) || character == '\u{fe0f}'
}

/// Whether a character shows nothing by itself, changes how others are shown, or has no agreed meaning.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || is_format(character)
        || is_filler(character)
        || is_unassigned(character)
}

/// Characters that change the order, the joining or the form of others.
fn is_format(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' // soft hyphen
            | '\u{34f}' // combining grapheme joiner
            | '\u{61c}' // Arabic letter mark
            | '\u{180b}'..='\u{180f}' // Mongolian selectors and vowel separator
            | '\u{200b}'..='\u{200f}' // zero-width space, joiners, direction marks
            | '\u{2028}'..='\u{202e}' // line and paragraph separators, direction embeddings and overrides
            | '\u{2060}'..='\u{206f}' // word joiner, invisible operators, direction isolates
            | '\u{fe00}'..='\u{fe0f}' // variation selectors
            | '\u{feff}' // byte order mark
            | '\u{fff0}'..='\u{fffb}' // interlinear annotation
            | '\u{13430}'..='\u{1345f}' // hieroglyph format controls
            | '\u{1bca0}'..='\u{1bca3}' // shorthand format controls
            | '\u{1d173}'..='\u{1d17a}' // musical beams and slurs
            | '\u{e0000}'..='\u{e0fff}' // tags and further variation selectors
    )
}

/// Characters that are letters or symbols by name and blank to the eye.
fn is_filler(character: char) -> bool {
    matches!(
        character,
        '\u{115f}' | '\u{1160}' // Hangul fillers
            | '\u{17b4}' | '\u{17b5}' // Khmer inherent vowels
            | '\u{2800}' // Braille blank
            | '\u{3164}' | '\u{ffa0}' // Hangul fillers
            | '\u{16fe4}' // Khitan filler
            | '\u{1d159}' // null notehead
    )
}

/// Characters without an agreed meaning: private use and what can never be a character.
fn is_unassigned(character: char) -> bool {
    matches!(
        character,
        '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{f0000}'..='\u{10ffff}'
    ) || (u32::from(character) & 0xfffe) == 0xfffe
}

/// A run of white space that is long enough to hide something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blank {
    /// Where it begins, in bytes.
    pub at: usize,
    /// Characters in it.
    pub characters: usize,
    /// Line feeds among them.
    pub lines: usize,
    /// Further runs that are not listed; only the last one of a full list has any.
    pub further: usize,
}

impl std::fmt::Display for Blank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{} spaces at byte {}", self.characters, self.at)?;
        if self.lines > 0 {
            write!(f, ", {} of them line breaks", self.lines)?;
        }
        if self.further > 0 {
            write!(f, "; {} further runs", self.further)?;
        }
        f.write_str("]")
    }
}

/// The runs of at least [`BLANK_RUN_MIN`] blank characters, in order; at most [`BLANK_RUNS_MAX`].
pub fn blanks(text: &str) -> Vec<Blank> {
    let mut found: Vec<Blank> = Vec::new();
    let mut run: Option<Blank> = None;
    for (at, character) in text.char_indices() {
        if character.is_whitespace() || is_filler(character) || is_format(character) {
            let run = run.get_or_insert(Blank {
                at,
                characters: 0,
                lines: 0,
                further: 0,
            });
            run.characters += 1;
            run.lines += usize::from(character == '\n');
        } else {
            keep(&mut found, run.take());
        }
    }
    keep(&mut found, run);
    found
}

fn keep(found: &mut Vec<Blank>, run: Option<Blank>) {
    let Some(run) = run.filter(|run| run.characters >= BLANK_RUN_MIN) else {
        return;
    };
    if found.len() < BLANK_RUNS_MAX {
        found.push(run);
    } else if let Some(last) = found.last_mut() {
        last.further += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// SEC-24: sequences that clear a screen, write a clipboard or go back show as text.
    #[test]
    fn sec_24_what_drives_a_terminal_is_shown() {
        for (text, want_ascii, want_terminal) in [
            ("\u{1b}[2J", "\\u001B[2J", "\\u{1b}[2J"),
            (
                "\u{1b}]8;;http://x\u{7}y",
                "\\u001B]8;;http://x\\u0007y",
                "\\u{1b}]8;;http://x\\u{7}y",
            ),
            (
                "\u{1b}]52;c;eA==\u{1b}\\",
                "\\u001B]52;c;eA==\\u001B\\",
                "\\u{1b}]52;c;eA==\\u{1b}\\",
            ),
            (
                "ok\rno\u{8}\u{7f}",
                "ok\\u000Dno\\u0008\\u007F",
                "ok\\u{d}no\\u{8}\\u{7f}",
            ),
            ("\u{9b}2J", "\\u009B2J", "\\u{9b}2J"),
            ("a\r\n\tb", "a\\u000D\\u000A\\u0009b", "a\n\tb"),
        ] {
            assert_eq!(ascii(text), want_ascii);
            assert_eq!(terminal(text), want_terminal);
        }
        // The JSON that a model writes holds the escape itself, and shows as it stands.
        assert_eq!(ascii(r#"{"a":"\u001b[2J"}"#), r#"{"a":"\u001b[2J"}"#);
    }

    /// SEC-25: what cannot be seen, or only looks blank, is shown.
    #[test]
    fn sec_25_what_cannot_be_seen_is_shown() {
        let hidden = [
            '\u{202e}',
            '\u{200b}',
            '\u{e0041}',
            '\u{3164}',
            '\u{2800}',
            '\u{fe0f}',
            '\u{2066}',
            '\u{feff}',
            '\u{ad}',
        ];
        for character in hidden {
            let text = format!("a{character}b");
            assert!(
                ascii(&text).is_ascii() && ascii(&text).contains("\\u"),
                "{character:?}"
            );
            assert_eq!(
                terminal(&text),
                format!("a\\u{{{:x}}}b", u32::from(character))
            );
        }
        assert_eq!(ascii("a\u{a0}b"), "a\\u00A0b");
        assert_eq!(ascii("\u{e0041}"), "\\uDB40\\uDC41");
    }

    #[test]
    fn readable_text_stays_readable_on_a_terminal() {
        for text in [
            "Grüße, 世界!\n\t— “x” \u{a0}%",
            "⚠️ 👩‍💻 ✔️ 👍🏽",
            "ﷺ नमस्ते ไทย",
            "a\\u{1b}",
        ] {
            assert_eq!(terminal(text), text);
        }
        assert_eq!(terminal("⚠\u{fe0f}\u{fe0f}"), "⚠\u{fe0f}\\u{fe0f}");
        assert_eq!(terminal("a\u{200d}b"), "a\\u{200d}b");
    }

    #[test]
    fn different_texts_never_look_alike() {
        for (text, want) in [
            ("é", "\\u00E9"),
            ("\\u00E9", "\\u005Cu00E9"),
            ("\\u00e9", "\\u00e9"),
            ("\\\\u00E9", "\\\\u005Cu00E9"),
            ("\\é", "\\\\u00E9"),
            ("\\u00E", "\\u00E"),
            ("\"\\n\"", "\"\\n\""),
            ("😀", "\\uD83D\\uDE00"),
        ] {
            assert_eq!(ascii(text), want);
            assert_eq!(from_ascii(want).as_deref(), Some(text));
        }
        for no_rendering in ["é", "\n", "\\uD83D", "\\u0041"] {
            assert_eq!(from_ascii(no_rendering), None, "{no_rendering:?}");
        }
    }

    /// SEC-26: padding is counted, and nothing is collapsed or cut.
    #[test]
    fn sec_26_padding_is_counted_and_nothing_is_cut() {
        let text = format!("ls{}rm -rf x", " ".repeat(1900));
        let found = blanks(&text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "[1900 spaces at byte 2]");
        assert_eq!(ascii(&text), text);
        assert!(terminal(&text).ends_with("rm -rf x"));
        assert_eq!(
            blanks(&format!("a{}\u{3164}{}b", "\n".repeat(20), " ".repeat(5)))[0].to_string(),
            "[26 spaces at byte 1, 20 of them line breaks]"
        );
        assert!(blanks("a b\n\n  c").is_empty());
        let many = format!("x{}", " ".repeat(16)).repeat(BLANK_RUNS_MAX + 3);
        let found = blanks(&many);
        assert_eq!(
            (found.len(), found.last().map(|last| last.further)),
            (BLANK_RUNS_MAX, Some(3))
        );
        let long = "中".repeat(70_000);
        assert_eq!(ascii(&long).len(), 6 * 70_000);
    }

    proptest! {
        #[test]
        fn ascii_is_read_back(text in r"(\\|u|[0-9A-Fa-f]|\PC|\p{C}){0,40}") {
            let shown = ascii(&text);
            prop_assert!(shown.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(from_ascii(&shown), Some(text));
        }

        #[test]
        fn a_terminal_never_gets_a_control_character(text in r"(\PC|\p{C}){0,40}") {
            let shown = terminal(&text);
            prop_assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            let hidden = ['\u{202e}', '\u{200b}', '\u{feff}'];
            prop_assert!(!shown.contains(hidden));
        }
    }
}
