//! Whether a call's arguments fit the schema of its function, before anybody is asked about the call. Pure.
//!
//! It reads the parts of JSON Schema that contracts use and passes by the rest: what it refuses the schema excludes, what it lets
//! pass the function itself still judges when it is called. A schema is read as it stands; there is nothing to compile, so that a
//! contract that changes costs nothing. Depth and steps are bounded, because a schema may come from anybody's worker; what is beyond
//! them is let pass.
//!
//! Never: patterns and formats, which each language reads otherwise; references out of the schema.

use std::fmt;

use serde_json::{Map, Value};
use teamster_protocol::{Arguments, Contract, text};

/// Values within values that are looked at.
const DEPTH_MAX: u32 = 64;
/// Schemas that are asked about one call.
const STEPS_MAX: u32 = 20_000;
/// Bytes of a value that are repeated.
const SHOWN_BYTES_MAX: usize = 60;
/// Names that are repeated.
const NAMES_MAX: usize = 24;

/// The first place where arguments do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer into the arguments; empty for all of them.
    pub place: String,
    /// What is wrong there.
    pub problem: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            return f.write_str(&self.problem);
        }
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// Where the arguments do not fit the function's schema; `None` where they do, or where the schema says nothing about objects.
pub fn violation(contract: &Contract, arguments: &Arguments) -> Option<Violation> {
    let root = contract.request.as_value();
    // Arguments are an object. A schema that excludes all of them is a slip of the function's own, which it may answer itself.
    let is_about_objects = match root {
        Value::Object(schema) => schema
            .get("type")
            .is_none_or(|kind| is_of_type(kind, &Value::Object(Map::new())).unwrap_or(true)),
        _ => false,
    };
    if !is_about_objects {
        return None;
    }
    let value: Value = arguments.read().ok()?;
    let mut walk = Walk {
        root,
        steps: STEPS_MAX,
        place: String::new(),
    };
    walk.check(root, &value, 0).err()
}

type Checked = Result<(), Violation>;

struct Walk<'a> {
    root: &'a Value,
    steps: u32,
    place: String,
}

