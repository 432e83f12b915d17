//! `harness::send`, `harness::stop`, `harness::status`, `harness::function::resolve`, `harness::accept_loss`.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::EndReason,
    id::{ApprovalId, CallId, FunctionId, MessageId, SessionId, TurnId},
    input::{SessionOptions, TurnOptions},
    usage::{NanoUsd, Usage},
};

/// Asks for a message to enter a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// The session; created when it does not exist. Left out: a new one, or with a key the one that the key stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The text.
    pub message: String,
    /// The same key gives the same answer and never a second message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What the session is created with.
    #[serde(default, skip_serializing_if = "SessionOptions::is_empty")]
    pub session: SessionOptions,
    /// What the turn runs with.
    #[serde(default, skip_serializing_if = "TurnOptions::is_empty")]
    pub options: TurnOptions,
}

/// What is certain about an accepted message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendReply {
    /// The session.
    pub session_id: SessionId,
    /// The message.
    pub message_id: MessageId,
    /// Its sequence in TURNS.
    pub seq: u64,
    /// Whether the message had been accepted before.
    pub deduplicated: bool,
    /// What will become of it, as of now.
    pub state: SendState,
}

/// What will become of an accepted message, as of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SendState {
    /// It joins the turn that runs, at its next step.
    Merged,
    /// It starts a turn, now or after what waits before it.
    Queued,
    /// It was accepted before.
    Deduplicated,
}

/// Asks for a turn to be stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// The session.
    pub session_id: SessionId,
    /// The turn; left out: the one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
}

/// A stop that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopReply {
    /// Whether a turn ran when the stop was accepted.
    pub stopping: bool,
    /// Its sequence in CONTROL.
    pub seq: u64,
}

/// Asks what a session does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusRequest {
    /// The session.
    pub session_id: SessionId,
}

/// What a session does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusReply {
    /// The session.
    pub session_id: SessionId,
    /// `idle`, `running`, `awaiting_approval` or `damaged`.
    pub status: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The running turn, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnStatus>,
    /// Commits so far, since the last deletion.
    pub commits: u64,
    /// Turns so far.
    pub turns: u64,
    /// Messages that wait in the queue.
    pub queued: u64,
    /// What waits for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalId>,
    /// Calls that run or wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallStatus>,
    /// Tokens of all turns.
    pub usage: Usage,
    /// Money of all turns that is known.
    pub cost: NanoUsd,
    /// Whether a model without a known price was used, so that `cost` is not all.
    pub cost_is_partial: bool,
}

/// A turn in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnStatus {
    /// The turn.
    pub turn_id: TurnId,
    /// Its number in the session.
    pub number: u64,
    /// The step it is in, from 0.
    pub step: u32,
    /// Why it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// The model it runs with.
    pub model: String,
}

/// An open call in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallStatus {
    /// The call.
    pub call_id: CallId,
    /// The function, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionId>,
    /// `proposed`, `held`, `allowed` or `started`.
    pub state: String,
}

/// Delivers a result for a held call from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    /// The session.
    pub session_id: SessionId,
    /// The held call.
    pub call_id: CallId,
    /// The result's text.
    pub content: String,
    /// Whether it is a failure.
    #[serde(default)]
    pub is_error: bool,
}

/// A delivery that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveReply {
    /// Its sequence in CONTROL.
    pub seq: u64,
}

/// Asks that a session whose log is damaged may go on from what the log still holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptLossRequest {
    /// The session.
    pub session_id: SessionId,
    /// Must be true: what is missing is given up for good.
    #[serde(default)]
    pub confirm: bool,
}

/// A loss that is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptLossReply {
    /// The session.
    pub session_id: SessionId,
    /// The last commit that counts; 0 if none does.
    pub kept: u64,
    /// The commit that holds the acceptance.
    pub commit: u64,
    /// What was wrong.
    pub message: String,
    /// How much is given up, and what is taken over.
    #[serde(default)]
    pub loss: Loss,
}

/// How much an accepted loss gives up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// The first commit that does not count any more.
    pub from: u64,
    /// The last commit that is known to have been.
    pub upto: u64,
    /// Messages of the log that the server holds and cannot read.
    pub unreadable: u64,
    /// Commits that can be read and do not count any more, because something before them is lost.
    pub commits: u64,
    /// Turns that began in them.
    pub turns: u64,
    /// Requests for a decision that were made in them.
    pub approvals: u64,
    /// Messages that the transcript keeps: they are taken over from those commits and from the snapshot.
    pub recovered: u64,
    /// Messages for which there was no room, the oldest ones.
    pub left: u64,
    /// Whether nothing says any more with which workspace and functions the session was created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub options: bool,
}

impl Loss {
    /// In words.
    pub fn words(&self) -> String {
        let range = match self.upto.cmp(&self.from) {
            Ordering::Less => "no commit that is known".to_owned(),
            Ordering::Equal => format!("commit {}", self.from),
            Ordering::Greater => format!("commits {} to {}", self.from, self.upto),
        };
        let mut words = Vec::new();
        if self.unreadable > 0 {
            words.push(format!(
                "{} cannot be read",
                counted(self.unreadable, "stored message")
            ));
        } else if self.commits == 0 && self.upto >= self.from {
            words.push("not there any more".to_owned());
        }
        if self.commits > 0 {
            words.push(format!(
                "{} can be read and will not count ({}, {}; what was spent in them stays counted)",
                counted(self.commits, "commit"),
                counted(self.turns, "turn"),
                counted(self.approvals, "request for a decision")
            ));
        }
        words.push(format!(
            "{} of the transcript taken over",
            counted(self.recovered, "message")
        ));
        if self.options {
            words.push(
                "the workspace and the functions that the session was given are not known any more: give --allow again".to_owned(),
            );
        }
        if self.left > 0 {
            words.push(format!(
                "{} older of them left out for want of room",
                self.left
            ));
        }
        format!("{range}: {}", words.join("; "))
    }
}

fn counted(count: u64, what: &str) -> String {
    match (count, what.split_once(' ')) {
        (1, _) => format!("1 {what}"),
        (_, Some(("request", rest))) => format!("{count} requests {rest}"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_counts_only_what_there_is() {
        let loss = |from, upto, unreadable, commits| Loss {
            from,
            upto,
            unreadable,
            commits,
            ..Loss::default()
        };
        for (loss, want) in [
            (
                loss(3, 5, 1, 2),
                "commits 3 to 5: 1 stored message cannot be read; 2 commits can be read and will not count (0 turns, 0 requests \
                 for a decision; what was spent in them stays counted); 0 messages of the transcript taken over",
            ),
            (
                loss(3, 4, 0, 2),
                "commits 3 to 4: 2 commits can be read and will not count (0 turns, 0 requests for a decision; what was spent in them \
                 stays counted); 0 messages of the transcript taken over",
            ),
            (
                loss(3, 3, 0, 0),
                "commit 3: not there any more; 0 messages of the transcript taken over",
            ),
            (
                loss(3, 2, 0, 0),
                "no commit that is known: 0 messages of the transcript taken over",
            ),
        ] {
            assert_eq!(loss.words(), want);
        }
    }
}
