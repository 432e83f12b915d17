//! `context::assemble` and `context::read`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::{CallId, SessionId},
    message::Message,
};

/// Asks what a model may see of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssembleRequest {
    /// Where the history stands.
    pub history: History,
    /// `provider/model`: its window bounds the answer.
    pub model: String,
    /// The system prompt that will be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Bytes of the function schemas that will be sent.
    #[serde(default)]
    pub functions_bytes: u64,
    /// Tokens that the answer may take.
    #[serde(default)]
    pub max_output_tokens: u64,
    /// Whether only the plan is wanted: a caller that folds the log itself has the messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_only: bool,
}

/// Where a history stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum History {
    /// In a session's log.
    Session {
        /// The session.
        session_id: SessionId,
        /// The last commit that counts; the answer waits until the log holds it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        upto: Option<u64>,
    },
    /// Here.
    Inline {
        /// The messages, oldest first.
        messages: Vec<Arc<Message>>,
    },
}

/// What a model may see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssembleReply {
    /// What is left out and why.
    pub plan: Plan,
    /// The messages as they will be sent; `None` where only the plan was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Arc<Message>>>,
}

/// How a history is cut down to a window. Applied by `core::context`, by whoever holds the messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Calls whose results are masked from now on: a mark stands in their place. Those that the log names already are left
    /// out. Whoever sends the request stores them as an event.
    pub mask: Vec<CallId>,
    /// Bytes at which each single result is cut for this model.
    pub result_bytes_max: u64,
    /// The model's window, in tokens.
    pub window: u64,
    /// Tokens that the request may take: the window without the answer and the reserve.
    pub usable: u64,
    /// Estimated tokens of the request without new masks.
    pub tokens_before: u64,
    /// Estimated tokens of the request with them; never above `usable`.
    pub tokens_after: u64,
}

/// Reads the whole result of an earlier call of the own session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    /// The call whose result is wanted, as a cut or masked result names it.
    pub call: CallId,
    /// The byte to begin with; moved back to the start of a character.
    #[serde(default)]
    pub offset: u64,
    /// Bytes to return at most; 16384 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// A part of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadReply {
    /// The text.
    pub text: String,
    /// Bytes of the whole result.
    pub bytes: u64,
    /// Where to read on; `None` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}
