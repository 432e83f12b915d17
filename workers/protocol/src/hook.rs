//! Hooks: functions that are called at five points of a turn, by subject, in order, with deadlines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    arguments::Arguments,
    contract::Contract,
    digest::Digest,
    id::{CallId, FunctionId, SessionId, TurnId},
    limits,
    message::Message,
    policy::Judgement,
};

/// A point of a turn at which hooks run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// Once a turn, before anything is spent. May deny.
    PreTurn,
    /// Before each generation. May extend the system prompt, append messages, deny.
    PreGenerate,
    /// After each generation. May annotate.
    PostGenerate,
    /// Before each call. Shaping hooks may change the arguments; judging hooks may deny or hold.
    PreTrigger,
    /// After each call. May rewrite the result before it is persisted.
    PostTrigger,
}

impl Point {
    /// All points, in the order in which a turn meets them.
    pub const ALL: [Self; 5] = [
        Self::PreTurn,
        Self::PreGenerate,
        Self::PostGenerate,
        Self::PreTrigger,
        Self::PostTrigger,
    ];

    /// The point's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreTurn => "pre-turn",
            Self::PreGenerate => "pre-generate",
            Self::PostGenerate => "post-generate",
            Self::PreTrigger => "pre-trigger",
            Self::PostTrigger => "post-trigger",
        }
    }

    /// What a failing hook at this point means when its binding does not say: closed before, open after.
    pub fn default_on_error(self) -> OnError {
        match self {
            Self::PreTurn | Self::PreGenerate | Self::PreTrigger => OnError::FailClosed,
            Self::PostGenerate | Self::PostTrigger => OnError::FailOpen,
        }
    }
}

/// What a hook that fails, times out or answers nonsense means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// A denial that names the hook.
    FailClosed,
    /// Nothing.
    FailOpen,
}

/// The two phases of the pre-trigger point. Nothing mutates after a judge spoke.
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
pub enum Stage {
    /// May change the arguments.
    Shape,
    /// May deny or hold; sees the final bytes.
    #[default]
    Judge,
}

/// A hook bound to a point: registered by the worker that owns the function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// The point.
    pub point: Point,
    /// The function that is called.
    pub function: FunctionId,
    /// Smaller runs first; ties by function id.
    #[serde(default)]
    pub priority: i32,
    /// At the pre-trigger point: the phase.
    #[serde(default)]
    pub stage: Stage,
    /// At the trigger points: globs of the functions whose calls are meant; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
    /// How long the hook may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What its failure means; the point's default when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
}

impl Binding {
    /// How long the hook may take.
    pub fn timeout(&self) -> std::time::Duration {
        self.timeout_ms
            .map_or(limits::HOOK_TIMEOUT, std::time::Duration::from_millis)
            .min(limits::CALL_TIMEOUT)
    }

    /// What its failure means.
    pub fn on_error(&self) -> OnError {
        self.on_error
            .unwrap_or_else(|| self.point.default_on_error())
    }
}

/// What a hook is told. Exactly the part of its point is filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The point.
    pub point: Point,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The step of the turn, from 0.
    pub step: u32,
    /// The session's workspace, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// At pre-generate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
    /// At post-generate: the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<Message>,
    /// At the trigger points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
    /// At post-trigger: the result as the function gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<CallResult>,
}

/// What is about to be generated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// `provider/model`.
    pub model: String,
    /// The system prompt so far.
    pub system_prompt: String,
}

/// The call that is judged or was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// The function.
    pub function: FunctionId,
    /// The exact argument bytes.
    pub arguments: Arguments,
    /// The function's contract.
    #[schemars(with = "serde_json::Value")]
    pub contract: Contract,
    /// The digest of the argument bytes that a person approved, when the call is judged again after an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<Digest>,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallResult {
    /// The text that the model would read.
    pub text: String,
    /// Whether it is a failure.
    pub is_error: bool,
}

/// What a hook answers. An empty reply body means `continue`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verdict {
    /// Go on, with these changes if any.
    Continue {
        /// What to change; only what the point allows.
        #[serde(default, skip_serializing_if = "Mutations::is_empty")]
        mutations: Mutations,
        /// A note for the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotation: Option<String>,
        /// At pre-trigger: why a judge lets the call pass.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judgement: Option<Judgement>,
    },
    /// Stop here.
    Deny {
        /// Why, for the model.
        reason: String,
        /// What led to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judgement: Option<Judgement>,
    },
    /// At pre-trigger: a person must decide.
    Hold {
        /// What led to it.
        judgement: Judgement,
    },
}

impl Verdict {
    /// Go on, nothing to say.
    pub fn proceed() -> Self {
        Self::Continue {
            mutations: Mutations::default(),
            annotation: None,
            judgement: None,
        }
    }
}

/// What a hook may change; a field that its point does not allow makes the reply invalid.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mutations {
    /// At pre-generate: the new system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// At pre-generate: notices to append to the transcript.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub append: Vec<String>,
    /// At pre-trigger, stage shape: the new argument bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// At post-trigger: the new result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<CallResult>,
}

impl Mutations {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
