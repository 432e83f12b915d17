//! What may enter a session: user messages in TURNS, control inputs in CONTROL.
//!
//! The kind of a control input is its subject token, which the broker's permissions guard; the body is read as that kind.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    arguments::Arguments,
    blob::BlobRef,
    digest::Digest,
    id::{ApprovalId, CallId, MessageId, Principal, SessionId, TurnId},
    limits,
    policy::FunctionPolicy,
    usage::Budget,
};

/// The kind of a control input: the last token of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControlKind {
    /// Stop a turn.
    Stop,
    /// A person's decision about a held call.
    Decide,
    /// A result that somebody else delivers for a held call.
    Result,
    /// A timer fired.
    Timer,
    /// Administration of the session.
    Admin,
}

impl ControlKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Stop,
        Self::Decide,
        Self::Result,
        Self::Timer,
        Self::Admin,
    ];

    /// The subject token.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Decide => "decide",
            Self::Result => "result",
            Self::Timer => "timer",
            Self::Admin => "admin",
        }
    }

    /// Reads the subject token.
    pub fn parse(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == token)
    }
}

/// A user message as it lies in TURNS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// Derived from session, lane and key: the same send has the same id for ever.
    pub id: MessageId,
    /// Who sent it.
    pub from: Principal,
    /// The text, at most `MESSAGE_BYTES_MAX`.
    pub text: String,
    /// When it was accepted, in milliseconds since 1970.
    pub at_ms: u64,
    /// What the session is created with, if it does not exist yet.
    #[serde(default, skip_serializing_if = "SessionOptions::is_empty")]
    pub session: SessionOptions,
    /// What the turn runs with. Fields that are left out keep the value of the session's last turn.
    #[serde(default, skip_serializing_if = "TurnOptions::is_empty")]
    pub options: TurnOptions,
}

/// What a session is created with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionOptions {
    /// A title for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The directory that file functions may touch, absolute. Set by the operator, never by a model or a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Notes of whoever owns the session, for lists and filters; at most `METADATA_MAX` of `METADATA_BYTES_MAX` each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl SessionOptions {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What of it is out of bounds or of a wrong form, in words; `None` if nothing is.
    pub fn fault(&self) -> Option<String> {
        let workspace = self.workspace.as_deref();
        if workspace.is_some_and(|path| !path.starts_with('/')) {
            return Some("the workspace must be an absolute path".to_owned());
        }
        let notes = self.metadata.iter();
        title_fault(self.title.as_deref())
            .or_else(|| metadata_fault(notes.map(|(name, value)| (name, Some(value)))))
            .or_else(|| too_many(self.metadata.len()))
    }
}

/// What of a title is out of bounds, in words.
pub fn title_fault(title: Option<&str>) -> Option<String> {
    title
        .filter(|title| title.len() > limits::TITLE_BYTES_MAX)
        .map(|title| {
            format!(
                "the title has {} bytes; at most {} are kept",
                title.len(),
                limits::TITLE_BYTES_MAX
            )
        })
}

/// What of the names and values of a session's metadata is out of bounds, in words.
pub fn metadata_fault<'a>(
    notes: impl IntoIterator<Item = (&'a String, Option<&'a String>)>,
) -> Option<String> {
    let max = limits::METADATA_BYTES_MAX;
    for (name, value) in notes {
        if name.is_empty() || name.len() > max {
            return Some(format!("a name of metadata has 1 to {max} bytes"));
        }
        if value.is_some_and(|value| value.len() > max) {
            return Some(format!("a value of metadata has at most {max} bytes"));
        }
    }
    None
}

/// Whether metadata would hold too many values, in words.
pub fn too_many(values: usize) -> Option<String> {
    (values > limits::METADATA_MAX).then(|| {
        format!(
            "metadata would hold {values} values; at most {} are kept",
            limits::METADATA_MAX
        )
    })
}

/// What a turn runs with; frozen when it starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnOptions {
    /// `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Replaces the built-in system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Which functions the model may call, and how they are offered. None means no functions at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<FunctionPolicy>,
    /// Tokens that one generation may produce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Bounds of the turn. Fields that are left out keep the configured default.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
}

impl TurnOptions {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These options where they say something, else those of `base`.
    pub fn or(self, base: &Self) -> Self {
        Self {
            model: self.model.or_else(|| base.model.clone()),
            system_prompt: self.system_prompt.or_else(|| base.system_prompt.clone()),
            functions: self.functions.or_else(|| base.functions.clone()),
            max_output_tokens: self.max_output_tokens.or(base.max_output_tokens),
            budget: self.budget.or(&base.budget),
        }
    }
}

/// A control input as it lies in CONTROL, after its subject told the kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Control {
    /// Stop a turn.
    Stop(Stop),
    /// A person's decision.
    Decide(Decide),
    /// A result delivered from outside.
    Result(Deliver),
    /// A timer fired.
    Timer(Timer),
    /// Administration.
    Admin(Box<Admin>),
}

