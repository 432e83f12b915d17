//! What a person looks for, as conditions on texts. Pure.
//!
//! Nothing that a person types is ever read as syntax of the index: each word and each quoted part becomes one quoted string of it.

use teamster_protocol::limits;

/// A query that was understood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// What the index is asked; empty if it cannot help.
    pub(crate) index: String,
    /// Patterns for `LIKE … ESCAPE '\\'`, all of which the text must match.
    pub(crate) patterns: Vec<String>,
    /// What stands in the text, for showing the place where the index was not asked.
    pub(crate) literals: Vec<String>,
}

/// A word or a quoted part.
#[derive(Debug, PartialEq, Eq)]
struct Term {
    text: String,
    is_quoted: bool,
    is_prefix: bool,
}

impl Query {
    /// Reads what a person typed: words, of which all must be there; `word*` for words that begin so; parts in double quotes as
    /// they stand. The error says what cannot be understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > limits::QUERY_BYTES_MAX {
            return Err(format!(
                "a query has at most {} bytes",
                limits::QUERY_BYTES_MAX
            ));
        }
        let mut query = Self::default();
        let mut parts = Vec::new();
        for term in terms(text)? {
            let is_indexed =
                term.text.chars().any(char::is_alphanumeric) && !term.text.chars().any(is_unspaced);
            if is_indexed {
                let star = if term.is_prefix { " *" } else { "" };
                parts.push(format!("\"{}\"{star}", term.text.replace('"', "\"\"")));
            }
            let is_exact = term.is_quoted && term.text.chars().any(is_mark);
            if !is_indexed || is_exact {
                query.patterns.push(pattern(&term.text));
                query.literals.push(term.text);
            }
        }
        query.index = parts.join(" AND ");
        if query.index.is_empty() && query.patterns.is_empty() {
            return Err("there is no word in it".to_owned());
        }
        Ok(query)
    }

    /// The place in a text that was found without the index, with marks around it.
    pub(crate) fn snippet(&self, text: &str) -> String {
        let found = self.literals.iter().find_map(|literal| {
            let at = find(text, literal)?;
            Some((at, at + literal.len()))
        });
        let (from, to) = found.unwrap_or((0, 0));
        let before = text.get(..from).unwrap_or_default();
        let (hit, after) = (
            text.get(from..to).unwrap_or_default(),
            text.get(to..).unwrap_or_default(),
        );
        let head = teamster_protocol::text::tail(before, limits::SNIPPET_BYTES_MAX / 2);
        let rest = teamster_protocol::text::head(after, limits::SNIPPET_BYTES_MAX / 2);
        let more = |is_cut: bool| if is_cut { "…" } else { "" };
        let marked = if hit.is_empty() {
            String::new()
        } else {
            format!("⟦{hit}⟧")
        };
        format!(
            "{}{head}{marked}{rest}{}",
            more(head.len() < before.len()),
            more(rest.len() < after.len())
        )
    }
}

/// As `LIKE` finds it: letters of ASCII in either case.
fn find(text: &str, literal: &str) -> Option<usize> {
    if literal.is_empty() {
        return None;
    }
    text.char_indices().map(|(at, _)| at).find(|at| {
        text.get(*at..at + literal.len())
            .is_some_and(|part| part.eq_ignore_ascii_case(literal))
    })
}

fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

/// Whether a character is of a script that is written without spaces between words, so that the index takes a whole sentence for
/// one word.
fn is_unspaced(character: char) -> bool {
    matches!(u32::from(character),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1100..=0x11FF | 0x1780..=0x17FF | 0x3040..=0x30FF
        | 0x3130..=0x318F | 0x31F0..=0x31FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF
        | 0xF900..=0xFAFF | 0xFF66..=0xFFDC | 0x20000..=0x3FFFF)
}

/// Whether a character is no part of a word and no space between words.
fn is_mark(character: char) -> bool {
    !character.is_alphanumeric() && !character.is_whitespace()
}

