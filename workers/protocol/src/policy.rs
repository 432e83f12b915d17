//! The shapes of policy: what a turn may call, and what a judgement says. The decisions themselves are made in `core`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    contract::{Class, Data, Trust},
    digest::Digest,
};

/// Globs of the files that hold secrets: the compiled-in layer `secrets` denies reading and writing them, and the file
/// functions neither open nor name them. `*` stays within one segment of a path, `**` spans segments.
pub const SECRET_TARGETS: [&str; 29] = [
    "**/.env",
    "**/.env.{local,dev,development,test,staging,prod,production}*",
    "**/*.env",
    "**/.envrc",
    "**/*.pem",
    "**/*.key",
    "**/*.p12",
    "**/*.pfx",
    "**/id_{rsa,dsa,ecdsa,ed25519}*",
    "**/.ssh/**",
    "**/.gnupg/**",
    "**/.aws/**",
    "**/.netrc",
    "**/.npmrc",
    "**/.pypirc",
    "**/.git-credentials",
    "**/.kube/config",
    "**/.docker/config.json",
    "**/.pgpass",
    "**/.htpasswd",
    "**/.env{~,.bak,.old,.orig,.save}",
    "**/*.creds",
    "**/*.nk",
    "**/.dockercfg",
    "**/.vault-token",
    "**/.cargo/credentials*",
    "**/.config/gh/hosts.yml",
    "**/.config/gcloud/**",
    "**/application_default_credentials.json",
];

/// Which functions a turn may call. Deny by default: without a matching `allow` glob every call is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionPolicy {
    /// Globs of function ids; `*` matches any characters.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Globs of function ids that are refused although `allow` names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// How functions are offered to the model.
    #[serde(default)]
    pub expose: Exposure,
}

/// How functions are offered to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exposure {
    /// Each function as a tool of its own.
    #[default]
    Native,
    /// One tool, `agent_trigger {function, payload}`; functions are found through `engine::functions::list`.
    AgentTrigger,
}

/// What policy says about a call.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It may run.
    Allow,
    /// A person must decide.
    Ask,
    /// It must not run.
    Deny,
}

/// A judgement with everything that led to it; the same value that `policy explain` prints and the log keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// The effect.
    pub effect: Effect,
    /// The layer whose rule decided; `defaults` where the class default did.
    pub layer: String,
    /// The rule: its place in the layer, from 0, and what it says, for example `0: ask write`.
    pub rule: String,
    /// The labels that were judged.
    pub labels: Labels,
    /// The target after normalisation, if the contract names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Digest of the policy that decided.
    pub policy: Digest,
    /// How long an ask may wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_ttl_ms: Option<u64>,
}

/// The labels of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// What it does.
    pub class: Class,
    /// Whose data it carries.
    pub data: Data,
    /// Whether outsiders may have written what comes back.
    pub trust: Trust,
}
