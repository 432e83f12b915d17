//! Bytes of a terminal turned into keys. Pure.
//!
//! Invariants: a character that comes in parts is one key; what is pasted is text alone, which presses nothing; an unknown
//! sequence is left out whole.

/// Bytes of one escape sequence; a longer one is none.
const SEQUENCE_BYTES_MAX: usize = 32;

/// What was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// A character.
    Char(char),
    /// The line is complete.
    Enter,
    /// A line end within the message: pasted, or Alt-Enter.
    Newline,
    /// Remove the character before the cursor.
    Backspace,
    /// Remove the character under the cursor.
    Delete,
    /// One to the left.
    Left,
    /// One to the right.
    Right,
    /// The line before.
    Up,
    /// The line after.
    Down,
    /// To the beginning.
    Home,
    /// To the end.
    End,
    /// Remove the word before the cursor.
    Word,
    /// Remove everything before the cursor.
    Before,
    /// Remove everything behind the cursor.
    Behind,
    /// End of the input, or remove the character under the cursor.
    Eof,
    /// Draw again.
    Redraw,
}

/// What was read and is not a whole key yet.
#[derive(Debug, Default)]
pub(super) struct Keys {
    rest: Vec<u8>,
    is_pasting: bool,
    was_return: bool,
}

/// What stands at the beginning of some bytes.
enum Found {
    /// So many bytes, and what they mean.
    Whole(usize, Option<Key>),
    /// The beginning of something.
    Part,
}

impl Keys {
    /// Takes bytes as they come; the keys that are complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let mut left = rest.as_slice();
        let mut keys = Vec::new();
        while let Some(first) = left.first() {
            let Found::Whole(length, key) = self.key(*first, left) else {
                break;
            };
            keys.extend(key);
            left = left.get(length..).unwrap_or_default();
        }
        self.rest = left.to_vec();
        keys
    }

    fn key(&mut self, first: u8, bytes: &[u8]) -> Found {
        let was_return = std::mem::replace(&mut self.was_return, first == b'\r');
        match first {
            0x1b if self.is_pasting => self.pasted_escape(bytes),
            0x1b => self.escape(bytes),
            b'\n' if was_return && self.is_pasting => Found::Whole(1, None),
            b'\r' | b'\n' if self.is_pasting => Found::Whole(1, Some(Key::Newline)),
            0x20..=0x7e | 0x80.. => character(bytes),
            b'\t' => Found::Whole(1, Some(Key::Char('\t'))),
            _ if self.is_pasting => Found::Whole(1, None),
            control => Found::Whole(1, pressed(control)),
        }
    }

    /// What was begun is given up, such as a paste whose end is lost.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The end of the paste, or a sequence of what is pasted, which moves nothing here.
    fn pasted_escape(&mut self, bytes: &[u8]) -> Found {
        match bytes.get(1) {
            None => Found::Part,
            Some(b'[') => match self.escape(bytes) {
                Found::Whole(length, _) => Found::Whole(length, None),
                Found::Part => Found::Part,
            },
            // What stands behind it is text.
            Some(_) => Found::Whole(1, None),
        }
    }

    fn escape(&mut self, bytes: &[u8]) -> Found {
        match bytes.get(1) {
            None => Found::Part,
            Some(b'[') => {
                let end = bytes
                    .iter()
                    .skip(2)
                    .position(|byte| (0x40..=0x7e).contains(byte));
                match end {
                    Some(end) => {
                        let sequence = bytes.get(2..end + 3).unwrap_or_default();
                        Found::Whole(end + 3, self.sequence(sequence))
                    }
                    None if bytes.len() > SEQUENCE_BYTES_MAX => Found::Whole(bytes.len(), None),
                    None => Found::Part,
                }
            }
            Some(b'O') => match bytes.get(2) {
                None => Found::Part,
                Some(letter) => Found::Whole(3, arrow(*letter)),
            },
            Some(b'\r' | b'\n') => Found::Whole(2, Some(Key::Newline)),
            Some(0x7f) => Found::Whole(2, Some(Key::Word)),
            Some(_) => Found::Whole(2, None),
        }
    }

    fn sequence(&mut self, sequence: &[u8]) -> Option<Key> {
        match sequence {
            b"200~" => {
                self.is_pasting = true;
                None
            }
            b"201~" => {
                self.is_pasting = false;
                None
            }
            b"3~" => Some(Key::Delete),
            b"1~" | b"7~" => Some(Key::Home),
            b"4~" | b"8~" => Some(Key::End),
            [letter] => arrow(*letter),
            _ => None,
        }
    }
}