impl<'a> Walk<'a> {
    fn check(&mut self, schema: &'a Value, value: &Value, depth: u32) -> Checked {
        let Value::Object(schema) = schema else {
            return match schema {
                Value::Bool(false) => Err(self.says("nothing is allowed here")),
                _ => Ok(()),
            };
        };
        if depth >= DEPTH_MAX || self.steps == 0 {
            return Ok(());
        }
        self.steps -= 1;
        if let Some(kind) = schema.get("type")
            && is_of_type(kind, value) == Some(false)
        {
            return Err(self.says(format_args!("must be {}, is {}", named(kind), shown(value))));
        }
        self.check_value(schema, value)?;
        match value {
            Value::Object(object) => self.check_object(schema, object, depth)?,
            Value::Array(items) => self.check_array(schema, items, depth)?,
            Value::String(text) => self.check_text(schema, text)?,
            Value::Number(number) => self.check_number(schema, number)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.check_combined(schema, value, depth)
    }

    fn check_value(&self, schema: &Map<String, Value>, value: &Value) -> Checked {
        if let Some(wanted) = schema.get("const")
            && !is_same(wanted, value)
        {
            return Err(self.says(format_args!(
                "must be {}, is {}",
                shown(wanted),
                shown(value)
            )));
        }
        if let Some(Value::Array(wanted)) = schema.get("enum")
            && !wanted.iter().any(|one| is_same(one, value))
        {
            let names: Vec<String> = wanted.iter().take(NAMES_MAX).map(shown).collect();
            return Err(self.says(format_args!(
                "must be one of {}, is {}",
                names.join(", "),
                shown(value)
            )));
        }
        Ok(())
    }

    fn check_object(
        &mut self,
        schema: &'a Map<String, Value>,
        object: &Map<String, Value>,
        depth: u32,
    ) -> Checked {
        let required = schema.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        if let Some(missing) = required.find(|name| !object.contains_key(*name)) {
            return Err(self.says(format_args!("{missing:?} is missing")));
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        // Which names a pattern means is left to the function.
        let others = match schema.get("patternProperties") {
            None => schema.get("additionalProperties"),
            Some(_) => None,
        };
        for (name, value) in object {
            let known = properties.and_then(|properties| properties.get(name));
            let Some(schema) = known.or(others) else {
                continue;
            };
            if known.is_none() && *schema == Value::Bool(false) {
                let names = properties.into_iter().flat_map(Map::keys);
                let names: Vec<&str> = names.take(NAMES_MAX).map(String::as_str).collect();
                return Err(self.says(format_args!(
                    "there is no {:?}; there are: {}",
                    text::cut(name, SHOWN_BYTES_MAX),
                    names.join(", ")
                )));
            }
            self.within(name, |walk| walk.check(schema, value, depth + 1))?;
        }
        self.check_size(
            schema,
            object.len(),
            ("minProperties", "maxProperties"),
            "keys",
        )
    }

    fn check_array(
        &mut self,
        schema: &'a Map<String, Value>,
        items: &[Value],
        depth: u32,
    ) -> Checked {
        self.check_size(schema, items.len(), ("minItems", "maxItems"), "items")?;
        let first = schema.get("prefixItems").and_then(Value::as_array);
        let first = first.map_or(&[][..], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            let Some(schema) = first.get(index).or_else(|| schema.get("items")) else {
                continue;
            };
            self.within(&index.to_string(), |walk| {
                walk.check(schema, item, depth + 1)
            })?;
        }
        Ok(())
    }

    fn check_text(&self, schema: &Map<String, Value>, text: &str) -> Checked {
        let length = text.chars().count();
        self.check_size(schema, length, ("minLength", "maxLength"), "characters")
    }

    fn check_number(&self, schema: &Map<String, Value>, number: &serde_json::Number) -> Checked {
        let Some(value) = number.as_f64() else {
            return Ok(());
        };
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        for (key, is_met, words) in [
            (
                "minimum",
                bound("minimum").is_none_or(|least| value >= least),
                "at least",
            ),
            (
                "maximum",
                bound("maximum").is_none_or(|most| value <= most),
                "at most",
            ),
            (
                "exclusiveMinimum",
                bound("exclusiveMinimum").is_none_or(|least| value > least),
                "more than",
            ),
            (
                "exclusiveMaximum",
                bound("exclusiveMaximum").is_none_or(|most| value < most),
                "less than",
            ),
        ] {
            if !is_met && let Some(bound) = schema.get(key) {
                return Err(self.says(format_args!("must be {words} {bound}, is {number}")));
            }
        }
        Ok(())
    }

    /// References and combinations of schemas.
    fn check_combined(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Value,
        depth: u32,
    ) -> Checked {
        if let Some(target) = schema.get("$ref").and_then(|name| self.resolve(name)) {
            self.check(target, value, depth + 1)?;
        }
        let all = schema.get("allOf").and_then(Value::as_array);
        for schema in all.into_iter().flatten() {
            self.check(schema, value, depth + 1)?;
        }
        // One that fits is enough: what lies beyond the bounds of this reading counts as fitting, so that "exactly one" is not asked.
        for key in ["anyOf", "oneOf"] {
            let Some(branches) = schema.get(key).and_then(Value::as_array) else {
                continue;
            };
            let mut deepest: Option<Violation> = None;
            let mut fits = branches.is_empty();
            for branch in branches {
                match self.check(branch, value, depth + 1) {
                    Ok(()) => {
                        fits = true;
                        break;
                    }
                    Err(found) => {
                        let is_deeper = deepest
                            .as_ref()
                            .is_none_or(|known| found.place.len() > known.place.len());
                        if is_deeper {
                            deepest = Some(found);
                        }
                    }
                }
            }
            if let (false, Some(found)) = (fits, deepest) {
                return Err(found);
            }
        }
        Ok(())
    }

    fn resolve(&self, name: &Value) -> Option<&'a Value> {
        let pointer = name.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn check_size(
        &self,
        schema: &Map<String, Value>,
        size: usize,
        (least, most): (&str, &str),
        what: &str,
    ) -> Checked {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        if let Some(least) = bound(least).filter(|least| (size as u64) < *least) {
            return Err(self.says(format_args!(
                "has {size} {what}; at least {least} are needed"
            )));
        }
        if let Some(most) = bound(most).filter(|most| size as u64 > *most) {
            return Err(self.says(format_args!(
                "has {size} {what}; at most {most} are allowed"
            )));
        }
        Ok(())
    }

    /// Looks at a value within the one that is looked at.
    fn within(&mut self, name: &str, check: impl FnOnce(&mut Self) -> Checked) -> Checked {
        let before = self.place.len();
        self.place.push('/');
        let name = text::cut(name, SHOWN_BYTES_MAX);
        self.place
            .push_str(&name.replace('~', "~0").replace('/', "~1"));
        let checked = check(self);
        self.place.truncate(before);
        checked
    }

    fn says(&self, problem: impl fmt::Display) -> Violation {
        Violation {
            place: self.place.clone(),
            problem: problem.to_string(),
        }
    }
}

/// Whether a value is of a type, or of one of several; `None` where no type that is known is named.
fn is_of_type(kind: &Value, value: &Value) -> Option<bool> {
    match kind {
        Value::String(kind) => Some(match kind.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "number" => value.is_number(),
            "integer" => {
                value.is_i64()
                    || value.is_u64()
                    || value.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            _ => return None,
        }),
        Value::Array(kinds) => {
            let mut all = kinds.iter().map(|kind| is_of_type(kind, value));
            all.try_fold(false, |any, one| Some(any || one?))
        }
        _ => None,
    }
}

fn named(kind: &Value) -> String {
    match kind {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join(" or ")
        }
        other => other.to_string(),
    }
}

/// Numbers are the same by their value, however they are written.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (one, other) => one == other,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        value => text::cut(&value.to_string(), SHOWN_BYTES_MAX),
    }
}

#[cfg(test)]
mod tests;
