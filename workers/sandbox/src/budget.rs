//! How many bytes an answer takes once it is JSON, so that no answer exceeds the bound of a result.

use serde::Serialize;
use teamster_protocol::limits;

/// Bytes kept for what stands around the items of an answer: its names, numbers, summary, and two paths.
const ENVELOPE_BYTES: usize = 1024 + 4 * limits::FS_PATH_BYTES_MAX;

/// What is left of an answer's bytes.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Budget {
    /// That of one whole answer, without its envelope.
    pub(crate) fn of_answer() -> Self {
        Self(limits::RESULT_BYTES_MAX - ENVELOPE_BYTES)
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.0
    }

    /// Takes the bytes of `item` in a list, if they are there.
    pub(crate) fn take(&mut self, item: &impl Serialize) -> bool {
        let bytes = serde_json::to_vec(item).map_or(usize::MAX, |json| json.len());
        match self.0.checked_sub(bytes.saturating_add(1)) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }
}

/// Bytes of `c` inside a JSON string.
pub(crate) fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn json_bytes_are_those_of_the_serialiser(text in any::<String>()) {
            let counted: usize = text.chars().map(json_bytes).sum();
            prop_assert_eq!(counted + 2, serde_json::to_vec(&text).expect("a string").len());
        }
    }

    #[test]
    fn a_budget_gives_no_more_than_it_has() {
        let mut budget = Budget::of_answer();
        let mut bytes = 0;
        let item = "é\n".repeat(50);
        while budget.take(&item) {
            bytes += serde_json::to_vec(&item).expect("a string").len() + 1;
        }
        assert!(bytes + ENVELOPE_BYTES <= limits::RESULT_BYTES_MAX);
        assert!(!budget.take(&"x".repeat(limits::RESULT_BYTES_MAX)));
    }
}
