//! Reading one layer, and laying one over another. Pure.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use teamster_protocol::arguments::NoDuplicates;

use super::Error;

/// Reads YAML; an empty file says nothing. A key that stands twice in a mapping is refused: one of its values would not count.
pub(super) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    let is_empty = text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    let text = if is_empty { "{}" } else { text };
    let invalid = |source: serde_yaml::Error| Error::invalid(path.to_owned(), &source);
    let read = serde_yaml::from_str(text).map_err(invalid)?;
    serde_yaml::from_str::<NoDuplicates>(text).map_err(invalid)?;
    Ok(read)
}

/// Lays `over` on `base`: mappings key by key, everything else whole. `null` says nothing.
pub fn merge(base: Value, over: Value) -> Value {
    match (base, over) {
        (base, Value::Null) => base,
        (Value::Object(mut base), Value::Object(over)) => {
            for (key, value) in over {
                let merged = match base.remove(&key) {
                    Some(old) => merge(old, value),
                    None => value,
                };
                base.insert(key, merged);
            }
            Value::Object(base)
        }
        (_, over) => over,
    }
}

/// The first place where `over` would put something else into the place of a mapping. Readers of sequences and of mappings
/// cannot be told apart later.
pub(super) fn clash(base: &Value, over: &Value) -> Option<Vec<String>> {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => over.iter().find_map(|(key, over)| {
            let mut path = clash(base.get(key)?, over)?;
            path.insert(0, key.clone());
            Some(path)
        }),
        (Value::Object(_), Value::Null) => None,
        (Value::Object(_), _) => Some(Vec::new()),
        _ => None,
    }
}

/// The values of a tree with the segments that lead to each: all that is no mapping, and mappings without a key.
pub fn leaves(tree: &Value) -> Vec<(Vec<String>, &Value)> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect<'a>(tree: &'a Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, &'a Value)>) {
    match tree {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                path.push(key.clone());
                collect(value, path, found);
                path.pop();
            }
        }
        value => found.push((path.clone(), value)),
    }
}

/// The place in `over` whose value makes it unusable, and why, where one value alone does: key and words. `wrong` says what is wrong with
/// `over` if it held that value only. An element of a list is named by its number, from 0.
pub(super) fn culprit(
    over: &Value,
    wrong: impl Fn(Value) -> Option<String>,
) -> Option<(Vec<String>, Option<usize>, String)> {
    let alone = |path: &[String], value: Value| {
        wrong(super::path::set(Value::Object(Map::new()), path, value))
    };
    leaves(over).into_iter().find_map(|(path, leaf)| {
        let said = alone(&path, leaf.clone())?;
        let mut elements = leaf.as_array().into_iter().flatten().enumerate();
        // What is wrong with an empty list as well is no element's fault.
        let empty = alone(&path, Value::Array(Vec::new()));
        let element = elements.find_map(|(number, element)| {
            let said = alone(&path, Value::Array(vec![element.clone()]))?;
            (Some(&said) != empty.as_ref()).then_some((number, said))
        });
        Some(match element {
            Some((number, said)) => (path, Some(number), said),
            None => (path, None, said),
        })
    })
}

/// The known name that is nearest to `name`, if any is near.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().div_ceil(3))
        .map(|(_, candidate)| candidate)
}

/// Edits (one character put in, left out or changed) between two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, from_char) in from.chars().enumerate() {
        let mut next = vec![line + 1];
        for ((to_char, diagonal), above) in to.iter().zip(&row).zip(row.iter().skip(1)) {
            let left = next.last().copied().unwrap_or_default();
            let change = diagonal + usize::from(from_char != *to_char);
            next.push(change.min(left + 1).min(above + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        serde_yaml::from_str(text).expect("yaml")
    }

    #[test]
    fn mappings_are_merged_and_everything_else_is_replaced() {
        let base = value("{a: {b: 1, c: [1, 2]}, d: x}");
        for (over, want) in [
            ("{}", "{a: {b: 1, c: [1, 2]}, d: x}"),
            ("{a: {b: 2}}", "{a: {c: [1, 2], b: 2}, d: x}"),
            ("{a: {c: [3]}, e: 1}", "{a: {b: 1, c: [3]}, d: x, e: 1}"),
            ("{a: ~, d: y}", "{a: {b: 1, c: [1, 2]}, d: y}"),
            ("{a: 7}", "{a: 7, d: x}"),
        ] {
            assert_eq!(merge(base.clone(), value(over)), value(want), "{over}");
        }
    }

    #[test]
    fn a_mapping_is_not_replaced_by_something_else() {
        let base = value("{a: {b: 1, c: {}}, d: x}");
        for (over, want) in [
            ("{a: {b: [1], c: {e: 2}}, d: {}, f: 3}", None),
            ("{a: ~}", None),
            ("{a: [1]}", Some("a")),
            ("{a: {c: x}}", Some("a.c")),
            ("[]", Some("")),
        ] {
            let found = clash(&base, &value(over)).map(|path| path.join("."));
            assert_eq!(found.as_deref(), want, "{over}");
        }
    }

    #[test]
    fn leaves_have_their_paths() {
        let tree = value("{a: {b: 1, c: [1, 2], e: {}}, d: ~}");
        let found: Vec<(String, String)> = leaves(&tree)
            .into_iter()
            .map(|(path, value)| (path.join("."), value.to_string()))
            .collect();
        let want = [("a.b", "1"), ("a.c", "[1,2]"), ("a.e", "{}"), ("d", "null")];
        assert_eq!(found, want.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn the_value_that_is_wrong_is_found_and_a_list_by_its_element() {
        let wrong = |tree: Value| {
            let tree = tree.to_string();
            let is_short = tree.contains("\"all\":[]") || tree.contains("\"all\":[1]");
            match (tree.contains("bad"), is_short) {
                (true, _) => Some("bad".to_owned()),
                (_, true) => Some("too short".to_owned()),
                _ => None,
            }
        };
        for (over, want) in [
            ("{a: {b: 1, c: bad}}", Some(("a.c", None))),
            ("{a: [x, bad]}", Some(("a", Some(1)))),
            ("{all: [1]}", Some(("all", None))),
            ("{a: {}, b: [1]}", None),
        ] {
            let found = culprit(&value(over), wrong);
            let found = found.map(|(path, number, _)| (path.join("."), number));
            let want = want.map(|(path, number)| (path.to_owned(), number));
            assert_eq!(found, want, "{over}");
        }
    }

    #[test]
    fn only_a_near_name_is_offered() {
        let known = ["default_max_turns", "default_model", "required_hooks"];
        assert_eq!(nearest("default_modl", known), Some("default_model"));
        assert_eq!(nearest("defaultmaxturns", known), Some("default_max_turns"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", []), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
