//! Characters that a server cut in half: it counts text in UTF-16 and sends the two escapes of a pair in two chunks.
//!
//! Owns: the reading of JSON with escaped halves, and the joining of halves over chunks. Invariants: text without halves is
//! not touched; a half that never meets its other becomes U+FFFD.
//!
//! Never: the chunks themselves.

/// The last private characters stand for the 2,048 halves between reading and joining.
const FIRST: u32 = 0x0010_f800;
const HIGH: u32 = 0xd800;
const LOW: u32 = 0xdc00;
const END: u32 = 0xe000;

/// A JSON text with each escaped half replaced by a private character; `None` where it holds none.
pub(crate) fn mark(json: &str) -> Option<String> {
    let mut marked = String::with_capacity(json.len());
    let mut rest = json;
    let mut has_halves = false;
    while let Some((before, after)) = rest.split_once('\\') {
        marked.push_str(before);
        let unit = escaped(after);
        let (taken, half) = match unit {
            Some(high @ HIGH..LOW) => {
                let follows = after.get(5..).and_then(|next| next.strip_prefix('\\'));
                match follows.and_then(escaped) {
                    Some(LOW..END) => (11, None),
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
    marked.push_str(rest);
    has_halves.then_some(marked)
}

/// The code unit of an escape, without its backslash.
fn escaped(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('u')?.get(..4)?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// One text that comes in pieces: remembers a first half until its other comes.
#[derive(Debug, Default)]
pub(crate) struct Joiner(Option<char>);

impl Joiner {
    /// Whether the next piece must be joined even if it holds no halves itself.
    pub(crate) fn waits(&self) -> bool {
        self.0.is_some()
    }

    /// The next piece, its halves joined. A first half at its end is kept back.
    pub(crate) fn join(&mut self, piece: &str) -> String {
        let mut joined = String::with_capacity(piece.len());
        for character in piece.chars() {
            let unit = u32::from(character).checked_sub(FIRST).map(|n| n + HIGH);
            let high = self.0.take();
            match (high, unit) {
                (Some(high), Some(low @ LOW..END)) => {
                    let high = u32::from(high) - FIRST;
                    let whole = 0x1_0000 + (high << 10) + (low - LOW);
                    joined.push(char::from_u32(whole).unwrap_or(char::REPLACEMENT_CHARACTER));
                    continue;
                }
                (Some(_), _) => joined.push(char::REPLACEMENT_CHARACTER),
                (None, _) => {}
            }
            match unit {
                Some(HIGH..LOW) => self.0 = Some(character),
                Some(_) => joined.push(char::REPLACEMENT_CHARACTER),
                None => joined.push(character),
            }
        }
        joined
    }
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
            let (text, has_halves) = read(&escape(piece));
            if has_halves || joiner.waits() {
                whole.push_str(&joiner.join(&text));
            } else {
                whole.push_str(&text);
            }
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