impl Control {
    /// Reads a body as the kind that its subject names.
    pub fn decode(kind: ControlKind, body: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            ControlKind::Stop => Self::Stop(serde_json::from_slice(body)?),
            ControlKind::Decide => Self::Decide(serde_json::from_slice(body)?),
            ControlKind::Result => Self::Result(serde_json::from_slice(body)?),
            ControlKind::Timer => Self::Timer(serde_json::from_slice(body)?),
            ControlKind::Admin => Self::Admin(serde_json::from_slice(body)?),
        })
    }

    /// The input's id.
    pub fn id(&self) -> &MessageId {
        match self {
            Self::Stop(stop) => &stop.id,
            Self::Decide(decide) => &decide.id,
            Self::Result(deliver) => &deliver.id,
            Self::Timer(timer) => &timer.id,
            Self::Admin(admin) => &admin.id,
        }
    }
}

/// Stops a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The input's id.
    pub id: MessageId,
    /// Who asked.
    pub from: Principal,
    /// The turn; without it, the turn that runs when the input is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}

/// A person's decision about a held call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// The input's id.
    pub id: MessageId,
    /// The request that is answered.
    pub approval: ApprovalId,
    /// Who decides, as the broker knows them.
    pub by: Principal,
    /// Through what they decided, for example `cli`.
    pub channel: String,
    /// SHA-256 of the argument bytes that were shown. Another digest than the request's voids the decision.
    pub digest: Digest,
    /// The decision.
    pub decision: Decision,
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Decision {
    /// Run the call as shown, once.
    Approve,
    /// Run the call with these arguments instead. The policy judges them again.
    Edit {
        /// The exact argument bytes.
        arguments: Arguments,
    },
    /// Do not run it.
    Deny {
        /// Why, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Delivers a result for a held call from outside (`harness::function::resolve`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deliver {
    /// The input's id.
    pub id: MessageId,
    /// Who delivers it.
    pub from: Principal,
    /// The held call.
    pub call: CallId,
    /// The result's text.
    pub content: String,
    /// Whether the model should take it as a failure.
    pub is_error: bool,
}

/// A timer fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timer {
    /// The input's id.
    pub id: MessageId,
    /// The approval whose wait ends.
    pub approval: ApprovalId,
}

/// Administers a session. Published by the session worker alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// The input's id.
    pub id: MessageId,
    /// Who asked, as the broker knows them.
    pub by: Principal,
    /// What to do.
    pub action: AdminAction,
}

/// What to do with a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum AdminAction {
    /// Begin it. Without effect where it exists.
    Create {
        /// What it is created with.
        session: SessionOptions,
    },
    /// Add messages to the transcript, between steps. They begin no turn.
    Append {
        /// The messages, in order.
        messages: Vec<Appended>,
    },
    /// Change title or metadata.
    SetMeta {
        /// The new title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Values to set; `None` removes one.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        metadata: BTreeMap<String, Option<String>>,
    },
    /// Begin it as a fork of another. Refused where it exists.
    Fork {
        /// What it begins with.
        fork: Box<Fork>,
    },
    /// Delete it: its queue, its snapshot, its log.
    Delete,
}

/// A message that somebody appends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub enum Appended {
    /// One that the model reads as a user's.
    User {
        /// The text, at most `MESSAGE_BYTES_MAX`.
        text: String,
    },
    /// One that no model ever reads.
    Custom {
        /// What it is, for whoever shows it.
        kind: String,
        /// The text, at most `MESSAGE_BYTES_MAX`.
        text: String,
    },
}

/// What of messages to append is out of bounds, in words; `None` if nothing is.
pub fn appended_fault(messages: &[Appended]) -> Option<String> {
    if messages.is_empty() || messages.len() > limits::APPEND_MAX {
        return Some(format!(
            "1 to {} messages are appended at once",
            limits::APPEND_MAX
        ));
    }
    let mut total = 0_usize;
    for message in messages {
        let (Appended::User { text } | Appended::Custom { text, .. }) = message;
        if text.trim().is_empty() {
            return Some("a message is empty".to_owned());
        }
        if text.len() > limits::MESSAGE_BYTES_MAX {
            return Some(format!(
                "a message has {} bytes; at most {} are taken",
                text.len(),
                limits::MESSAGE_BYTES_MAX
            ));
        }
        if let Appended::Custom { kind, .. } = message
            && (kind.is_empty() || kind.len() > limits::APPEND_KIND_BYTES_MAX)
        {
            return Some(format!(
                "the kind of a message has 1 to {} bytes",
                limits::APPEND_KIND_BYTES_MAX
            ));
        }
        total = total.saturating_add(text.len());
    }
    (total > limits::APPEND_BYTES_MAX).then(|| {
        format!(
            "the messages have {total} bytes together; at most {} are taken at once",
            limits::APPEND_BYTES_MAX
        )
    })
}

/// What a fork begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The session that is forked.
    pub source: SessionId,
    /// The last commit of it that counts.
    pub at: u64,
    /// SHA-256 of that commit's stored bytes.
    pub hash: Digest,
    /// The messages up to there, open calls answered as cancelled: a stored JSON array of `Message`.
    pub transcript: BlobRef,
    /// How many messages that are.
    pub messages: u64,
    /// What the turns of the source were asked for; it holds for those of the fork.
    #[serde(default, skip_serializing_if = "TurnOptions::is_empty")]
    pub options: TurnOptions,
    /// Calls whose results are masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<CallId>,
    /// Results of which the transcript holds a part, with the whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stored: BTreeMap<CallId, BlobRef>,
    /// What it is created with.
    #[serde(default, skip_serializing_if = "SessionOptions::is_empty")]
    pub session: SessionOptions,
}
