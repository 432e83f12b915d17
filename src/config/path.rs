//! Keys of the configuration as people write them: segments joined by dots, a segment with a dot in double quotes. Pure.

use serde_json::{Map, Value};

/// Segments of one key.
const SEGMENTS_MAX: usize = 16;

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a key is names joined by dots, a name with a dot in double quotes: router.providers.mine.models.\"m-4.1\""
)]
pub struct ParseError;

/// Reads a key. An empty text is the root.
pub fn parse(text: &str) -> Result<Vec<String>, ParseError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut segments = vec![String::new()];
    let mut is_quoted = false;
    for character in text.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => segments.push(String::new()),
            other => {
                if let Some(segment) = segments.last_mut() {
                    segment.push(other);
                }
            }
        }
    }
    if is_quoted || segments.len() > SEGMENTS_MAX || segments.iter().any(String::is_empty) {
        return Err(ParseError);
    }
    Ok(segments)
}

/// Writes a key as [`parse`] reads it.
pub fn join<S: AsRef<str>>(segments: &[S]) -> String {
    let quoted = |segment: &str| {
        if segment.contains('.') {
            format!("\"{segment}\"")
        } else {
            segment.to_owned()
        }
    };
    let parts: Vec<String> = segments.iter().map(|s| quoted(s.as_ref())).collect();
    parts.join(".")
}

/// What stands at a key.
pub fn get<'a>(tree: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(tree, |tree, segment| tree.as_object()?.get(segment))
}

/// Whether a layer says something at a key: `null` says nothing.
pub fn says(tree: &Value, path: &[String]) -> bool {
    get(tree, path).is_some_and(|value| !value.is_null())
}

/// The same tree with a value at a key. What is no mapping on the way becomes one.
pub fn set(tree: Value, path: &[String], value: Value) -> Value {
    let Some((first, rest)) = path.split_first() else {
        return value;
    };
    let mut map = match tree {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let inner = map.remove(first).unwrap_or(Value::Null);
    map.insert(first.clone(), set(inner, rest, value));
    Value::Object(map)
}

/// The same tree without a key, and without the mappings that are empty then.
pub fn unset(tree: Value, path: &[String]) -> Value {
    let Some((first, rest)) = path.split_first() else {
        return Value::Object(Map::new());
    };
    let Value::Object(mut map) = tree else {
        return tree;
    };
    if let Some(inner) = map.remove(first) {
        let left = unset(inner, rest);
        let is_empty = rest.is_empty() || left.as_object().is_some_and(Map::is_empty);
        if !is_empty {
            map.insert(first.clone(), left);
        }
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_read_and_written_back() {
        for (text, want) in [
            ("", &[][..]),
            ("harness", &["harness"]),
            ("harness.default_model", &["harness", "default_model"]),
            ("a.\"m-4.1\".b", &["a", "m-4.1", "b"]),
        ] {
            let segments = parse(text).expect(text);
            assert_eq!(segments, want, "{text}");
            assert_eq!(join(&segments), text);
        }
        for bad in [".", "a.", ".a", "a..b", "a.\"b", "\"\"", &"a.".repeat(40)] {
            assert_eq!(parse(bad), Err(ParseError), "{bad}");
        }
    }

    #[test]
    fn a_value_is_put_and_taken_away_and_leaves_nothing_behind() {
        let path = |text: &str| parse(text).expect("a key");
        let tree = set(json!({"a": 1}), &path("b.c.d"), json!(true));
        assert_eq!(tree, json!({"a": 1, "b": {"c": {"d": true}}}));
        assert_eq!(get(&tree, &path("b.c.d")), Some(&json!(true)));
        assert!(!says(&json!({"a": null}), &path("a")));
        let tree = set(tree, &path("b.e"), json!(2));
        let tree = unset(tree, &path("b.c.d"));
        assert_eq!(tree, json!({"a": 1, "b": {"e": 2}}));
        assert_eq!(unset(tree.clone(), &path("x.y")), tree);
        assert_eq!(unset(unset(tree, &path("b")), &path("a")), json!({}));
    }
}
