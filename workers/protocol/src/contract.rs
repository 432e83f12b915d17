//! Contracts: what each function declares about itself. What is not declared means the strictest.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::{
    id::{FunctionId, ParseError},
    limits,
};

/// What a function declares. Policy sees only this and the arguments, so it governs all functions alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// The function.
    pub id: FunctionId,
    /// One to three sentences, for the model.
    pub description: String,
    /// JSON Schema of the request.
    pub request: Schema,
    /// JSON Schema of the reply.
    pub reply: Schema,
    /// What a call does.
    #[serde(default)]
    pub class: Class,
    /// Whose data it returns or carries.
    #[serde(default)]
    pub data: Data,
    /// Whether outsiders may have written what comes back.
    #[serde(default)]
    pub trust: Trust,
    /// JSON pointer to the argument that names the resource, for example `/path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether a repetition with the same key changes nothing more.
    #[serde(default)]
    pub idempotent: bool,
    /// How long one call may take, in milliseconds; at most `CALL_TIMEOUT_MAX`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Who may call it.
    #[serde(default)]
    pub visibility: Visibility,
}

impl Contract {
    /// The contract of `id` between the types `Request` and `Reply`, with the strictest labels.
    pub fn new<Request: JsonSchema, Reply: JsonSchema>(id: FunctionId, description: &str) -> Self {
        Self {
            id,
            description: description.to_owned(),
            request: schemars::schema_for!(Request),
            reply: schemars::schema_for!(Reply),
            class: Class::default(),
            data: Data::default(),
            trust: Trust::default(),
            target: None,
            idempotent: false,
            timeout_ms: None,
            visibility: Visibility::default(),
        }
    }

    /// The contract of a function of the house that may simply run again. What it shows counts as the owner's own, and as written
    /// by outsiders, as whatever a model or a function has said. An id that is none is an error.
    pub fn of_house<Request: JsonSchema, Reply: JsonSchema>(
        id: &str,
        description: &str,
        class: Class,
        visibility: Visibility,
    ) -> Result<Self, ParseError> {
        Ok(Self {
            class,
            visibility,
            data: Data::Personal,
            trust: Trust::Untrusted,
            idempotent: true,
            ..Self::new::<Request, Reply>(FunctionId::parse(id)?, description)
        })
    }

    /// How long one call may take.
    pub fn timeout(&self) -> std::time::Duration {
        self.timeout_ms
            .map_or(limits::CALL_TIMEOUT, std::time::Duration::from_millis)
            .min(limits::CALL_TIMEOUT_MAX)
    }

    /// Whether the call may simply run again, with the same key, when its outcome was lost.
    pub fn is_repeatable(&self) -> bool {
        self.idempotent || self.class == Class::Read
    }
}

/// What a call does, from loose to strict.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Changes nothing.
    Read,
    /// Changes the owner's own things.
    Write,
    /// Runs code.
    Exec,
    /// Destroys what cannot be had back.
    Destructive,
    /// Leaves the owner's systems.
    #[default]
    Egress,
}

/// Whose data a call returns or carries, from loose to strict.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Anybody's.
    Public,
    /// The owner's organisation's.
    Business,
    /// A person's.
    #[default]
    Personal,
}

/// Whether outsiders may have written what comes back, from loose to strict.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// No.
    Trusted,
    /// Yes.
    #[default]
    Untrusted,
}

/// Who may call a function, from loose to strict.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Models too.
    Agent,
    /// Workers only.
    Worker,
    /// Operators only: it is served under `op.<principal>.`, which the broker closes to everybody else.
    #[default]
    Operator,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-18: what a function leaves out of its contract counts as the strictest, in code and on the wire.
    #[test]
    fn sec_18_what_is_not_declared_is_the_strictest() {
        let id = FunctionId::parse("t::undeclared").expect("valid");
        let built = Contract::new::<serde_json::Value, serde_json::Value>(id, "says nothing");
        let read: Contract = serde_json::from_str(
            r#"{"id": "t::undeclared", "description": "says nothing", "request": true, "reply": true}"#,
        )
        .expect("valid");
        for contract in [built, read] {
            assert_eq!(contract.class, Class::Egress);
            assert_eq!(contract.data, Data::Personal);
            assert_eq!(contract.trust, Trust::Untrusted);
            assert_eq!(contract.visibility, Visibility::Operator);
            assert!(!contract.is_repeatable());
            assert_eq!(contract.timeout(), limits::CALL_TIMEOUT);
        }
    }

    #[test]
    fn a_timeout_is_bounded_whatever_is_declared() {
        let id = FunctionId::parse("t::slow").expect("valid");
        let mut contract = Contract::new::<serde_json::Value, serde_json::Value>(id, "slow");
        contract.timeout_ms = Some(u64::MAX);
        assert_eq!(contract.timeout(), limits::CALL_TIMEOUT_MAX);
    }
}
