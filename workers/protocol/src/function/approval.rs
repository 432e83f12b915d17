//! `approval::list`, `approval::get`, `approval::resolve`, `approval::explain`: operators only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    arguments::Arguments,
    digest::Digest,
    event::Event,
    id::{ApprovalId, CallId, FunctionId, Principal, SessionId, TurnId},
    input::Decision,
    message::ResultKind,
    policy::Judgement,
};

/// Lists what waits for a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    /// Only this session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// What waits for a person, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListReply {
    /// At most 500.
    pub pending: Vec<Pending>,
    /// Sessions of whose logs not everything can be read, so that requests of theirs may be missing here; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedLog>,
}

/// A session of whose log not everything can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DamagedLog {
    /// The session.
    pub session_id: SessionId,
    /// What is wrong, and where.
    pub message: String,
}

/// One request for a decision, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// The request.
    pub approval_id: ApprovalId,
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The call.
    pub call_id: CallId,
    /// The function.
    pub function: FunctionId,
    /// The exact argument bytes.
    pub arguments: Arguments,
    /// Their SHA-256.
    pub digest: Digest,
    /// Their number.
    pub arguments_bytes: u64,
    /// What led to the request.
    pub judgement: Judgement,
    /// When it was asked, in milliseconds since 1970.
    pub requested_at_ms: u64,
    /// When the wait ends, in milliseconds since 1970.
    pub expires_at_ms: u64,
}

impl Pending {
    /// The request that an event of a turn makes; `None` for any other event.
    pub fn of(event: &Event, session: &SessionId, turn: &TurnId, at_ms: u64) -> Option<Self> {
        let Event::ApprovalRequested {
            approval,
            call,
            function,
            arguments,
            judgement,
            expires_at_ms,
            ..
        } = event
        else {
            return None;
        };
        Some(Self {
            approval_id: approval.clone(),
            session_id: session.clone(),
            turn_id: turn.clone(),
            call_id: call.clone(),
            function: function.clone(),
            digest: arguments.digest(),
            arguments_bytes: arguments.as_str().len() as u64,
            arguments: arguments.clone(),
            judgement: judgement.clone(),
            requested_at_ms: at_ms,
            expires_at_ms: *expires_at_ms,
        })
    }
}

/// Asks about one request, pending or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetRequest {
    /// The request.
    pub approval_id: ApprovalId,
}

/// One request and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetReply {
    /// The request.
    pub request: Pending,
    /// What became of it; `None` while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Resolution {
    /// A person decided.
    Decided {
        /// Who.
        by: Principal,
        /// Through what.
        channel: String,
        /// What.
        decision: Decision,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// What the call came to, once it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<ResultKind>,
    },
    /// Nobody decided in time.
    Expired {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The turn ended first.
    Withdrawn {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

impl Resolution {
    /// What an event makes of a request, and of which; `None` for events that end none. What an approved call comes to is not
    /// known yet.
    pub fn of(event: &Event, at_ms: u64) -> Option<(&ApprovalId, Self)> {
        Some(match event {
            Event::ApprovalResolved {
                approval,
                by,
                channel,
                decision,
                ..
            } => {
                let decided = Self::Decided {
                    by: by.clone(),
                    channel: channel.clone(),
                    decision: decision.clone(),
                    at_ms,
                    outcome: None,
                };
                (approval, decided)
            }
            Event::ApprovalExpired {
                approval,
                withdrawn: true,
                ..
            } => (approval, Self::Withdrawn { at_ms }),
            Event::ApprovalExpired { approval, .. } => (approval, Self::Expired { at_ms }),
            _ => return None,
        })
    }
}

/// Decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// The request.
    pub approval_id: ApprovalId,
    /// SHA-256 of the argument bytes that were shown.
    pub digest: Digest,
    /// The decision.
    pub decision: Decision,
    /// Through what, for example `cli`.
    pub channel: String,
}

/// What the log says after a decision was offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveReply {
    /// Whether this decision is the one that counts.
    pub won: bool,
    /// What became of the request.
    pub resolution: Resolution,
}

/// Asks how a call would be judged now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The function.
    pub function: FunctionId,
    /// The exact argument bytes.
    pub arguments: Arguments,
    /// The workspace that paths are judged against, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// How a call would be judged now: by the code and the policy that enforce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainReply {
    /// The judgement.
    pub judgement: Judgement,
    /// What of the arguments the function's schema excludes: such a call is answered as an error, before the policy is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Why the policy in force is not what stands in the policy file now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether that is because the file was removed: the compiled-in policy is in force then, else the last good one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub file_gone: bool,
}
