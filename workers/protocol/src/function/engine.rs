//! `engine::functions::list` and `engine::functions::info`: how a model finds what it may call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    contract::{Class, Contract},
    id::FunctionId,
};

/// Lists the functions that the caller may call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    /// Only ids that begin with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Only functions whose id or description holds this, letter case aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Only this worker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Functions in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListReply {
    /// One entry a function.
    pub functions: Vec<Entry>,
}

/// A function in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The function.
    pub function_id: FunctionId,
    /// What it does.
    pub description: String,
    /// What a call does.
    pub class: Class,
    /// The worker that serves it.
    pub worker: String,
}

/// Asks for one contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InfoRequest {
    /// The function.
    pub function_id: FunctionId,
}

/// One contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InfoReply {
    /// The contract.
    #[schemars(with = "serde_json::Value")]
    pub contract: Contract,
    /// The worker that serves it.
    pub worker: String,
}
