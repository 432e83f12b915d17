//! Finding the one place that an edit means.

/// Line comparisons that one search for a similar place may cost.
const COMPARISONS_MAX: usize = 2_000_000;
/// Lines of the wanted text that a similar place must match.
const SIMILAR_LINES: usize = 10;
/// Places that a message names.
const PLACES_NAMED_MAX: usize = 10;

/// What an edit makes of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// The new text.
    pub(crate) text: String,
    /// How many places were changed.
    pub(crate) count: usize,
    /// The line of the first of them, from 1.
    pub(crate) line: usize,
}

/// Why an edit changes nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// The text to replace is not there, or not there once. The sentence names numbers of lines, never their content: who
    /// may write a file need not be one who may read it.
    Place(String),
    /// The new text would have this many bytes.
    TooLarge(u64),
}

/// Replaces `old` by `new` in `text`: the one place where it stands, or all of them with `is_all`.
pub(crate) fn replace(
    text: &str,
    old: &str,
    new: &str,
    is_all: bool,
    bytes_max: usize,
) -> Result<Replaced, Miss> {
    let Some(first) = text.find(old) else {
        return Err(Miss::Place(explain_absence(text, old)));
    };
    let count = if is_all {
        text.matches(old).count()
    } else {
        let places = overlapping_places(text, old, first);
        if places.len() > 1 {
            return Err(Miss::Place(explain_ambiguity(text, &places)));
        }
        1
    };
    let bytes = (text.len() as u128)
        .saturating_sub(old.len() as u128 * count as u128)
        .saturating_add(new.len() as u128 * count as u128);
    if bytes > bytes_max as u128 {
        return Err(Miss::TooLarge(u64::try_from(bytes).unwrap_or(u64::MAX)));
    }
    Ok(Replaced {
        text: text.replacen(old, new, count),
        count,
        line: line_at(text, first),
    })
}

/// Where `old` stands, overlapping places included; a few more than a message names.
fn overlapping_places(text: &str, old: &str, first: usize) -> Vec<usize> {
    let mut places = vec![first];
    let mut from = first;
    while places.len() <= PLACES_NAMED_MAX {
        // The next place begins at a later character than this one.
        let next = text.ceil_char_boundary(from + 1);
        let Some(at) = text.get(next..).and_then(|rest| rest.find(old)) else {
            break;
        };
        from = next + at;
        places.push(from);
    }
    places
}

fn explain_ambiguity(text: &str, places: &[usize]) -> String {
    let lines: Vec<String> = places
        .iter()
        .take(PLACES_NAMED_MAX)
        .map(|at| line_at(text, *at).to_string())
        .collect();
    let (count, more) = if places.len() > PLACES_NAMED_MAX {
        (format!("more than {PLACES_NAMED_MAX}"), " and further ones")
    } else {
        (places.len().to_string(), "")
    };
    format!(
        "`old` stands there {count} times (lines {}{more}); add lines around it until it is unique, or set `replace_all`",
        lines.join(", ")
    )
}

fn explain_absence(text: &str, old: &str) -> String {
    let counted = "`old` stands there 0 times";
    if text.contains("\r\n") && !old.contains('\r') && text.contains(&old.replace('\n', "\r\n")) {
        return format!(
            "{counted}, but it does with CRLF line ends, which this file has: write \\r\\n in `old` and `new`"
        );
    }
    match similar_place(text, old) {
        Some(Similar::Spaces(line)) => format!(
            "{counted}; line {line} matches except for white space: read it again and copy it exactly"
        ),
        Some(Similar::Start(line)) => format!(
            "{counted}; its first line is similar to line {line}, but what follows differs: read the file again"
        ),
        None => format!("{counted} and no line is similar; read the file again"),
    }
}

enum Similar {
    /// All compared lines are equal but for white space, from this line on.
    Spaces(usize),
    /// The first line is.
    Start(usize),
}

