//! The state of a session: a fold over its events, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use teamster_protocol::{
    BlobRef, CallId, Commit, Cursor, Digest, Event, Head, Message, MessageId, Principal, SessionId,
    TurnId,
    commit::Outbox,
    event::{ApprovalDigest, EndReason},
    input::TurnOptions,
    limits,
    policy::Exposure,
    usage::{NanoUsd, Usage},
};

mod apply;
mod generation;

use crate::context::{Calibration, History};
use crate::turn::admin::is_tombstone;
pub use crate::turn::admin::{Base, Tombstone};
pub use crate::turn::running::{Call, CallState, Cut, Failure, Generation, Held, Turn};
pub use crate::turn::spent::Ledger;

/// Version of the fold. A snapshot of another version is folded anew.
pub const FOLD_VERSION: u32 = 9;

/// Everything that is known about a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The session.
    pub session: SessionId,
    /// Number of the last commit; 0 before the first.
    pub n: u64,
    /// Stream sequence of the last commit; 0 before the first.
    pub seq: u64,
    /// SHA-256 of the last commit's bytes.
    pub hash: Digest,
    /// When the last commit was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// Head of the last commit.
    pub head: Option<Head>,
    /// What the last commit wants published; the next owner publishes it again.
    pub outbox: Vec<Outbox>,
    /// What is consumed, the draft's inputs included.
    pub cursor: Cursor,
    /// The commit that holds the running turn's last claim.
    pub epoch: u64,
    /// How the session began; `None` before that.
    pub origin: Option<Origin>,
    /// The messages, oldest first.
    pub transcript: Vec<Arc<Message>>,
    /// Calls whose results the model does not read any more.
    pub masked: BTreeSet<CallId>,
    /// Results of which the transcript holds a part, with the whole.
    pub stored: BTreeMap<CallId, BlobRef>,
    /// What a provider counted for the last request, beside what had been estimated.
    pub calibration: Option<Calibration>,
    /// The options of the last turn, resolved.
    pub options: TurnOptions,
    /// What the next turn's first message asked for.
    pub asked: TurnOptions,
    /// What all turns so far were asked for. It holds for later turns; what was configured for them does not.
    // Boxed: states are moved through many futures.
    pub wanted: Box<TurnOptions>,
    /// The turn that runs or waits.
    pub turn: Option<Turn>,
    /// The turn that ended last.
    pub last: Option<Ended>,
    /// Turns so far, since the deletion that the log begins with.
    pub turns: u64,
    /// Whether a user message waits for a turn.
    pub is_unanswered: bool,
    /// Consumed inputs, oldest first.
    pub consumed: VecDeque<ConsumedInput>,
    /// Tokens of all turns.
    pub usage: Usage,
    /// Money of all turns that is known.
    pub cost: NanoUsd,
    /// Whether a model without a known price was used.
    pub is_cost_partial: bool,
    /// The loss of a part of the log that was accepted last.
    pub loss: Option<Loss>,
    /// The stored messages that the session begins with, if it is a fork.
    pub base: Option<Base>,
    /// Appended messages that wait until they may join the transcript.
    pub waiting: Vec<Message>,
    /// Requests for a person's decision, oldest first: what outlives the session.
    pub approvals: VecDeque<ApprovalDigest>,
    /// What was spent, by model and time: what outlives the session as well.
    pub spent: Ledger,
    /// The deletion that the log begins with.
    pub deleted: Option<Tombstone>,
}

/// The loss of a part of the log, accepted by an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The first commit that does not count.
    pub from: u64,
    /// When it was accepted, in milliseconds since 1970.
    pub at_ms: u64,
    /// Commits of which nobody knows what was spent in them, those of losses accepted before included.
    #[serde(default)]
    pub unknown: u64,
}

/// A consumed input: what makes a late repetition recognisable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumedInput {
    /// Its id.
    pub id: MessageId,
    /// Its stream sequence.
    pub seq: u64,
    /// When its commit was made, in milliseconds since 1970.
    pub at_ms: u64,
}

