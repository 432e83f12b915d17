//! Messages of a transcript.

mod read;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, FunctionId, MessageId, Principal};

/// One message of a transcript, as the log keeps it and as a router projects it for a provider.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// From outside.
    User {
        /// The message's id.
        id: MessageId,
        /// Who sent it.
        from: Principal,
        /// The text.
        text: String,
    },
    /// From the model.
    Assistant {
        /// The message's id.
        id: MessageId,
        /// What it says, in order.
        content: Vec<Content>,
        /// Whether the stream was cut, so that this is only a part.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        partial: bool,
    },
    /// What a call came to.
    FunctionResult {
        /// The call.
        call: CallId,
        /// The function, if the model named one that can be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<FunctionId>,
        /// The text that the model reads.
        text: String,
        /// What kind of result it is.
        outcome: ResultKind,
    },
    /// A note of whoever owns the session. No model reads it.
    Custom {
        /// The message's id.
        id: MessageId,
        /// Who appended it.
        from: Principal,
        /// What it is, for whoever shows it.
        kind: String,
        /// The text.
        text: String,
    },
    /// From the harness to the model: that a stream was cut, that calls repeat. Sent with the user role.
    Notice {
        /// The message's id.
        id: MessageId,
        /// The text.
        text: String,
    },
}

/// A part of an assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// Visible text.
    Text {
        /// The text; never empty.
        text: String,
    },
    /// Reasoning that a provider wants back unchanged.
    Thinking {
        /// The text.
        text: String,
        /// The provider's signature. Without one the block is not sent again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A call that the model asks for.
    Call(WireCall),
}

/// A call exactly as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WireCall {
    /// Our own id, unique in the session; what a router sends back to the provider.
    pub call: CallId,
    /// The tool name on the wire.
    pub name: String,
    /// The argument text, valid JSON or not.
    pub arguments: String,
}

/// What kind of result a call came to. Each is told apart in the log, for the model and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    /// The function answered.
    Ok,
    /// The function failed.
    Error,
    /// The call could not be understood: unknown function, malformed or cut arguments.
    Invalid,
    /// The functions allowed to this turn do not include it, or a rule denies it.
    DeniedByPolicy,
    /// A person said no.
    DeniedByOwner,
    /// Nobody decided in time.
    Expired,
    /// The gate that must be asked could not be asked.
    GateUnavailable,
    /// Whether the effect took place is not known. Never repeated.
    OutcomeUnknown,
    /// The turn was stopped before the call ran.
    Cancelled,
}

impl ResultKind {
    /// Whether the model should take it as a failure.
    pub fn is_error(self) -> bool {
        self != Self::Ok
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done.
    End,
    /// It wants calls run.
    Call,
    /// It met its output limit; the last call, if any, is cut and must not run.
    Length,
    /// A filter or a refusal ended it.
    Refused,
    /// It was told to stop.
    Aborted,
    /// The stream ended without a terminal signal.
    Incomplete,
    /// The provider reported an error.
    Error,
}
