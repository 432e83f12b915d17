//! From any JSON Schema to one that strict providers accept for a tool's parameters. Pure.
//!
//! Owns: the rules that providers share: an object at the top, its type stated, no alternatives there.
//!
//! Never: checking arguments. What the function itself accepts is decided by the function.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Keys of the top level that say nothing to a model and that some providers refuse.
const DROPPED: &[&str] = &[
    "$schema", "$id", "title", "default", "examples", "not", "if", "then", "else",
];
/// Alternatives at the top level, which strict providers refuse.
const ALTERNATIVES: &[&str] = &["anyOf", "oneOf", "allOf"];

/// The schema to send, or why the tool cannot be offered.
pub fn project(schema: &Value) -> Result<Value, &'static str> {
    let schema = match schema {
        Value::Object(schema) => schema,
        Value::Null | Value::Bool(true) => return Ok(json!({"type": "object", "properties": {}})),
        _ => return Err("its schema is no object"),
    };
    if !is_object(schema) {
        return Err("its schema is not of type object");
    }
    let mut projected = schema.clone();
    projected.retain(|key, _| !DROPPED.contains(&key.as_str()));
    for key in ALTERNATIVES {
        if let Some(branches) = projected.remove(*key) {
            merge(&mut projected, &branches, schema, *key == "allOf")?;
        }
    }
    projected.insert("type".to_owned(), json!("object"));
    let properties = projected.entry("properties").or_insert_with(|| json!({}));
    if !properties.is_object() {
        return Err("the properties of its schema are no object");
    }
    Ok(Value::Object(projected))
}

/// Whether a schema allows objects: by its type, or by naming none.
fn is_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(_) => false,
    }
}

/// Puts the properties of all branches into one object. What only some branches demand becomes optional, unless all
/// branches hold at once.
fn merge(
    into: &mut Map<String, Value>,
    branches: &Value,
    root: &Map<String, Value>,
    hold_at_once: bool,
) -> Result<(), &'static str> {
    let branches = branches
        .as_array()
        .ok_or("the alternatives of its schema are no list")?;
    let mut demanded: Option<BTreeSet<String>> = None;
    let mut properties = Map::new();
    for branch in branches {
        let branch = resolve(branch, root).ok_or("an alternative of its schema cannot be read")?;
        if !is_object(branch) || ALTERNATIVES.iter().any(|key| branch.contains_key(*key)) {
            return Err("an alternative of its schema is no plain object");
        }
        for (name, property) in branch
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            combine(&mut properties, name, property);
        }
        let required = required(branch);
        demanded = Some(match demanded {
            None => required,
            Some(others) if hold_at_once => &others | &required,
            Some(others) => &others & &required,
        });
    }
    let own = into.entry("properties").or_insert_with(|| json!({}));
    let own = own
        .as_object_mut()
        .ok_or("the properties of its schema are no object")?;
    for (name, property) in properties {
        own.entry(name).or_insert(property);
    }
    let all = &required(into) | &demanded.unwrap_or_default();
    if all.is_empty() {
        into.remove("required");
    } else {
        into.insert("required".to_owned(), json!(all));
    }
    Ok(())
}

/// Adds a property; where another branch has it with another schema, either may hold.
fn combine(properties: &mut Map<String, Value>, name: &str, property: &Value) {
    match properties.get_mut(name) {
        None => {
            properties.insert(name.to_owned(), property.clone());
        }
        Some(known) if known == property => {}
        Some(known) => {
            let mut alternatives = match known
                .as_object_mut()
                .and_then(|object| object.remove("anyOf"))
            {
                Some(Value::Array(alternatives)) => alternatives,
                _ => vec![known.clone()],
            };
            alternatives.push(property.clone());
            *known = json!({"anyOf": alternatives});
        }
    }
}

fn required(schema: &Map<String, Value>) -> BTreeSet<String> {
    let names = schema.get("required").and_then(Value::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// A branch, or what its reference into this very schema names.
fn resolve<'a>(branch: &'a Value, root: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    let object = branch.as_object()?;
    let Some(reference) = object.get("$ref").and_then(Value::as_str) else {
        return Some(object);
    };
    let (group, name) = reference.strip_prefix("#/")?.split_once('/')?;
    root.get(group)?
        .get(name)?
        .as_object()
        .filter(|target| !target.contains_key("$ref"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hist_6_schemas_become_ones_that_strict_providers_accept() {
        let empty = json!({"type": "object", "properties": {}});
        for (schema, want) in [
            (json!(null), empty.clone()),
            (json!({}), empty.clone()),
            (json!({"type": "object"}), empty.clone()),
            (
                json!({"type": ["object", "null"], "$schema": "x", "title": "T"}),
                empty,
            ),
            (
                json!({"properties": {"a": {"type": "string"}}, "required": ["a"]}),
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            ),
            (
                json!({"anyOf": [
                    {"type": "object", "properties": {"a": {"type": "string"}, "k": {"const": 1}}, "required": ["a", "k"]},
                    {"$ref": "#/$defs/B"},
                ], "$defs": {"B": {"type": "object", "properties": {"b": {}, "k": {"const": 2}}, "required": ["k"]}}}),
                json!({
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {}, "k": {"anyOf": [{"const": 1}, {"const": 2}]}},
                    "required": ["k"],
                    "$defs": {"B": {"type": "object", "properties": {"b": {}, "k": {"const": 2}}, "required": ["k"]}},
                }),
            ),
            (
                json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}),
                json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}),
            ),
        ] {
            assert_eq!(project(&schema), Ok(want), "{schema}");
        }
    }

    #[test]
    fn hist_6_what_is_no_object_is_left_out_with_a_reason() {
        for schema in [
            json!({"type": "string"}),
            json!([1]),
            json!(false),
            json!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
            json!({"anyOf": [{"$ref": "https://elsewhere.test/schema"}]}),
            json!({"oneOf": [{"anyOf": []}]}),
            json!({"properties": 1}),
        ] {
            assert!(project(&schema).is_err(), "{schema}");
        }
    }
}
