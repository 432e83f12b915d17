//! Function ids as tool names on a provider's wire: letters, digits, `_` and `-`, at most 64 characters.
//!
//! `::` becomes `__` where that can be read back; every other id gets a name that ends in a digest. A name is mapped back
//! only through the table of what was offered, so a name that was never offered is never taken for a function.

use std::collections::BTreeMap;

use crate::{digest::Digest, id::FunctionId, limits};

/// The wire name of a function. Different ids have different names.
pub fn encode(id: &FunctionId) -> String {
    let plain = id.as_str().replace("::", "__");
    let is_ambiguous = id
        .as_str()
        .split("::")
        .any(|part| part.contains("__") || part.starts_with('_') || part.ends_with('_'));
    if !is_ambiguous && plain.len() <= limits::WIRE_NAME_CHARS_MAX {
        return plain;
    }
    // A plain name never holds three underscores in a row, so the two forms cannot meet.
    let digest: String = Digest::of(id.as_str())
        .to_string()
        .chars()
        .take(16)
        .collect();
    let head: String = plain
        .chars()
        .take(limits::WIRE_NAME_CHARS_MAX - 19)
        .collect();
    format!("{head}___{digest}")
}

/// What was offered, by wire name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table(BTreeMap<String, FunctionId>);

impl Table {
    /// The table of these functions.
    pub fn of<'a>(ids: impl IntoIterator<Item = &'a FunctionId>) -> Self {
        Self(ids.into_iter().map(|id| (encode(id), id.clone())).collect())
    }

    /// The function that a wire name stands for.
    pub fn function(&self, name: &str) -> Option<&FunctionId> {
        self.0.get(name)
    }

    /// All wire names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> FunctionId {
        FunctionId::parse(text).expect("valid")
    }

    /// HIST-5: names that a careless codec would make equal stay apart, fit, and are mapped back.
    #[test]
    fn hist_5_wire_names_are_distinct_and_fit() {
        let long = format!("mcp::{}::{}", "s".repeat(40), "t".repeat(40));
        let ids: Vec<FunctionId> = [
            "a::b::c",
            "a::b__c",
            "a__b::c",
            "a_::b",
            "a::b",
            "a::b_",
            "fs::read",
            &long,
            &format!("{long}x"),
        ]
        .into_iter()
        .map(id)
        .collect();
        let table = Table::of(&ids);
        assert_eq!(table.names().count(), ids.len());
        for id in &ids {
            let name = encode(id);
            assert!(
                name.len() <= 64
                    && name
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
            );
            assert_eq!(table.function(&name), Some(id));
        }
        assert_eq!(encode(&id("fs::read")), "fs__read");
        assert_eq!(table.function("read"), None);
    }

    proptest! {
        #[test]
        fn hist_5_different_ids_have_different_names(
            one in "[a-c][a_]{0,3}::[a-c][a_]{0,3}(::[a-c][a_]{0,3})?",
            two in "[a-c][a_]{0,3}::[a-c][a_]{0,3}(::[a-c][a_]{0,3})?",
        ) {
            prop_assume!(one != two);
            prop_assert_ne!(encode(&id(&one)), encode(&id(&two)));
        }
    }
}
