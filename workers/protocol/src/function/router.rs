//! `router::chat`, `router::complete`, `router::abort`, `router::models::list|get`, and what travels while they run.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::{RequestId, SessionId},
    message::{Message, StopReason},
    usage::{NanoUsd, Usage},
};

/// Asks for one generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    /// The same id is answered from what is kept, joined while it runs, or started again.
    pub request_id: RequestId,
    /// The session whose LIVE subject gets the deltas; left out: no deltas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// `provider/model`.
    pub model: String,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The transcript, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// What the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Tokens that may be produced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Whether the caller knows that this id was never asked for before, which spares the search for it elsewhere. A wrong
    /// `true` costs money, not truth.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_first: bool,
}

/// A tool as it is offered to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The wire name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: serde_json::Value,
}

/// What a generation came to. Always an answer, never a fault, once the request itself was understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// What the model said, in order.
    pub parts: Vec<Part>,
    /// Why it stopped.
    pub stop: StopReason,
    /// What went wrong, when `stop` is `incomplete` or `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CompletionError>,
    /// Tokens of all attempts.
    pub usage: Usage,
    /// Money of all attempts; `None` where the model has no known price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// `provider/model` that answered.
    pub model: String,
    /// Requests that reached the provider.
    pub attempts: u32,
}

/// A part of what a model said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    /// Visible text; never empty.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning.
    Thinking {
        /// The text.
        text: String,
        /// The provider's signature, if the block came whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A call.
    Call {
        /// The tool name on the wire.
        name: String,
        /// The argument text as it came.
        arguments: String,
    },
}

/// What went wrong with a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletionError {
    /// The kind; decisions look at this.
    pub kind: ErrorKind,
    /// What the provider said, cut, without secrets.
    pub message: String,
    /// What the user should do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The code of the fault that no configured provider has a model.
pub const UNKNOWN_MODEL: &str = "router.unknown_model";

/// The kinds of failing generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The key is missing, wrong or expired.
    Auth,
    /// Too many requests; worth a later try.
    RateLimited,
    /// The account has no credit or quota left.
    Quota,
    /// The request is larger than the model's window.
    ContextOverflow,
    /// The server read only a part of the request, and did not say so.
    ContextTruncated,
    /// The connection broke, the server was overloaded, the stream was cut.
    Transient,
    /// The provider refused the request for good.
    Rejected,
    /// The router is not configured for the model.
    NotConfigured,
}

impl ErrorKind {
    /// Whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::RateLimited | Self::Transient)
    }

    /// The word used in codes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::ContextOverflow => "context_overflow",
            Self::ContextTruncated => "context_truncated",
            Self::Transient => "transient",
            Self::Rejected => "rejected",
            Self::NotConfigured => "not_configured",
        }
    }
}

/// One frame on a session's LIVE subject. Frames of one request are numbered without gaps, so that a reader knows what it
/// missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// The request.
    pub request: RequestId,
    /// From 0.
    pub index: u64,
    /// What came.
    pub delta: DeltaKind,
}

/// What a frame brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum DeltaKind {
    /// Visible text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning.
    Thinking {
        /// The text.
        text: String,
    },
    /// A call begins.
    Call {
        /// The tool name on the wire.
        name: String,
    },
    /// The attempt failed before anything was visible and is made again.
    Retry {
        /// Which attempt comes next, from 2.
        attempt: u32,
        /// How long the router waits first, in milliseconds.
        wait_ms: u64,
        /// Why.
        reason: String,
    },
    /// The generation is over.
    Done,
}

/// What a harness asks the router that runs a request, on `gen.run.<request id>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunQuery {
    /// Answer with the [`Completion`] when it is there. Where it takes longer than `JOIN_SIGN` the answer is an
    /// empty body, a sign of life: ask again. No responders: it ended (read GENERATIONS) or its router is gone.
    Join,
    /// End it now; answered with an [`AbortReply`].
    Abort,
}

/// Ends a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AbortRequest {
    /// The request.
    pub request_id: RequestId,
}

/// Whether a generation was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AbortReply {
    /// Whether it was running.
    pub aborted: bool,
}

/// Lists models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelsListRequest {
    /// Only this provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// The models that are configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelsListReply {
    /// One entry a model.
    pub models: Vec<Model>,
}

/// Asks about one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelsGetRequest {
    /// `provider/model`.
    pub model: String,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// `provider/model`.
    pub id: String,
    /// Tokens that fit into it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Tokens that it may produce, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Its prices, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Whether the model is a script and no model at all.
    #[serde(default)]
    pub scripted: bool,
}

/// Prices in billionths of a US dollar a token, with the day on which they were written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens.
    pub input: NanoUsd,
    /// Input tokens from cache.
    pub cache_read: NanoUsd,
    /// Input tokens into cache.
    pub cache_write: NanoUsd,
    /// Output and reasoning tokens.
    pub output: NanoUsd,
    /// The day, `YYYY-MM-DD`.
    pub as_of: String,
}
