//! A call's arguments: the exact bytes that a model wrote, once they are known to be a JSON object.

use std::{collections::BTreeSet, fmt};

use schemars::JsonSchema;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};

use crate::digest::Digest;

/// The text of one JSON object without duplicate keys at any depth. What is shown, judged, hashed, stored and sent are
/// these bytes; nothing re-serialises them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Arguments(String);

/// Why a text cannot be a call's arguments. The message is meant for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Arguments {
    /// Checks `text`. The bytes are kept as they are, white space included.
    pub fn parse(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        if !text.trim_start().starts_with('{') {
            return Err(Error("the arguments must be one JSON object".to_owned()));
        }
        serde_json::from_str::<NoDuplicates>(&text)
            .map_err(|error| Error(format!("the arguments are not valid JSON: {error}")))?;
        Ok(Self(text))
    }

    /// The empty object.
    pub fn empty() -> Self {
        Self("{}".to_owned())
    }

    /// The exact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// SHA-256 of the exact bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    /// Reads the arguments as a typed request.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The value at a JSON pointer, for example `/path`.
    pub fn pointer(&self, pointer: &str) -> Option<serde_json::Value> {
        serde_json::from_str::<serde_json::Value>(&self.0)
            .ok()?
            .pointer(pointer)
            .cloned()
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arguments({})", self.0)
    }
}

impl From<Arguments> for String {
    fn from(arguments: Arguments) -> Self {
        arguments.0
    }
}

impl TryFrom<String> for Arguments {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// Accepts any value, of JSON or another form, whose mappings have no key twice. It keeps nothing; where a key stands again the
/// error names it, at its place where the form tells places.
#[derive(Debug, Clone, Copy)]
pub struct NoDuplicates;

impl<'de> Deserialize<'de> for NoDuplicates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = NoDuplicates;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<NoDuplicates, E> {
        Ok(NoDuplicates)
    }

    fn visit_i64<E>(self, _: i64) -> Result<NoDuplicates, E> {
        Ok(NoDuplicates)
    }

    fn visit_u64<E>(self, _: u64) -> Result<NoDuplicates, E> {
        Ok(NoDuplicates)
    }

    fn visit_f64<E>(self, _: f64) -> Result<NoDuplicates, E> {
        Ok(NoDuplicates)
    }

    fn visit_str<E>(self, _: &str) -> Result<NoDuplicates, E> {
        Ok(NoDuplicates)
    }

    fn visit_unit<E>(self) -> Result<NoDuplicates, E> {
        Ok(NoDuplicates)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NoDuplicates, A::Error> {
        while items.next_element::<NoDuplicates>()?.is_some() {}
        Ok(NoDuplicates)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<NoDuplicates, A::Error> {
        let mut seen = BTreeSet::new();
        while entries.next_key_seed(Unseen(&mut seen))?.is_some() {
            entries.next_value::<NoDuplicates>()?;
        }
        Ok(NoDuplicates)
    }
}

/// Takes a key that did not stand in the mapping before.
struct Unseen<'a>(&'a mut BTreeSet<String>);

impl<'de> DeserializeSeed<'de> for Unseen<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Unseen<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    // Here and not after the value, so that the error has the key's place.
    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<(), E> {
        if self.0.insert(key.to_owned()) {
            return Ok(());
        }
        Err(E::custom(format_args!("the key {key:?} stands twice")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HIST-4, SEC-27: what is not one plain JSON object never becomes arguments.
    #[test]
    fn hist_4_only_an_object_without_duplicate_keys_is_taken() {
        for good in ["{}", " {\"a\": 1.0 }\n", "{\"a\":{\"b\":[1,{\"c\":null}]}}"] {
            assert_eq!(Arguments::parse(good).expect(good).as_str(), good);
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        for bad in [
            "",
            "null",
            "[1]",
            "{\"p\":\"x",
            "{\"a\":1,\"a\":2}",
            "{\"a\":{\"b\":1,\"b\":1}}",
            "{} {}",
            deep.as_str(),
        ] {
            assert!(Arguments::parse(bad).is_err(), "{bad}");
        }
    }

    /// SEC-27: one byte more or another number form is another call.
    #[test]
    fn sec_27_the_digest_is_of_the_exact_bytes() {
        let one = Arguments::parse("{\"a\":1}").expect("valid");
        for other in ["{\"a\": 1}", "{\"a\":1.0}"] {
            assert_ne!(
                one.digest(),
                Arguments::parse(other).expect("valid").digest()
            );
        }
    }
}
