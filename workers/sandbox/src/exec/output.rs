//! A command's output as a model reads it: text, within its bound, with a mark where something is missing.

use std::fmt::Write as _;

use super::request::{Layers, Reply, Status, Stream};
use crate::{budget::json_bytes, stage::frame::Kept};

/// Share of unreadable characters from which output counts as binary.
const BINARY_SHARE: usize = 10;

/// The streams of an answer, out of what the stages sent.
pub(super) fn reply(bytes: &[u8], stdout: Kept, stderr: Kept, room: usize) -> Reply {
    let mut rest = bytes;
    let mut next = |length: usize| {
        let (first, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        first
    };
    let mut parts = [stdout, stderr].map(|kept| (kept.total, next(kept.head), next(kept.tail)));
    let texts = parts
        .each_mut()
        .map(|(total, head, tail)| Text::new(*total, head, tail));
    let [out, err] = texts;
    let (for_out, for_err) = shares(out.json_bytes(), err.json_bytes(), room);
    Reply {
        status: Status::Exited { code: 0 },
        stdout: out.fit(for_out),
        stderr: err.fit(for_err),
        duration_ms: 0,
        limits_hit: Vec::new(),
        layers: Layers::default(),
    }
}

/// How much of `room` each of two gets: what the smaller does not need goes to the other.
fn shares(one: usize, other: usize, room: usize) -> (usize, usize) {
    let half = room / 2;
    if one <= half {
        (one, room - one)
    } else if other <= half {
        (room - other, other)
    } else {
        (half, half)
    }
}

/// A decoded stream: its beginning, and its end where something between them is missing.
struct Text {
    head: String,
    tail: Option<String>,
    total: u64,
    kept: usize,
    is_binary: bool,
}

impl Text {
    fn new(total: u64, head: &[u8], tail: &[u8]) -> Self {
        let kept = head.len() + tail.len();
        let is_whole = usize::try_from(total).is_ok_and(|total| total <= kept);
        let (head, tail) = if is_whole {
            (
                String::from_utf8_lossy(&[head, tail].concat()).into_owned(),
                None,
            )
        } else {
            (lossy(whole_end(head)), Some(lossy(whole_beginning(tail))))
        };
        let all = || {
            head.chars()
                .chain(tail.iter().flat_map(|tail| tail.chars()))
        };
        let bad = all().filter(|c| *c == char::REPLACEMENT_CHARACTER).count();
        let is_binary = all().any(|c| c == '\0') || bad * BINARY_SHARE > all().count();
        Self {
            head: shown(&head),
            tail: tail.map(|tail| shown(&tail)),
            total,
            kept,
            is_binary,
        }
    }

    fn json_bytes(&self) -> usize {
        let tail = self.tail.as_deref().unwrap_or_default();
        self.head.chars().chain(tail.chars()).map(json_bytes).sum()
    }

    /// The stream in at most `room` bytes of JSON, the mark apart.
    fn fit(self, room: usize) -> Stream {
        let is_cut = self.json_bytes() > room;
        if self.tail.is_none() && !is_cut {
            return Stream {
                text: self.head,
                bytes: self.total,
                left_out: 0,
                binary: self.is_binary,
            };
        }
        let tail = self.tail.as_deref().unwrap_or(&self.head);
        let (first, last) = if is_cut {
            (first(&self.head, room / 2), last(tail, room / 2))
        } else {
            (self.head.as_str(), tail)
        };
        // What was cut here is no longer counted in the stream's own bytes; the difference is close.
        let shown = if is_cut {
            first.len() + last.len()
        } else {
            self.kept
        };
        let left_out = self.total.saturating_sub(shown as u64);
        let mut text = String::with_capacity(first.len() + last.len() + 64);
        text.push_str(first);
        let _ = write!(text, "\n… [{left_out} bytes left out] …\n");
        text.push_str(last);
        Stream {
            text,
            bytes: self.total,
            left_out,
            binary: self.is_binary,
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Without the beginning of a character whose rest is missing.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let end = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    bytes.get(..end).unwrap_or(bytes)
}

/// Without the end of a character whose beginning is missing.
fn whole_beginning(bytes: &[u8]) -> &[u8] {
    let is_inner = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let from = bytes.iter().take(3).take_while(is_inner).count();
    bytes.get(from..).unwrap_or_default()
}

/// Without characters that nobody sees and that terminals obey: each becomes the picture of itself.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' if characters.peek() == Some(&'\n') => {}
            '\0'..='\u{1f}' => shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('␦')),
            '\u{7f}' => shown.push('␡'),
            '\u{80}'..='\u{9f}' => shown.push('␦'),
            c => shown.push(c),
        }
    }
    shown
}

