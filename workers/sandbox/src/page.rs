//! One page of a file: which bytes it has, and where the next one begins.

use std::io::Read;

use sha2::{Digest as _, Sha256};
use teamster_protocol::limits;

use crate::budget::json_bytes;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes at the beginning of a file in which a NUL means that it is no text.
pub(crate) const SNIFF_BYTES: usize = 8 * 1024;
/// Bytes kept of what follows the page's beginning: more than any page can show.
pub(crate) const WINDOW_BYTES: usize = limits::RESULT_BYTES_MAX + 8;

/// What fits into a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The text; what is not UTF-8 is replaced by U+FFFD.
    pub(crate) text: String,
    /// How many bytes of the file it stands for.
    pub(crate) bytes: usize,
    /// Whether anything was replaced.
    pub(crate) is_lossy: bool,
}

/// Takes as much from the beginning of `window` as fits into `budget` bytes of a JSON string and `lines_max` lines: whole
/// lines if at least one fits, else the beginning of the first. `is_end` says that the file ends with the window.
pub(crate) fn fit(window: &[u8], budget: usize, lines_max: u64, is_end: bool) -> Fit {
    let mut left = budget;
    let mut taken = Taken::default();
    let mut at_line_end = None;
    let mut lines = 0;
    let mut chunks = window.utf8_chunks().peekable();
    let is_whole = 'whole: {
        while let Some(chunk) = chunks.next() {
            for c in chunk.valid().chars() {
                if lines == lines_max || !taken.push(c, c.len_utf8(), &mut left) {
                    break 'whole false;
                }
                if c == '\n' {
                    lines += 1;
                    at_line_end = Some(taken.mark());
                }
            }
            let broken = chunk.invalid().len();
            if broken > 0 {
                // At the window's edge a character may only be cut, not broken.
                let is_cut = chunks.peek().is_none() && !is_end && broken < 4;
                let replacement = char::REPLACEMENT_CHARACTER;
                if is_cut || lines == lines_max || !taken.push(replacement, broken, &mut left) {
                    break 'whole false;
                }
                taken.is_lossy = true;
            }
        }
        is_end
    };
    if let (false, Some(mark)) = (is_whole, at_line_end) {
        taken.back_to(mark);
    }
    Fit {
        text: taken.text,
        bytes: taken.bytes,
        is_lossy: taken.is_lossy,
    }
}

#[derive(Default)]
struct Taken {
    text: String,
    bytes: usize,
    is_lossy: bool,
}

impl Taken {
    fn push(&mut self, c: char, bytes: usize, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(json_bytes(c)) else {
            return false;
        };
        *left = rest;
        self.text.push(c);
        self.bytes += bytes;
        true
    }

    fn mark(&self) -> (usize, usize, bool) {
        (self.text.len(), self.bytes, self.is_lossy)
    }

    fn back_to(&mut self, (text, bytes, is_lossy): (usize, usize, bool)) {
        self.text.truncate(text);
        self.bytes = bytes;
        self.is_lossy = is_lossy;
    }
}

/// What reading a file up to and beyond a line gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Where the wanted line begins; `None` if the file ends before it or it lies beyond the scanned bytes.
    pub(crate) start: Option<u64>,
    /// What follows from there: the whole rest, or [`WINDOW_BYTES`].
    pub(crate) window: Vec<u8>,
    /// Whether the window ends where the file does.
    pub(crate) is_end: bool,
    /// Lines and digest of the whole file, if it was read whole.
    pub(crate) whole: Option<Whole>,
}

/// What is known of a file that was read whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// How many lines it has; a last line without a line end counts.
    pub(crate) lines: u64,
    /// SHA-256, in hexadecimal digits.
    pub(crate) sha256: teamster_protocol::Digest,
}

