//! What administration does to a state: messages that wait to be appended, the stored transcript that a fork begins with, and
//! what is left when a session is deleted.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use teamster_protocol::{
    BlobRef, Commit, Event, Lane, Message, Phase, Principal,
    event::{ApprovalDigest, Settled, SpentKey},
    input::{Fork, TurnOptions},
    limits,
};

use crate::turn::state::{ConsumedInput, Ledger, Origin, State};

/// The stored messages that a fork begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The stored value: a JSON array of messages.
    pub value: BlobRef,
    /// How many messages it holds.
    pub messages: u64,
    /// Whether they stand in the transcript. A fold alone cannot know them.
    pub is_supplied: bool,
}

/// The deletion that the log begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The commit.
    pub n: u64,
    /// Its stream sequence; 0 while it is drafted.
    pub seq: u64,
    /// When it was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// Turns up to it, of every session that had the name. The next one begins at none.
    pub turns: u64,
}

/// Why a stored value is not what a fork begins with.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is no list of messages.
    #[error("the stored transcript is no list of messages")]
    Form(#[from] serde_json::Error),
    /// It holds another number of messages.
    #[error("the stored transcript holds {found} messages, not {wanted}")]
    Count {
        /// How many it should hold.
        wanted: u64,
        /// How many it holds.
        found: u64,
    },
}

/// Reads the messages that a fork begins with.
pub fn read_base(bytes: &[u8], wanted: u64) -> Result<Vec<Message>, Unfit> {
    let messages: Vec<Message> = serde_json::from_slice(bytes)?;
    let found = messages.len() as u64;
    if found == wanted {
        Ok(messages)
    } else {
        Err(Unfit::Count { wanted, found })
    }
}

/// Whether a commit deletes its session: whatever lies before it does not count, and need not be there.
pub fn is_tombstone(commit: &Commit) -> bool {
    commit.head.phase == Phase::Deleted
        && matches!(commit.events.last(), Some(Event::SessionDeleted { .. }))
}

impl State {
    /// Whether there is a session: it was created, and not deleted since.
    pub fn exists(&self) -> bool {
        self.origin.is_some()
    }

    /// Whether the session was deleted, and nothing has created it anew.
    pub fn is_deleted(&self) -> bool {
        self.deleted.is_some() && self.origin.is_none()
    }

    /// Commits since the deletion that the log begins with; all, where there was none.
    pub fn commits(&self) -> u64 {
        self.n
            .saturating_sub(self.deleted.map_or(0, |tombstone| tombstone.n))
    }

    /// The stored messages that this session begins with and that are still to be supplied.
    pub fn missing(&self) -> Option<&Base> {
        self.base.as_ref().filter(|base| !base.is_supplied)
    }

    /// Supplies the messages of [`State::missing`], as [`read_base`] gives them.
    pub fn supply(&mut self, messages: Vec<Message>) {
        if let Some(base) = self.base.as_mut().filter(|base| !base.is_supplied) {
            base.is_supplied = true;
            let base = messages.into_iter().map(Arc::new);
            self.transcript.splice(..0, base);
        }
    }

    /// The appended messages that may join the transcript now, as many as one commit takes.
    pub(crate) fn joining(&self) -> &[Message] {
        if !self.takes_messages() {
            return &[];
        }
        let mut bytes = 0_usize;
        let fitting = self
            .waiting
            .iter()
            .take_while(|message| {
                bytes = bytes.saturating_add(json_bytes(message));
                bytes <= limits::EVENTS_BYTES_MAX / 2
            })
            .count();
        self.waiting
            .get(..fitting.max(1).min(self.waiting.len()))
            .unwrap_or_default()
    }

    /// An appended message joined: it waits no longer.
    pub(crate) fn joined(&mut self, message: &Message) {
        if self.waiting.first() == Some(message) {
            self.waiting.remove(0);
        }
    }

    pub(crate) fn begin_fork(&mut self, by: &Principal, fork: &Fork, at_ms: u64) {
        self.origin = Some(Origin {
            by: by.clone(),
            title: fork.session.title.clone(),
            workspace: fork.session.workspace.clone(),
            metadata: fork.session.metadata.clone(),
            at_ms,
        });
        self.options = fork.options.clone();
        // What the source was asked for holds in the fork as it would have held there.
        *self.wanted = fork.options.clone();
        self.masked = fork.masked.iter().cloned().collect();
        self.stored.clone_from(&fork.stored);
        self.base = Some(Base {
            value: fork.transcript,
            messages: fork.messages,
            is_supplied: false,
        });
    }

    /// Notes what became of requests for a person's decision, for when the session is deleted.
    pub(crate) fn note_approval(&mut self, event: &Event, at_ms: u64) {
        let (approval, settled) = match event {
            Event::ApprovalRequested {
                approval,
                function,
                arguments,
                ..
            } => {
                if self.approvals.len() >= limits::TOMBSTONE_APPROVALS_MAX {
                    self.approvals.pop_front();
                }
                self.approvals.push_back(ApprovalDigest {
                    approval: approval.clone(),
                    function: function.clone(),
                    digest: arguments.digest(),
                    settled: None,
                });
                return;
            }
            Event::ApprovalResolved {
                approval,
                by,
                decision,
                ..
            } => {
                let settled = Settled::decided(by.clone(), decision, at_ms);
                (approval, settled)
            }
            Event::ApprovalExpired {
                approval,
                withdrawn: true,
                ..
            } => (approval, Settled::Withdrawn { at_ms }),
            Event::ApprovalExpired { approval, .. } => (approval, Settled::Expired { at_ms }),
            _ => return,
        };
        let known = self.approvals.iter_mut().rev();
        if let Some(entry) = known.into_iter().find(|entry| entry.approval == *approval) {
            entry.settled = Some(settled);
        }
    }

    /// Leaves of the session what its tombstone says, and nothing else.
    pub(crate) fn bury(&mut self, event: &Event, at_ms: u64) {
        let Event::SessionDeleted {
            turns,
            queued,
            approvals,
            keys,
            spent,
            ..
        } = event
        else {
            return;
        };
        let fresh = Self::new(self.session.clone());
        let old = std::mem::replace(self, fresh);
        self.n = old.n;
        self.seq = old.seq;
        self.hash = old.hash;
        self.at_ms = old.at_ms;
        self.head = old.head;
        self.outbox = old.outbox;
        self.cursor = old.cursor;
        self.cursor.advance(Lane::In, *queued);
        self.approvals = approvals.iter().cloned().collect();
        self.spent = Ledger::from(spent.as_slice());
        self.consumed = keys.iter().map(ConsumedInput::from).collect();
        self.deleted = Some(Tombstone {
            n: self.drafting(),
            seq: 0,
            at_ms,
            turns: *turns,
        });
    }
}

impl From<&SpentKey> for ConsumedInput {
    fn from(key: &SpentKey) -> Self {
        Self {
            id: key.id.clone(),
            seq: key.seq,
            at_ms: key.at_ms,
        }
    }
}

impl From<&ConsumedInput> for SpentKey {
    fn from(input: &ConsumedInput) -> Self {
        Self {
            id: input.id.clone(),
            seq: input.seq,
            at_ms: input.at_ms,
        }
    }
}

/// Bytes of a message as JSON.
pub(crate) fn json_bytes(message: &Message) -> usize {
    serde_json::to_vec(message).map_or(usize::MAX, |bytes| bytes.len())
}

/// The event by which a message that waited, or need not wait, joins the transcript.
pub(crate) fn joins(message: Message) -> Event {
    Event::MessageAdded {
        message,
        options: TurnOptions::default(),
        appended: true,
    }
}