/// The longest beginning of at most `room` bytes of JSON.
fn first(text: &str, room: usize) -> &str {
    let mut used = 0;
    let end = text
        .char_indices()
        .find(|(_, c)| {
            used += json_bytes(*c);
            used > room
        })
        .map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default()
}

/// The longest end of at most `room` bytes of JSON.
fn last(text: &str, room: usize) -> &str {
    let mut used = 0;
    let from = text
        .char_indices()
        .rev()
        .find(|(_, c)| {
            used += json_bytes(*c);
            used > room
        })
        .map_or(0, |(at, c)| at + c.len_utf8());
    text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(head: &[u8], tail: &[u8], total: u64) -> Kept {
        Kept {
            head: head.len(),
            tail: tail.len(),
            total,
        }
    }

    fn stream(head: &[u8], tail: &[u8], total: u64, room: usize) -> Stream {
        let bytes = [head, tail].concat();
        reply(&bytes, kept(head, tail, total), Kept::default(), room).stdout
    }

    #[test]
    fn sbx_2_what_is_no_plain_text_is_shown_and_marked() {
        for (bytes, text, binary) in [
            (&b"plain\r\n\ttext\n"[..], "plain\n\ttext\n", false),
            (b"a\0b\xff", "a␀b\u{fffd}", true),
            (b"\x1b[31mred\x1b[0m\x07", "␛[31mred␛[0m␇", false),
            ("中文".as_bytes(), "中文", false),
            (b"\xff\xfe\xfd", "\u{fffd}\u{fffd}\u{fffd}", true),
            (b"", "", false),
        ] {
            // Wherever the two parts meet, nothing is missing between them.
            for at in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(at);
                let found = stream(head, tail, bytes.len() as u64, 1000);
                assert_eq!(
                    (found.text.as_str(), found.binary),
                    (text, binary),
                    "{bytes:?}"
                );
                assert_eq!((found.bytes, found.left_out), (bytes.len() as u64, 0));
            }
        }
    }

    #[test]
    fn sbx_2_a_gap_is_marked_and_counted() {
        let (head, tail) = ("beginning 中".as_bytes(), "文 end".as_bytes());
        // The parts are cut inside of characters.
        let found = stream(&head[..head.len() - 1], &tail[1..], 1_000_000, 1000);
        assert!(found.text.starts_with("beginning \n… ["), "{}", found.text);
        assert!(found.text.ends_with("left out] …\n end"), "{}", found.text);
        assert_eq!(
            found.left_out,
            1_000_000 - (head.len() + tail.len() - 2) as u64
        );
        assert!(!found.binary);
    }

    #[test]
    fn what_one_stream_does_not_need_the_other_gets() {
        for (one, other, want) in [
            (10, 10, (10, 90)),
            (10, 500, (10, 90)),
            (500, 10, (90, 10)),
            (500, 500, (50, 50)),
        ] {
            assert_eq!(shares(one, other, 100), want);
        }
    }

    proptest! {
        #[test]
        fn sbx_2_an_answer_fits_whatever_was_written(out in proptest::collection::vec(any::<u8>(), 0..300), err in proptest::collection::vec(any::<u8>(), 0..300), room in 0_usize..400) {
            let bytes = [out.as_slice(), err.as_slice()].concat();
            let half = out.len() / 2;
            let stdout = Kept { head: half, tail: out.len() - half, total: out.len() as u64 };
            let stderr = kept(&err, b"", err.len() as u64 + 7);
            let found = reply(&bytes, stdout, stderr, room);
            let json = |text: &str| serde_json::to_vec(text).expect("text").len() - 2;
            let marks = 2 * "\\n… [4294967295 bytes left out] …\\n".len();
            prop_assert!(json(&found.stdout.text) + json(&found.stderr.text) <= room + marks);
        }
    }
}
