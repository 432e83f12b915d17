//! A page of a text: whole characters, bounded as they are and as JSON. Pure.

/// A page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<'a> {
    pub(crate) text: &'a str,
    /// Where the next one begins; `None` at the end.
    pub(crate) next: Option<u64>,
}

/// The page of `text` at `offset`, of at most `length` bytes that take at most `json_max` bytes as JSON; but at least one
/// character, so that pages come to an end.
pub(crate) fn page(text: &str, offset: u64, length: u64, json_max: usize) -> Page<'_> {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let from = text.floor_char_boundary(offset);
    let rest = text.get(from..).unwrap_or_default();
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (mut end, mut json) = (0_usize, 0_usize);
    for character in rest.chars() {
        let (bytes, escaped) = (end + character.len_utf8(), json + json_bytes(character));
        if end > 0 && (bytes > length || escaped > json_max) {
            break;
        }
        (end, json) = (bytes, escaped);
    }
    Page {
        text: rest.get(..end).unwrap_or_default(),
        next: (end < rest.len()).then_some((from + end) as u64),
    }
}

/// Bytes that a character takes in a JSON string.
fn json_bytes(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_and_ends_between_characters() {
        for (offset, length, text, next) in [
            (0, 100, "a中b", None),
            (0, 1, "a", Some(1)),
            (0, 3, "a", Some(1)),
            (2, 4, "中b", None),
            (3, 0, "中", Some(4)),
            (5, 9, "", None),
            (99, 9, "", None),
            (u64::MAX, u64::MAX, "", None),
        ] {
            assert_eq!(
                page("a中b", offset, length, 1000),
                Page { text, next },
                "{offset} {length}"
            );
        }
    }
}