fn terms(text: &str) -> Result<Vec<Term>, String> {
    let text: String = text
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    let mut terms = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (term, behind) = if let Some(quoted) = rest.strip_prefix('"') {
            let Some((inside, behind)) = quoted.split_once('"') else {
                return Err("a double quote is not closed".to_owned());
            };
            let (is_prefix, behind) = match behind.strip_prefix('*') {
                Some(behind) => (true, behind),
                None => (false, behind),
            };
            (
                Term {
                    text: inside.trim().to_owned(),
                    is_quoted: true,
                    is_prefix,
                },
                behind,
            )
        } else {
            let end = rest
                .find(|character: char| character.is_whitespace() || character == '"')
                .unwrap_or(rest.len());
            let (word, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let is_prefix = word.ends_with('*') && word.chars().any(char::is_alphanumeric);
            let text = if is_prefix {
                word.trim_end_matches('*')
            } else {
                word
            };
            (
                Term {
                    text: text.to_owned(),
                    is_quoted: false,
                    is_prefix,
                },
                behind,
            )
        };
        if !term.text.is_empty() {
            terms.push(term);
        }
        rest = behind.trim_start();
    }
    if terms.len() > limits::QUERY_TERMS_MAX {
        return Err(format!(
            "a query has at most {} words",
            limits::QUERY_TERMS_MAX
        ));
    }
    Ok(terms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_and_quoted_parts_become_strings_of_the_index() {
        for (text, index, patterns) in [
            ("red fox", r#""red" AND "fox""#, &[][..]),
            ("  dep*  ", r#""dep" *"#, &[]),
            (r#""red fox" jumps"#, r#""red fox" AND "jumps""#, &[]),
            (r#""red fo"*"#, r#""red fo" *"#, &[]),
            (r#"a"b c"d"#, r#""a" AND "b c" AND "d""#, &[]),
            (
                "NEAR(a b) OR x",
                r#""NEAR(a" AND "b)" AND "OR" AND "x""#,
                &[],
            ),
            ("text:secret", r#""text:secret""#, &[]),
            (r#""foo->bar""#, r#""foo->bar""#, &["%foo->bar%"]),
            ("&& 100%", r#""100%""#, &["%&&%"]),
            ("_%", "", &[r"%\_\%%"]),
            ("東京 tower", r#""tower""#, &["%東京%"]),
            ("a\u{0}b", r#""a" AND "b""#, &[]),
        ] {
            let query = Query::parse(text).expect(text);
            assert_eq!(query.index, index, "{text}");
            assert_eq!(query.patterns, patterns, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        for (text, words) in [
            ("", "no word"),
            ("  \u{0} ", "no word"),
            (r#""""#, "no word"),
            (r#"say "hi"#, "not closed"),
            (&"x".repeat(limits::QUERY_BYTES_MAX + 1), "bytes"),
            (&"x ".repeat(limits::QUERY_TERMS_MAX + 1), "words"),
        ] {
            let error = Query::parse(text).expect_err("not understood");
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_place_is_shown_with_marks() {
        let query = Query::parse("東京").expect("understood");
        assert_eq!(query.snippet("今日は東京です"), "今日は⟦東京⟧です");
        let query = Query::parse("->").expect("understood");
        let long = format!("{} -> {}", "é".repeat(500), "b".repeat(500));
        let shown = query.snippet(&long);
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains("⟦->⟧"));
    }

    proptest! {
        /// Whatever is typed: the index gets strings in quotes and the word AND, nothing else.
        #[test]
        fn nothing_typed_becomes_syntax(text in r#"[a-z"*:()^+\-{}%_\\ \u{0}é東]{0,24}"#) {
            if let Ok(query) = Query::parse(&text) {
                let mut is_inside = false;
                let outside: String = query.index.chars().filter(|character| {
                    is_inside ^= *character == '"';
                    !is_inside && *character != '"'
                }).collect();
                prop_assert!(!is_inside);
                prop_assert!(outside.split_whitespace().all(|word| word == "AND" || word == "*"), "{}", outside);
            }
        }
    }
}
