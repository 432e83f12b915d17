//! Lines of a file's bytes, and excerpts of them.

use std::ops::Range;

use teamster_protocol::text::{head, tail};

/// What stands where an excerpt leaves something out.
const MARK: &str = "…";

/// One line, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Its bytes, without `\n` or `\r\n`.
    pub(crate) bytes: &'a [u8],
    /// Where it begins.
    pub(crate) start: usize,
    /// Where the next one begins.
    pub(crate) end: usize,
}

/// The lines of some bytes. What follows the last line end counts if it is not empty.
#[derive(Debug, Clone)]
pub(crate) struct Lines<'a> {
    content: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// The lines of `content`.
    pub(crate) fn of(content: &'a [u8]) -> Self {
        Self { content, at: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let start = self.at;
        let rest = self.content.get(start..).filter(|rest| !rest.is_empty())?;
        let (bytes, step) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(at) => (rest.get(..at)?, at + 1),
            None => (rest, rest.len()),
        };
        self.at = start + step;
        Some(Line {
            bytes: bytes.strip_suffix(b"\r").unwrap_or(bytes),
            start,
            end: self.at,
        })
    }
}

/// The last `count` lines before the one that begins at `start`, in order.
pub(crate) fn lines_before(content: &[u8], start: usize, count: usize) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = content.get(..start).unwrap_or_default();
    while lines.len() < count {
        let Some(body) = rest.strip_suffix(b"\n") else {
            break;
        };
        let from = body
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let line = body.get(from..).unwrap_or_default();
        lines.push(line.strip_suffix(b"\r").unwrap_or(line));
        rest = body.get(..from).unwrap_or_default();
    }
    lines.reverse();
    lines
}

/// The part of `line` around the bytes `wanted`: all of it if it has at most `bytes_max` bytes, else as much, with marks.
pub(crate) fn around(line: &[u8], wanted: Range<usize>, bytes_max: usize) -> String {
    let (before, from) = line.split_at(wanted.start.min(line.len()));
    let before = String::from_utf8_lossy(before);
    let from = String::from_utf8_lossy(from);
    if before.len() + from.len() <= bytes_max {
        return format!("{before}{from}");
    }
    let room = bytes_max.saturating_sub(2 * MARK.len());
    // A third of the room shows what leads to the match; what it does not need, the rest gets.
    let lead = tail(&before, room / 3);
    let rest = head(&from, room - lead.len());
    let first = if lead.len() < before.len() { MARK } else { "" };
    let last = if rest.len() < from.len() { MARK } else { "" };
    format!("{first}{lead}{rest}{last}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_have_no_ends_and_know_their_place() {
        for (content, want) in [
            ("", vec![]),
            ("a", vec![("a", 0, 1)]),
            ("a\r\n\nb\n", vec![("a", 0, 3), ("", 3, 4), ("b", 4, 6)]),
            ("\n", vec![("", 0, 1)]),
        ] {
            let found: Vec<_> = Lines::of(content.as_bytes())
                .map(|line| {
                    (
                        std::str::from_utf8(line.bytes).expect("text"),
                        line.start,
                        line.end,
                    )
                })
                .collect();
            assert_eq!(found, want, "{content:?}");
        }
        let content = b"a\nb\r\nc\nd";
        assert_eq!(lines_before(content, 7, 2), [&b"b"[..], b"c"]);
        assert_eq!(lines_before(content, 7, 9).len(), 3);
        assert!(lines_before(content, 0, 9).is_empty());
    }

    #[test]
    fn a_long_line_is_cut_around_the_match() {
        let line = format!("{}HIT{}", "é".repeat(500), "中".repeat(500));
        let shown = around(line.as_bytes(), 1000..1003, 100);
        assert!(shown.starts_with("…é") && shown.contains("éHIT中") && shown.ends_with("中…"));
        assert_eq!(around(b"a\xffb", 1..2, 100), "a\u{fffd}b");
    }

    proptest! {
        #[test]
        fn uni_1_an_excerpt_fits_and_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60), from in 0_usize..70, cap in 6_usize..50) {
            let shown = around(&bytes, from..from + 1, cap);
            prop_assert!(shown.len() <= cap);
        }

        #[test]
        fn lines_before_are_the_lines_before(content in "[a\n]{0,20}", count in 0_usize..5) {
            let lines: Vec<_> = Lines::of(content.as_bytes()).collect();
            for (index, line) in lines.iter().enumerate() {
                let want: Vec<_> = lines[index.saturating_sub(count)..index].iter().map(|line| line.bytes).collect();
                prop_assert_eq!(lines_before(content.as_bytes(), line.start, count), want);
            }
        }
    }
}