/// How a session began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Who sent the first message.
    pub by: Principal,
    /// A title.
    pub title: Option<String>,
    /// The workspace root.
    pub workspace: Option<String>,
    /// Notes of whoever owns the session.
    pub metadata: BTreeMap<String, String>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A turn that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The turn.
    pub id: TurnId,
    /// Its number.
    pub number: u64,
    /// Generations that it began.
    pub steps: u32,
    /// Why it ended.
    pub reason: EndReason,
    /// Tokens that it spent.
    pub spent: Usage,
    /// Money that it spent, as far as known.
    pub cost: NanoUsd,
}

/// Why a commit cannot follow a state.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FoldError {
    /// The commit belongs to another session.
    #[error("commit {n} belongs to another session")]
    Session {
        /// The commit.
        n: u64,
    },
    /// A commit is missing, doubled or out of order.
    #[error("commit {found} follows commit {last}")]
    Number {
        /// The commit before.
        last: u64,
        /// The commit found.
        found: u64,
    },
    /// The commit does not name the bytes before it.
    #[error("commit {n} does not follow from the bytes before it")]
    Chain {
        /// The commit.
        n: u64,
    },
    /// The commit accepts another loss than the one before it.
    #[error("commit {n} accepts another loss than the one before it")]
    Acceptance {
        /// The commit.
        n: u64,
    },
}

