//! Characters that a server cut in half: it counts text in UTF-16 and sends the two escapes of a pair in two chunks.
//!
//! Owns: the reading of JSON with escaped halves, and the joining of halves over chunks. Invariants: text without halves is
//! not touched; a half that never meets its other becomes U+FFFD.
//!
//! Never: the chunks themselves.

/// The last private characters stand for the 2,048 halves between reading and joining.
const FIRST: u32 = 0x0010_f800;
/// Stands before each such character, and before itself, where a marked text holds it as a character of its own.
const ITSELF: char = '\u{10f7ff}';
const HIGH: u32 = 0xd800;
const LOW: u32 = 0xdc00;
const END: u32 = 0xe000;

/// A JSON text with each escaped half replaced by a private character; `None` where it holds none.
pub(crate) fn mark(json: &str) -> Option<String> {
    let mut marked = String::with_capacity(json.len());
    let mut rest = json;
    let mut has_halves = false;
    while let Some((before, after)) = rest.split_once('\\') {
        mark_plain(before, &mut marked);
        let unit = escaped(after);
        let (taken, half) = match unit {
            Some(high @ HIGH..LOW) => {
                let follows = after.get(5..).and_then(|next| next.strip_prefix('\\'));
                match follows.and_then(escaped) {
                    Some(low @ LOW..END) => {
                        if pair(high, low) >= ITSELF {
                            marked.push(ITSELF);
                        }
                        (11, None)
                    }
                    _ => (5, Some(high)),
                }
            }
            Some(low @ LOW..END) => (5, Some(low)),
            Some(_) => (5, None),
            None => (after.chars().next().map_or(0, char::len_utf8), None),
        };
        let (escape, behind) = after.split_at_checked(taken).unwrap_or((after, ""));
        if let Some(private) = half.and_then(|half| char::from_u32(FIRST + half - HIGH)) {
            has_halves = true;
            marked.push(private);
        } else {
            marked.push('\\');
            marked.push_str(escape);
        }
        rest = behind;
    }
    mark_plain(rest, &mut marked);
    has_halves.then_some(marked)
}

/// Adds text without escapes.
fn mark_plain(text: &str, marked: &mut String) {
    for character in text.chars() {
        if character >= ITSELF {
            marked.push(ITSELF);
        }
        marked.push(character);
    }
}

/// The character of two halves.
fn pair(high: u32, low: u32) -> char {
    let whole = 0x1_0000 + ((high - HIGH) << 10) + (low - LOW);
    char::from_u32(whole).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The code unit of an escape, without its backslash.
fn escaped(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('u')?.get(..4)?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// One text that comes in pieces: remembers a first half until its other comes.
#[derive(Debug, Default)]
pub(crate) struct Joiner(Option<u32>);

impl Joiner {
    /// Takes the next piece; `is_marked`: it comes from a marked text. A first half at its end is kept back.
    pub(crate) fn join(&mut self, piece: &mut String, is_marked: bool) {
        if piece.is_empty() || (!is_marked && self.0.is_none()) {
            return;
        }
        let mut joined = String::with_capacity(piece.len());
        let mut characters = piece.chars();
        while let Some(character) = characters.next() {
            let (character, unit) = match character {
                ITSELF if is_marked => (characters.next().unwrap_or(ITSELF), None),
                _ if is_marked => (character, unit(character)),
                _ => (character, None),
            };
            match (self.0.take(), unit) {
                (Some(high), Some(low @ LOW..END)) => {
                    joined.push(pair(high, low));
                    continue;
                }
                (Some(_), _) => joined.push(char::REPLACEMENT_CHARACTER),
                (None, _) => {}
            }
            match unit {
                Some(high @ HIGH..LOW) => self.0 = Some(high),
                Some(_) => joined.push(char::REPLACEMENT_CHARACTER),
                None => joined.push(character),
            }
        }
        *piece = joined;
    }
}

/// The half that a private character stands for.
fn unit(character: char) -> Option<u32> {
    let place = u32::from(character).checked_sub(FIRST)?;
    Some(place + HIGH)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// How a server that counts in UTF-16 writes a piece as JSON.
    fn escape(units: &[u16]) -> String {
        let mut json = String::from("\"");
        for unit in units {
            let _ = write!(json, "\\u{unit:04x}");
        }
        json + "\""
    }

    fn read(json: &str) -> (String, bool) {
        match mark(json) {
            Some(marked) => (serde_json::from_str(&marked).expect("JSON"), true),
            None => (serde_json::from_str(json).expect("JSON"), false),
        }
    }

    fn joined<'a>(pieces: impl IntoIterator<Item = &'a [u16]>) -> String {
        let mut joiner = Joiner::default();
        let mut whole = String::new();
        for piece in pieces {
            let (mut text, is_marked) = read(&escape(piece));
            joiner.join(&mut text, is_marked);
            whole.push_str(&text);
        }
        whole
    }

    #[test]
    fn what_holds_no_halves_is_not_touched() {
        for json in [
            "{}",
            r#""\ud83e\udd80 \u00e9 \\ud83e \" \n""#,
            r#""\\\ud83e\udd80""#,
            "\"\\",
            "\"é\\é",
            r#""\u12"#,
        ] {
            assert_eq!(mark(json), None, "{json}");
        }
    }

    #[test]
    fn a_half_without_its_other_is_shown_as_one() {
        for units in [
            &[0xd83e, 0x61][..],
            &[0xdd80, 0x61],
            &[0xdd80, 0xd83e, 0x61],
        ] {
            let text = joined([units]);
            assert!(
                text.ends_with('a') && text.starts_with('\u{fffd}'),
                "{text}"
            );
        }
    }

    /// STREAM-1: a character that stands for a half is one of its own where a text holds it, escaped or not.
    #[test]
    fn stream_1_private_characters_are_not_taken_for_halves() {
        for private in ['\u{10f7ff}', '\u{10f800}', '\u{10fc00}', '\u{10ffff}'] {
            let text = format!("🦀{private}🦀{private}{private}");
            let units: Vec<u16> = text.encode_utf16().collect();
            for at in 0..units.len() {
                let (head, tail) = units.split_at(at);
                assert_eq!(joined([head, tail]), text, "{at}");
            }
            let (mut plain, is_marked) = read(&format!("\"\\ud83e{private}{private}\""));
            Joiner::default().join(&mut plain, is_marked);
            assert_eq!(plain, format!("\u{fffd}{private}{private}"));
        }
    }

    proptest! {
        /// STREAM-1: wherever a text is cut, between the halves of a character too, it comes out whole.
        #[test]
        fn stream_1_any_split_of_utf_16_is_the_whole(text in ".{0,12}", crabs in 0_usize..3, at in 0_usize..40) {
            let text = text + &"🦀".repeat(crabs);
            let units: Vec<u16> = text.encode_utf16().collect();
            let (head, tail) = units.split_at(at.min(units.len()));
            prop_assert_eq!(joined([head, tail]), text.clone());
            prop_assert_eq!(joined(units.chunks(1)), text);
        }

        #[test]
        fn marking_never_breaks_a_text(json in "[\\\\u0-9a-fdD\"é]{0,40}") {
            let _ = mark(&json);
        }
    }
}
