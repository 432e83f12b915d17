//! `session::*`: operators only. Questions are answered from a projection of the log; changes enter the session as durable
//! control inputs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    event::{EndReason, Settled},
    function::approval,
    id::{ApprovalId, FunctionId, Incarnation, SessionId},
    input::{Appended, SessionOptions},
    message::Message,
    usage::{NanoUsd, Usage},
};

/// Begins a session (`session::create`, which refuses one that exists, and `session::ensure`, which takes it).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// The session; made up when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// What it is created with.
    #[serde(default, skip_serializing_if = "SessionOptions::is_empty")]
    pub session: SessionOptions,
}

/// A session that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateReply {
    /// The session.
    pub session_id: SessionId,
    /// Whether it was created by this request.
    pub created: bool,
}

/// What became of a change that was stored as an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeReply {
    /// The session; for a fork, the new one.
    pub session_id: SessionId,
    /// The commit that took the change; `None` if it was not seen in time: it is stored and will be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
}

/// Asks about one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetRequest {
    /// The session.
    pub session_id: SessionId,
}

/// A session in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionInfo {
    /// The session.
    pub session_id: SessionId,
    /// `idle`, `running`, `awaiting_approval` or `damaged`. It is what the log says: a session is `running` also where the
    /// process that ran it is gone and none goes on yet.
    pub status: String,
    /// The process that runs it, while it is `running`: its heartbeats say whether it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Incarnation>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Its metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The session that it is a fork of, and the commit of it that counts last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<(SessionId, u64)>,
    /// When it began, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// When its last commit was made, in milliseconds since 1970.
    pub updated_at_ms: u64,
    /// Commits.
    pub commits: u64,
    /// Turns.
    pub turns: u64,
    /// Messages of its transcript.
    pub messages: u64,
    /// How the last turn ended; `None` while none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EndReason>,
    /// The first words of its last message, for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The model that answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Requests that wait for a person.
    pub approvals: u64,
    /// Tokens.
    pub usage: Usage,
    /// Money that is known.
    pub cost: NanoUsd,
    /// Whether a model without a known price was used, so that `cost` is not all.
    pub cost_is_partial: bool,
}

/// Lists sessions, the one with the newest commit first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    /// Only those of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only those whose metadata holds all of these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// At most this many; 50 when left out, 500 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Goes on behind an earlier answer: its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListReply {
    /// Newest first.
    pub sessions: Vec<SessionInfo>,
    /// Where the list goes on; `None` at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Reads a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessagesRequest {
    /// The session.
    pub session_id: SessionId,
    /// Messages to pass over.
    #[serde(default)]
    pub skip: u64,
    /// At most this many; 200 when left out, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A part of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessagesReply {
    /// Oldest first.
    pub messages: Vec<MessageEntry>,
    /// Messages in all.
    pub total: u64,
}

/// A message with its place in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageEntry {
    /// The commit that holds it; for messages that a fork took over, the fork's first commit.
    pub n: u64,
    /// When the commit was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// The message.
    pub message: Message,
}

/// Reads a session's events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsRequest {
    /// The session.
    pub session_id: SessionId,
    /// Only those of commits behind this one.
    #[serde(default)]
    pub after: u64,
    /// Commits to return at most; 200 when left out, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A part of a session's events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsReply {
    /// Oldest first.
    pub events: Vec<EventEntry>,
    /// The last commit that the answer reaches: what to ask behind next.
    pub upto: u64,
    /// Commits of the session.
    pub commits: u64,
}

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventEntry {
    /// The commit.
    pub n: u64,
    /// Its index in the commit.
    pub i: u32,
    /// When the commit was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// The event as the log holds it.
    pub event: serde_json::Value,
}

/// Searches the text of all transcripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// Words; all must be in a message. A part in double quotes is looked for as it stands.
    pub query: String,
    /// Only in this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// At most this many; 20 when left out, 200 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What was found, best first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchReply {
    /// The places.
    pub hits: Vec<Hit>,
}

/// A message that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hit {
    /// The session.
    pub session_id: SessionId,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The commit that holds the message.
    pub n: u64,
    /// When the commit was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// `user`, `assistant`, `function_result`, `custom` or `notice`.
    pub role: String,
    /// The text around the match; what matched stands between `⟦` and `⟧`.
    pub snippet: String,
}

/// What costs are added up by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CostBy {
    /// The session.
    Session,
    /// `provider/model`.
    Model,
    /// The calendar day in the asker's time zone.
    Day,
}

/// Adds up tokens and money.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostRequest {
    /// What to group by, each once; nothing: one row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<CostBy>,
    /// Only this session's: of the one that has the name now, or else of those that had it and were deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// From here on, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Up to here, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// Minutes that the asker's clock is ahead of UTC, for days.
    #[serde(default)]
    pub utc_offset_minutes: i32,
}

/// Tokens and money, added up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostReply {
    /// Ordered by what they are grouped by. At most 10,000.
    pub rows: Vec<CostRow>,
    /// The sum of everything, rows that did not fit included.
    pub total: CostSum,
    /// Sessions of whose logs not everything can be read, so that they have spent this at least.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incomplete: u64,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostRow {
    /// The session, where it is grouped by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Whether that session is deleted: what it spent is kept by the quarter of an hour, model by model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// The model, where it is grouped by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The day (`2026-11-30`), where it is grouped by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// What it comes to.
    pub sum: CostSum,
}

/// What generations came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostSum {
    /// Generations, interrupted ones included.
    pub generations: u64,
    /// Requests that reached a provider.
    pub attempts: u64,
    /// Tokens.
    pub usage: Usage,
    /// Money that is known.
    pub cost: NanoUsd,
    /// Generations by models without a known price.
    pub unpriced: u64,
}

/// Adds messages to a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendRequest {
    /// The session.
    pub session_id: SessionId,
    /// The messages, in order; at most 64.
    pub messages: Vec<Appended>,
    /// Makes a repetition recognisable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Changes title or metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetMetaRequest {
    /// The session.
    pub session_id: SessionId,
    /// The new title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Values to set; null removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Option<String>>,
}

/// Begins a new session with the transcript of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// The session that is forked. It does not change.
    pub session_id: SessionId,
    /// The last commit of it that counts; its newest when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The new session; made up when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_session_id: Option<SessionId>,
    /// Title and metadata of the new one; what is left out is taken over.
    #[serde(default, skip_serializing_if = "SessionOptions::is_empty")]
    pub session: SessionOptions,
}

/// Deletes a session for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteRequest {
    /// The session.
    pub session_id: SessionId,
    /// Must be true: transcript, events and results are gone for good.
    #[serde(default)]
    pub confirm: bool,
}

/// Lists requests for a person's decision with what became of them, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsRequest {
    /// Only this session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// At most this many; 50 when left out, 500 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Requests with what became of them. Those of deleted sessions are left as digests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsReply {
    /// Newest first.
    pub entries: Vec<ApprovalEntry>,
}

/// One request and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ApprovalEntry {
    /// Of a session that is there.
    Whole(Box<approval::GetReply>),
    /// Of a deleted session.
    Digest {
        /// The request.
        approval_id: ApprovalId,
        /// The session.
        session_id: SessionId,
        /// The function.
        function: FunctionId,
        /// SHA-256 of the argument bytes.
        digest: Digest,
        /// What became of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settled: Option<Settled>,
    },
}

/// How far the projection is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusReply {
    /// Sessions that it knows.
    pub sessions: u64,
    /// Commits that it has taken in.
    pub commits: u64,
    /// Commits in the logs that it has not; 0 when it is caught up.
    pub behind: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
