//! What was probably meant by a word that is not known.

/// Words of the policy language that this version does not have yet.
const LATER: [&str; 5] = ["callers", "caller", "taint", "origin", "mode"];

/// A hint for a parser's message of the form "unknown field `x`, expected one of `a`, `b`".
pub(super) fn hint(message: &str) -> Option<String> {
    let (_, rest) = message
        .split_once("unknown field `")
        .or_else(|| message.split_once("unknown variant `"))?;
    let (word, rest) = rest.split_once('`')?;
    if LATER.contains(&word) {
        return Some(format!(
            "rules by caller and taint are not known yet: this version does not read `{word}`"
        ));
    }
    // Between back quotes stands every second part.
    let known = rest.split('`').skip(1).step_by(2);
    known
        .map(|known| (distance(word, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
        .map(|(_, known)| format!("did you mean `{known}`?"))
}

/// The number of letters that must be put in, taken out or changed to make one word of the other.
fn distance(one: &str, two: &str) -> usize {
    // Keys are short; more of an unknown one says nothing.
    let two: Vec<char> = two.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.chars().take(64).enumerate() {
        let mut next = vec![i + 1];
        for ((b, cost), above) in two.iter().zip(&row).zip(row.iter().skip(1)) {
            let left = next.last().copied().unwrap_or_default();
            next.push((cost + usize::from(a != *b)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word_is_named() {
        for (message, want) in [
            (
                "unknown field `efect`, expected one of `effect`, `class`",
                Some("did you mean `effect`?"),
            ),
            (
                "layers[0]: unknown variant `alow`, expected one of `allow`, `ask`",
                Some("did you mean `allow`?"),
            ),
            ("unknown field `zebra`, expected `a` or `b`", None),
            ("invalid type: integer", None),
        ] {
            assert_eq!(hint(message).as_deref(), want, "{message}");
        }
        assert!(
            hint("unknown field `callers`, expected `version`")
                .is_some_and(|hint| hint.contains("not known yet"))
        );
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (one, two, want) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("kitten", "sitting", 3),
            ("", "ab", 2),
            ("ab", "", 2),
        ] {
            assert_eq!(distance(one, two), want, "{one} {two}");
        }
    }
}
