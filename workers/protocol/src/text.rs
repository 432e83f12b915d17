//! The one helper that cuts text.

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
/// leaves room for the mark.
pub fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mark_bytes = 48;
    let kept = head(text, bytes_max.saturating_sub(mark_bytes));
    format!("{kept}… [{} bytes left out]", text.len() - kept.len())
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
        assert!(cut.ends_with("bytes left out]"));
    }

    proptest! {
        #[test]
        fn uni_1_head_and_tail_hold_for_every_cap(text in ".{0,24}", cap in 0_usize..80) {
            prop_assert!(head(&text, cap).len() <= cap && text.starts_with(head(&text, cap)));
            prop_assert!(tail(&text, cap).len() <= cap && text.ends_with(tail(&text, cap)));
            prop_assert!(cut(&text, cap.max(64)).len() <= cap.max(64));
        }
    }
}