fn arrow(letter: u8) -> Option<Key> {
    Some(match letter {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        _ => return None,
    })
}

fn pressed(control: u8) -> Option<Key> {
    Some(match control {
        b'\r' | b'\n' => Key::Enter,
        0x7f | 0x08 => Key::Backspace,
        0x01 => Key::Home,
        0x02 => Key::Left,
        0x04 => Key::Eof,
        0x05 => Key::End,
        0x06 => Key::Right,
        0x0b => Key::Behind,
        0x0c => Key::Redraw,
        0x0e => Key::Down,
        0x10 => Key::Up,
        0x15 => Key::Before,
        0x17 => Key::Word,
        _ => return None,
    })
}

/// One character in UTF-8. A byte that begins none is left out.
fn character(bytes: &[u8]) -> Found {
    let length = match bytes.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    let Some(whole) = bytes.get(..length) else {
        let is_begun = bytes.iter().skip(1).all(|byte| (0x80..0xc0).contains(byte));
        return if is_begun {
            Found::Part
        } else {
            Found::Whole(1, None)
        };
    };
    match std::str::from_utf8(whole) {
        Ok(text) => Found::Whole(length, text.chars().next().map(Key::Char)),
        Err(_) => Found::Whole(1, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_keys() {
        for (bytes, want) in [
            (&b"a\n"[..], vec![Key::Char('a'), Key::Enter]),
            (b"\r", vec![Key::Enter]),
            (
                "é世😀".as_bytes(),
                vec![Key::Char('é'), Key::Char('世'), Key::Char('😀')],
            ),
            (
                b"\x1b[A\x1bOB\x1b[3~\x1b[H",
                vec![Key::Up, Key::Down, Key::Delete, Key::Home],
            ),
            (b"\x1b[1;5Cx", vec![Key::Char('x')]),
            (b"\x7f\x15\x04", vec![Key::Backspace, Key::Before, Key::Eof]),
            (b"\x1b\nb", vec![Key::Newline, Key::Char('b')]),
            (
                b"\x1b[200~a\r\nb\nc\x1b[201~\n",
                vec![
                    Key::Char('a'),
                    Key::Newline,
                    Key::Char('b'),
                    Key::Newline,
                    Key::Char('c'),
                    Key::Enter,
                ],
            ),
            // What is pasted presses nothing: no end of the input, no arrow, no other key.
            (
                b"\x1b[200~\x04a\x1b[A\x7f\tb\x1bc\x1b[31md\x03\x1b[201~\x04",
                vec![
                    Key::Char('a'),
                    Key::Char('\t'),
                    Key::Char('b'),
                    Key::Char('c'),
                    Key::Char('d'),
                    Key::Eof,
                ],
            ),
            (b"\xff\xc3(z", vec![Key::Char('('), Key::Char('z')]),
        ] {
            assert_eq!(Keys::default().feed(bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn a_paste_whose_end_is_lost_can_be_given_up() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(b"\x1b[200~\r"), [Key::Newline]);
        keys.clear();
        assert_eq!(keys.feed(b"\r"), [Key::Enter]);
    }

    proptest! {
        /// UNI-1: however the bytes are cut, the same keys come, and nothing panics.
        #[test]
        fn uni_1_keys_do_not_depend_on_where_the_bytes_are_cut(
            text in "[a-z é世😀\n\x7f]{0,12}", noise in proptest::collection::vec(any::<u8>(), 0..12), at in 0_usize..40,
        ) {
            let bytes = [text.as_bytes(), &noise].concat();
            let whole = Keys::default().feed(&bytes);
            let at = at.min(bytes.len());
            let mut keys = Keys::default();
            let mut parts = keys.feed(&bytes[..at]);
            parts.extend(keys.feed(&bytes[at..]));
            prop_assert_eq!(whole, parts);
        }
    }
}