/// Reads `file` from its beginning and keeps what follows the beginning of line `line` (from 1). With `is_whole` it reads to
/// the end, else no further than the window needs. Never reads more than `bytes_max`. `go_on` is asked before each chunk.
pub(crate) fn scan<E>(
    file: &mut impl Read,
    line: u64,
    is_whole: bool,
    bytes_max: u64,
    go_on: impl Fn() -> Result<(), E>,
    fail: impl Fn(std::io::Error) -> E,
) -> Result<Scan, E> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut hasher = Sha256::new();
    let mut found = Scan {
        start: (line <= 1).then_some(0),
        window: Vec::new(),
        is_end: false,
        whole: None,
    };
    let (mut at, mut newlines, mut last) = (0_u64, 0_u64, b'\n');
    let mut is_cut = false;
    while at < bytes_max && (is_whole || found.window.len() < WINDOW_BYTES) {
        go_on()?;
        let count = match file.read(&mut chunk) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other.map_err(&fail)?,
        };
        let read = chunk.get(..count).unwrap_or_default();
        let Some(&last_byte) = read.last() else {
            found.is_end = !is_cut;
            let lines = newlines + u64::from(last != b'\n');
            // A digest that covers the whole file only.
            found.whole = is_whole.then(|| Whole {
                lines,
                sha256: teamster_protocol::Digest::from(<[u8; 32]>::from(hasher.finalize())),
            });
            return Ok(found);
        };
        last = last_byte;
        if is_whole {
            hasher.update(read);
        }
        let mut kept_from = found.start.map(|_| 0);
        let line_ends: u64 = read.iter().map(|byte| u64::from(*byte == b'\n')).sum();
        if found.start.is_none() && newlines + line_ends + 1 >= line {
            let wanted = usize::try_from(line - newlines - 2).unwrap_or(usize::MAX);
            let mut ends = (1..).zip(read).filter(|(_, byte)| **byte == b'\n');
            kept_from = ends.nth(wanted).map(|(after, _)| after);
            found.start = kept_from.map(|from| at + from as u64);
        }
        newlines += line_ends;
        if let Some(kept) = kept_from.and_then(|from| read.get(from..)) {
            let room = WINDOW_BYTES - found.window.len();
            is_cut |= kept.len() > room;
            found.window.extend(kept.iter().take(room));
        }
        at += count as u64;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan_all(bytes: &[u8], line: u64) -> Scan {
        scan(
            &mut &bytes[..],
            line,
            true,
            u64::MAX,
            || Ok(()),
            |error: std::io::Error| error,
        )
        .expect("memory reads")
    }

    #[test]
    fn a_line_is_found_by_its_number() {
        for (text, line, start, window, lines) in [
            ("", 1, Some(0), "", 0),
            ("a", 1, Some(0), "a", 1),
            ("a\n", 2, Some(2), "", 1),
            ("a\n\nb", 2, Some(2), "\nb", 3),
            ("a\n\nb", 3, Some(3), "b", 3),
            ("a\n\nb", 4, None, "", 3),
        ] {
            let found = scan_all(text.as_bytes(), line);
            assert_eq!(
                (found.start, found.window.as_slice(), found.is_end),
                (start, window.as_bytes(), true),
                "{text:?} {line}"
            );
            let whole = found.whole.expect("read whole");
            assert_eq!(whole.lines, lines, "{text:?}");
            assert_eq!(whole.sha256, teamster_protocol::Digest::of(text));
        }
    }

    #[test]
    fn a_window_is_bounded_and_says_so() {
        let bytes = vec![b'x'; 3 * WINDOW_BYTES];
        let found = scan_all(&bytes, 1);
        assert_eq!((found.window.len(), found.is_end), (WINDOW_BYTES, false));
        let mut endless = std::io::repeat(b'\n');
        let found = scan(
            &mut endless,
            u64::MAX,
            true,
            1 << 20,
            || Ok(()),
            |error: std::io::Error| error,
        )
        .expect("memory reads");
        assert_eq!(
            (found.start, found.is_end, found.whole),
            (None, false, None)
        );
        let found = scan(
            &mut endless,
            5,
            false,
            u64::MAX,
            || Ok(()),
            |error: std::io::Error| error,
        )
        .expect("memory reads");
        assert_eq!((found.start, found.window.len()), (Some(4), WINDOW_BYTES));
    }

    #[test]
    fn a_page_ends_between_lines_where_one_fits() {
        let all = u64::MAX;
        for (window, budget, lines, is_end, text, bytes, is_lossy) in [
            (&b"ab\ncd\nef"[..], 100, all, true, "ab\ncd\nef", 8, false),
            (b"ab\ncd\nef", 9, all, true, "ab\ncd\n", 6, false),
            (b"ab\ncd\nef", 100, 2, true, "ab\ncd\n", 6, false),
            (b"ab\ncd\nef", 100, all, false, "ab\ncd\n", 6, false),
            (b"abcdef", 4, all, true, "abcd", 4, false),
            (b"a\xffb", 100, all, true, "a\u{fffd}b", 3, true),
            (b"a\n\xe4\xb8", 100, all, false, "a\n", 2, false),
            (b"a\xe4\xb8", 100, all, false, "a", 1, false),
            (b"\xe4\xb8", 100, all, true, "\u{fffd}", 2, true),
            (b"", 100, all, true, "", 0, false),
        ] {
            let want = Fit {
                text: text.to_owned(),
                bytes,
                is_lossy,
            };
            assert_eq!(fit(window, budget, lines, is_end), want, "{window:?}");
        }
    }

    proptest! {
        /// UNI-1: pages cut between characters, and together they are the file.
        #[test]
        fn uni_1_pages_join_to_the_text(text in "[aé中👍\n\"\u{1}]{0,60}", budget in 6_usize..40) {
            let mut rest = text.as_bytes();
            let mut joined = String::new();
            while !rest.is_empty() {
                let page = fit(rest, budget, u64::MAX, true);
                prop_assert!(page.bytes > 0 && !page.is_lossy);
                prop_assert!(serde_json::to_vec(&page.text).expect("a string").len() <= budget + 2);
                joined.push_str(&page.text);
                rest = &rest[page.bytes..];
            }
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn every_byte_of_any_file_is_on_a_page(bytes in proptest::collection::vec(any::<u8>(), 0..80), budget in 6_usize..40) {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let page = fit(rest, budget, u64::MAX, true);
                prop_assert!(page.bytes > 0 && page.bytes <= rest.len());
                rest = &rest[page.bytes..];
            }
        }
    }
}
