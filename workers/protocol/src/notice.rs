//! What EVENTS holds: short notices, derived from the log, for consumers that were away.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{event::Event, id::SessionId};

/// What a notice is about: the second token of its subject.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// A session began, by a message, by hand or as a fork.
    SessionCreated,
    /// Title or metadata of a session changed.
    MetaChanged,
    /// A session was deleted.
    SessionDeleted,
    /// A message joined a transcript: a user's, the model's, a result.
    MessageAdded,
    /// A turn began.
    TurnStarted,
    /// A turn ended.
    TurnCompleted,
    /// A call waits for a person.
    ApprovalPending,
    /// A call waits no longer: decided, expired or withdrawn.
    ApprovalResolved,
}

impl NoticeKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::SessionCreated,
        Self::MetaChanged,
        Self::SessionDeleted,
        Self::MessageAdded,
        Self::TurnStarted,
        Self::TurnCompleted,
        Self::ApprovalPending,
        Self::ApprovalResolved,
    ];

    /// The subject token.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionCreated => "session-created",
            Self::MetaChanged => "meta-changed",
            Self::SessionDeleted => "session-deleted",
            Self::MessageAdded => "message-added",
            Self::TurnStarted => "turn-started",
            Self::TurnCompleted => "turn-completed",
            Self::ApprovalPending => "approval-pending",
            Self::ApprovalResolved => "approval-resolved",
        }
    }

    /// Reads the subject token.
    pub fn parse(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == token)
    }

    /// The kind of the notice that an event makes; `None` for events that make none.
    pub fn of(event: &Event) -> Option<Self> {
        Some(match event {
            Event::SessionCreated { .. } | Event::SessionForked { .. } => Self::SessionCreated,
            Event::MetaChanged { .. } => Self::MetaChanged,
            Event::SessionDeleted { .. } => Self::SessionDeleted,
            Event::MessageAdded { .. }
            | Event::GenerationFinished { .. }
            | Event::CallFinished { .. } => Self::MessageAdded,
            Event::TurnStarted { .. } => Self::TurnStarted,
            Event::TurnEnded { .. } => Self::TurnCompleted,
            Event::ApprovalRequested { .. } => Self::ApprovalPending,
            Event::ApprovalResolved { .. } | Event::ApprovalExpired { .. } => {
                Self::ApprovalResolved
            }
            _ => return None,
        })
    }
}

/// One notice. At least once: consumers drop what they know by [`NoticeId`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notice {
    /// The session.
    pub session: SessionId,
    /// The commit that holds the event.
    pub n: u64,
    /// The event's index in the commit.
    pub i: u32,
    /// When the commit was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// The event, as the log holds it.
    pub event: Event,
}

/// What makes a notice recognisable: `<session token>:<n>:<i>`; also its `Nats-Msg-Id`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NoticeId(String);

impl Notice {
    /// The notice's id.
    pub fn id(&self) -> NoticeId {
        NoticeId(format!("{}:{}:{}", self.session.token(), self.n, self.i))
    }
}

impl fmt::Display for NoticeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_back() {
        for kind in NoticeKind::ALL {
            assert_eq!(NoticeKind::parse(kind.as_str()), Some(kind));
            assert_eq!(
                serde_json::to_value(kind).expect("a word"),
                serde_json::Value::from(kind.as_str())
            );
        }
        assert_eq!(NoticeKind::parse("turn_started"), None);
    }
}
