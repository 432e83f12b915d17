//! Argument predicates: three-valued, because what cannot be evaluated must never make a rule looser.

use std::{collections::BTreeMap, fmt};

use regex::{Regex, RegexBuilder};
use serde::{
    Deserialize,
    de::{self, Deserializer, MapAccess, Visitor},
};
use serde_json::Value;
use teamster_protocol::limits;

/// Whether conditions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// They do.
    Yes,
    /// They do not.
    No,
    /// It cannot be said.
    Unknown,
}

impl Match {
    /// Whether both hold.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }

    pub(super) fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// Predicates by JSON pointer; all must hold.
#[derive(Debug, Clone)]
pub(super) struct When(BTreeMap<String, Predicate>);

impl When {
    /// Whether the arguments fulfil all predicates.
    pub(super) fn matches(&self, arguments: Option<&Value>) -> Match {
        self.0
            .iter()
            .fold(Match::Yes, |so_far, (pointer, predicate)| {
                let value = arguments.and_then(|arguments| arguments.pointer(pointer));
                so_far.and(value.map_or(Match::Unknown, |value| predicate.matches(value)))
            })
    }

    /// The pointers, in order.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// What one argument must be.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawPredicate")]
struct Predicate {
    equals: Option<Scalar>,
    matches: Option<Pattern>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPredicate {
    equals: Option<Scalar>,
    matches: Option<Pattern>,
}

impl TryFrom<RawPredicate> for Predicate {
    type Error = &'static str;

    fn try_from(raw: RawPredicate) -> Result<Self, Self::Error> {
        if raw.equals.is_none() && raw.matches.is_none() {
            return Err("a predicate needs `equals` or `matches`");
        }
        Ok(Self {
            equals: raw.equals,
            matches: raw.matches,
        })
    }
}

impl Predicate {
    fn matches(&self, value: &Value) -> Match {
        let equals = self
            .equals
            .as_ref()
            .map_or(Match::Yes, |wanted| Match::of(equal(&wanted.0, value)));
        let matches = match (&self.matches, value) {
            (None, _) => Match::Yes,
            (Some(pattern), Value::String(text))
                if text.len() <= limits::PATTERN_INPUT_BYTES_MAX =>
            {
                Match::of(pattern.0.is_match(text))
            }
            // A pattern speaks about texts of a bounded length; about anything else it says nothing.
            (Some(_), _) => Match::Unknown,
        };
        equals.and(matches)
    }
}

/// Equality of JSON values in which `1` and `1.0` are one number.
fn equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() != b.is_f64() => a
            .as_f64()
            .zip(b.as_f64())
            .is_some_and(|(a, b)| a.total_cmp(&b).is_eq()),
        _ => one == two,
    }
}

/// A text, number or truth value of a policy file.
#[derive(Debug, Clone)]
struct Scalar(Value);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalars;

        impl Visitor<'_> for Scalars {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a truth value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
                serde_json::Number::from_f64(value)
                    .map(|number| Scalar(number.into()))
                    .ok_or_else(|| E::custom("the number is not finite"))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.into()))
            }
        }

        deserializer.deserialize_any(Scalars)
    }
}