fn similar_place(text: &str, old: &str) -> Option<Similar> {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted: Vec<String> = old
        .lines()
        .map(squeeze)
        .skip_while(String::is_empty)
        .take(SIMILAR_LINES)
        .collect();
    let first = wanted.first()?;
    let mut start = None;
    let mut comparisons = 0;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        comparisons += 1;
        if comparisons > COMPARISONS_MAX {
            break;
        }
        if !line.contains(first.split(' ').next().unwrap_or_default()) || squeeze(line) != *first {
            continue;
        }
        start.get_or_insert(index + 1);
        let following = lines.clone().map(|(_, line)| squeeze(line));
        comparisons += wanted.len();
        if wanted
            .iter()
            .skip(1)
            .eq(following.take(wanted.len() - 1).collect::<Vec<_>>().iter())
        {
            return Some(Similar::Spaces(index + 1));
        }
    }
    start.map(Similar::Start)
}

/// The line in which byte `at` lies, from 1.
fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(at)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str, old: &str, new: &str) -> Result<Replaced, Miss> {
        replace(text, old, new, false, 1000)
    }

    #[test]
    fn a_unique_place_is_replaced() {
        for (text, old, new, want, line) in [
            ("a\nb\nc\n", "b", "x", "a\nx\nc\n", 2),
            ("a\nb\nc\n", "b\nc\n", "", "a\n", 2),
            ("é中\n👍é", "👍", "中中", "é中\n中中é", 2),
            ("x", "x", "xx", "xx", 1),
        ] {
            let want = Replaced {
                text: want.to_owned(),
                count: 1,
                line,
            };
            assert_eq!(one(text, old, new), Ok(want), "{text:?}");
        }
        let all = replace("a a\na", "a", "bb", true, 8).expect("there");
        assert_eq!(
            (all.text.as_str(), all.count, all.line),
            ("bb bb\nbb", 3, 1)
        );
        assert_eq!(
            replace("a a\na", "a", "bb", true, 7),
            Err(Miss::TooLarge(8))
        );
    }

    #[test]
    fn a_place_that_is_not_unique_is_refused_with_its_lines() {
        let many = "x\n".repeat(30);
        for (text, old, said) in [
            ("b\na\nb\n", "b", "2 times (lines 1, 3)"),
            ("aaa", "aa", "2 times (lines 1, 1)"),
            ("ééé", "éé", "2 times"),
            (many.as_str(), "x", "more than 10 times"),
        ] {
            match one(text, old, "y") {
                Err(Miss::Place(why)) => assert!(why.contains(said), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_place_that_is_missing_is_explained_by_line_numbers_alone() {
        let crlf = "secret one\r\ntwo\r\n";
        let code = "fn a() {\n    secret();\n}\nfn b() {\n    other();\n}\n";
        for (text, old, said) in [
            (crlf, "secret one\ntwo", "CRLF"),
            (
                code,
                "fn a() {\n  secret();\n}",
                "line 1 matches except for white space",
            ),
            (code, "fn b() {\n    elsewhere();", "similar to line 4"),
            (code, "nothing of it", "no line is similar"),
            (code, " \n", "no line is similar"),
            ("", "a", "0 times"),
        ] {
            match one(text, old, "y") {
                Err(Miss::Place(why)) => {
                    assert!(why.contains(said), "{why}");
                    assert!(!why.contains("secret") && !why.contains("other"), "{why}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn uni_1_an_edit_changes_the_one_place_and_nothing_else(before in "[aé中\n]{0,12}", old in "[aé中\n]{1,3}", new in "[bö]{0,3}", after in "[aé中\n]{0,12}") {
            let text = format!("{before}{old}{after}");
            match replace(&text, &old, &new, false, 1000) {
                Ok(done) => {
                    prop_assert_eq!(done.count, 1);
                    prop_assert_eq!(done.text, format!("{before}{new}{after}"));
                }
                Err(_) => prop_assert!(text.char_indices().filter(|(at, _)| text[*at..].starts_with(&old)).count() > 1),
            }
        }
    }
}