impl State {
    /// The state before the first commit.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            n: 0,
            seq: 0,
            hash: Digest::ZERO,
            at_ms: 0,
            head: None,
            outbox: Vec::new(),
            cursor: Cursor::default(),
            epoch: 0,
            origin: None,
            transcript: Vec::new(),
            masked: BTreeSet::new(),
            stored: BTreeMap::new(),
            calibration: None,
            options: TurnOptions::default(),
            asked: TurnOptions::default(),
            wanted: Box::default(),
            turn: None,
            last: None,
            turns: 0,
            is_unanswered: false,
            consumed: VecDeque::new(),
            usage: Usage::default(),
            cost: NanoUsd::default(),
            is_cost_partial: false,
            loss: None,
            base: None,
            waiting: Vec::new(),
            approvals: VecDeque::new(),
            spent: Ledger::default(),
            deleted: None,
        }
    }

    /// Folds one stored commit.
    pub fn absorb(&mut self, commit: &Commit, hash: Digest, seq: u64) -> Result<(), FoldError> {
        self.absorb_behind(commit, hash, seq, self.hash)
    }

    /// Folds one stored commit that lies behind bytes with the digest `before`. These are the last folded commit, or, for an
    /// acceptance of their loss, what could not be folded.
    pub(crate) fn absorb_behind(
        &mut self,
        commit: &Commit,
        hash: Digest,
        seq: u64,
        before: Digest,
    ) -> Result<(), FoldError> {
        let n = commit.n;
        if commit.session != self.session {
            return Err(FoldError::Session { n });
        }
        let loss = accepted_loss(commit)?;
        // What lies before a deletion may be gone, all of it or a part.
        let is_cleaned = is_tombstone(commit) && n > self.n + 1;
        let is_next = match loss {
            None => n == self.n + 1 || is_cleaned,
            Some(_) => n > self.n,
        };
        if !is_next {
            return Err(FoldError::Number {
                last: self.n,
                found: n,
            });
        }
        if loss.is_some_and(|loss| loss != (self.n + 1, self.hash)) {
            return Err(FoldError::Acceptance { n });
        }
        if !is_cleaned && (commit.prev != before || (loss.is_none() && before != self.hash)) {
            return Err(FoldError::Chain { n });
        }
        self.n = n - 1;
        for input in &commit.consumed {
            self.consume(input.id.clone(), input.seq, commit.at_ms);
            self.cursor.advance(input.lane, input.seq);
        }
        for event in &commit.events {
            self.apply(event, commit.at_ms);
        }
        self.seal(
            commit.head.clone(),
            commit.outbox.clone(),
            commit.at_ms,
            hash,
            seq,
        );
        Ok(())
    }

    /// Ends the draft that made this state: it is stored.
    pub(crate) fn seal(
        &mut self,
        head: Head,
        outbox: Vec<Outbox>,
        at_ms: u64,
        hash: Digest,
        seq: u64,
    ) {
        self.n += 1;
        self.at_ms = at_ms;
        self.hash = hash;
        self.seq = seq;
        self.cursor = head.cursor;
        self.head = Some(head);
        self.outbox = outbox;
        let own = self.n;
        if let Some(tombstone) = self.deleted.as_mut().filter(|tombstone| tombstone.n == own) {
            tombstone.seq = seq;
        }
    }

    /// Remembers a consumed input for the time that keys live.
    pub(crate) fn consume(&mut self, id: MessageId, seq: u64, at_ms: u64) {
        let ttl = u64::try_from(limits::KEY_TTL.as_millis()).unwrap_or(u64::MAX);
        while self.consumed.len() >= limits::KEYS_PER_SESSION_MAX
            || self
                .consumed
                .front()
                .is_some_and(|oldest| oldest.at_ms.saturating_add(ttl) < at_ms)
        {
            self.consumed.pop_front();
        }
        self.consumed.push_back(ConsumedInput { id, seq, at_ms });
    }

    /// The input with this id, if it was consumed before.
    pub fn consumed(&self, id: &MessageId) -> Option<&ConsumedInput> {
        self.consumed.iter().find(|input| input.id == *id)
    }

    /// Whether user messages may join the transcript now: not between a call and its result, nor while a model answers.
    pub fn takes_messages(&self) -> bool {
        self.turn.as_ref().is_none_or(|turn| {
            turn.generation.is_none() && turn.calls.iter().all(|call| call.state == CallState::Done)
        })
    }

    /// The transcript as a context is planned and made of it.
    pub fn history(&self) -> History<'_> {
        History {
            messages: &self.transcript,
            masked: &self.masked,
            stored: &self.stored,
            is_readable: true,
        }
    }

    /// The tokens of `model` for a thousand estimated ones.
    pub fn per_mille(&self, model: &str) -> u64 {
        self.calibration
            .as_ref()
            .filter(|known| known.model == model)
            .map_or(1000, |known| known.per_mille)
    }

    /// Requests for the coming answer that a provider refused as too large.
    pub fn refused(&self) -> u32 {
        self.turn.as_ref().map_or(0, |turn| turn.refused)
    }

    /// The commit that is being drafted.
    pub fn drafting(&self) -> u64 {
        self.n + 1
    }

    /// The requests for a person's decision that are open.
    pub fn held(&self) -> impl Iterator<Item = (&Call, &Held)> {
        self.turn
            .iter()
            .flat_map(|turn| &turn.calls)
            .filter_map(|call| match &call.state {
                CallState::Held(held) => Some((call, held)),
                _ => None,
            })
    }

    /// A call of the running turn.
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.turn.as_ref()?.calls.iter().find(|call| call.id == *id)
    }

    /// How the running turn offers functions to its model.
    pub fn exposure(&self) -> Exposure {
        self.options
            .functions
            .as_ref()
            .map(|policy| policy.expose)
            .unwrap_or_default()
    }
}

/// The loss that a commit accepts: the first commit that does not count, and the digest of the last that does.
pub(crate) fn accepted_loss(commit: &Commit) -> Result<Option<(u64, Digest)>, FoldError> {
    let is_acceptance = |event: &Event| matches!(event, Event::LossAccepted { .. });
    if commit.events.iter().skip(1).any(is_acceptance) {
        return Err(FoldError::Acceptance { n: commit.n });
    }
    Ok(match commit.events.first() {
        Some(Event::LossAccepted {
            lost_from, kept, ..
        }) => Some((*lost_from, *kept)),
        _ => None,
    })
}