/// A regular expression that is found anywhere in the text unless it is anchored.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
struct Pattern(Regex);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.len() > limits::PATTERN_BYTES_MAX {
            return Err(format!(
                "a pattern has at most {} bytes",
                limits::PATTERN_BYTES_MAX
            ));
        }
        // The engine's time is linear in pattern and text; the size of the compiled form is bounded here.
        RegexBuilder::new(&text)
            .size_limit(limits::PATTERN_COMPILED_BYTES_MAX)
            .dfa_size_limit(limits::PATTERN_COMPILED_BYTES_MAX)
            .build()
            .map(Self)
            .map_err(|error| format!("the pattern {text:?} cannot be used: {error}"))
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Predicates;

        impl<'de> Visitor<'de> for Predicates {
            type Value = When;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("predicates by JSON pointer, for example `/path: { equals: x }`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<When, A::Error> {
                let mut predicates = BTreeMap::new();
                while let Some(pointer) = entries.next_key::<String>()? {
                    if !pointer.starts_with('/') {
                        return Err(de::Error::custom(format_args!(
                            "{pointer:?} is no JSON pointer: it must begin with `/`"
                        )));
                    }
                    if predicates.len() >= limits::PREDICATES_PER_RULE_MAX {
                        return Err(de::Error::custom(format_args!(
                            "a rule has at most {} predicates",
                            limits::PREDICATES_PER_RULE_MAX
                        )));
                    }
                    let predicate = entries.next_value::<Predicate>()?;
                    if predicates.insert(pointer.clone(), predicate).is_some() {
                        return Err(de::Error::custom(format_args!("{pointer:?} stands twice")));
                    }
                }
                if predicates.is_empty() {
                    return Err(de::Error::custom("`when` needs a predicate"));
                }
                Ok(When(predicates))
            }
        }

        deserializer.deserialize_map(Predicates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(when: &str, arguments: &str) -> Match {
        let when: When = serde_yaml::from_str(when).expect("valid predicates");
        when.matches(serde_json::from_str(arguments).ok().as_ref())
    }

    #[test]
    fn predicates_hold_do_not_hold_or_cannot_be_evaluated() {
        for (when, arguments, want) in [
            ("{/a: {equals: x}}", r#"{"a":"x"}"#, Match::Yes),
            ("{/a: {equals: x}}", r#"{"a":"y"}"#, Match::No),
            ("{/a: {equals: x}}", r#"{"b":"x"}"#, Match::Unknown),
            ("{/a: {equals: 1}}", r#"{"a":1.0}"#, Match::Yes),
            ("{/a: {equals: 1}}", r#"{"a":"1"}"#, Match::No),
            ("{/a: {equals: true}}", r#"{"a":true}"#, Match::Yes),
            (
                "{/a: {equals: 9007199254740993}}",
                r#"{"a":9007199254740992}"#,
                Match::No,
            ),
            (
                "{/a/0/b: {matches: '^v[0-9]+$'}}",
                r#"{"a":[{"b":"v12"}]}"#,
                Match::Yes,
            ),
            ("{/a: {matches: x}}", r#"{"a":["x"]}"#, Match::Unknown),
            (
                "{/a: {matches: x, equals: axb}}",
                r#"{"a":"axb"}"#,
                Match::Yes,
            ),
            (
                "{/a: {equals: x}, /b: {equals: y}}",
                r#"{"a":"x","b":"z"}"#,
                Match::No,
            ),
            (
                "{/a: {equals: x}, /b: {equals: y}}",
                r#"{"a":"x"}"#,
                Match::Unknown,
            ),
            (
                "{/a: {equals: y}, /b: {equals: y}}",
                r#"{"a":"x"}"#,
                Match::No,
            ),
            ("{/a: {equals: x}}", "no arguments", Match::Unknown),
        ] {
            assert_eq!(holds(when, arguments), want, "{when} of {arguments}");
        }
        let long = format!(
            r#"{{"a":"{}"}}"#,
            "x".repeat(limits::PATTERN_INPUT_BYTES_MAX + 1)
        );
        assert_eq!(holds("{/a: {matches: x}}", &long), Match::Unknown);
    }

    #[test]
    fn predicates_of_another_form_are_refused() {
        let wide = format!("{{/a: {{matches: '{}'}}}}", "(a{1000}){1000}");
        let long = format!(
            "{{/a: {{matches: '{}'}}}}",
            "a".repeat(limits::PATTERN_BYTES_MAX + 1)
        );
        for bad in [
            "{}",
            "{a: {equals: 1}}",
            "{/a: {}}",
            "{/a: {equal: 1}}",
            "{/a: {equals: [1]}}",
            "{/a: {matches: '('}}",
            "{/a: {equals: 1}, /a: {equals: 2}}",
            &wide,
            &long,
        ] {
            assert!(serde_yaml::from_str::<When>(bad).is_err(), "{bad}");
        }
    }
}
