//! A commit in the making: events gathered on top of a stored state.

use teamster_protocol::{
    Commit, Digest, Event, Head, Phase,
    commit::{Bell, Outbox, VERSION},
    event::{DropReason, EndReason},
    id::Incarnation,
    input::{AdminAction, Control},
    limits,
};

use crate::turn::{
    on::{Incoming, Input, Outcome, close, on},
    state::{CallState, State},
};

/// A stored state and the events that are not stored yet, already folded into it.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    state: State,
    consumed: Vec<teamster_protocol::commit::Consumed>,
    events: Vec<Event>,
    outbox: Vec<Outbox>,
    /// Bytes of what was gathered, as JSON.
    bytes: usize,
    /// When its first event was added. A commit has one time, so that every reader folds what its writer folded.
    at_ms: Option<u64>,
}

/// A commit with the bytes to store and their digest.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    /// The commit.
    pub commit: Commit,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their SHA-256.
    pub hash: Digest,
}

impl Draft {
    /// Nothing yet, on top of `state`.
    pub fn new(state: State) -> Self {
        Self {
            state,
            consumed: Vec::new(),
            events: Vec::new(),
            outbox: Vec::new(),
            bytes: 0,
            at_ms: None,
        }
    }

    /// The state with everything drafted.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state, when there is nothing left to store.
    pub fn into_state(self) -> State {
        self.state
    }

    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.consumed.is_empty()
    }

    /// Adds events. False: they do not fit beside what is drafted. Store that first; then they must be made anew.
    #[must_use]
    pub fn apply(&mut self, events: Vec<Event>, now_ms: u64) -> bool {
        let bytes = bytes_of(&events);
        if !self.has_room(bytes) {
            return false;
        }
        self.gather(events, bytes, now_ms);
        true
    }

    /// Adds what an outcome means; an input is consumed. False: it does not fit beside what is drafted. Store that first,
    /// then take it again. What no commit can hold is dropped if it is an input, and else ends the turn.
    #[must_use]
    pub fn take(&mut self, outcome: &Outcome, now_ms: u64) -> bool {
        // A deletion is a commit of its own, so that nothing of the session is left in it.
        if is_deletion(outcome) && !self.is_empty() {
            return false;
        }
        let at_ms = self.at_ms.unwrap_or(now_ms);
        let mut events = on(&self.state, outcome, at_ms);
        let mut bytes = bytes_of(&events);
        if bytes > limits::EVENTS_BYTES_MAX {
            events = too_large(&self.state, outcome, bytes);
            bytes = bytes_of(&events);
        }
        if !self.has_room(bytes) {
            return false;
        }
        if let Outcome::Input(incoming) = outcome {
            self.consume(incoming, at_ms);
        }
        self.gather(events, bytes, at_ms);
        true
    }

    fn has_room(&self, bytes: usize) -> bool {
        let is_final = matches!(self.events.last(), Some(Event::SessionDeleted { .. }));
        if is_final {
            return false;
        }
        self.is_empty() || self.bytes.saturating_add(bytes) <= limits::EVENTS_BYTES_MAX
    }

    fn gather(&mut self, events: Vec<Event>, bytes: usize, now_ms: u64) {
        if events.is_empty() {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        let at_ms = *self.at_ms.get_or_insert(now_ms);
        for event in &events {
            self.outbox.extend(outbox_of(event));
            self.state.apply(event, at_ms);
        }
        self.events.extend(events);
    }

    fn consume(&mut self, incoming: &Incoming, now_ms: u64) {
        let at_ms = *self.at_ms.get_or_insert(now_ms);
        let consumed = incoming.consumed(&self.state);
        self.state.consume(consumed.id.clone(), consumed.seq, at_ms);
        self.state.cursor.advance(consumed.lane, consumed.seq);
        self.consumed.push(consumed);
        self.bytes = self.bytes.saturating_add(CONSUMED_BYTES);
    }

    /// Makes the commit of an owner that holds `bell`.
    pub fn seal(
        &self,
        owner: &Incarnation,
        bell: Bell,
        now_ms: u64,
    ) -> Result<Sealed, serde_json::Error> {
        let commit = Commit {
            v: VERSION,
            session: self.state.session.clone(),
            n: self.state.drafting(),
            prev: self.state.hash,
            at_ms: self.at_ms.unwrap_or(now_ms),
            head: self.head(owner, bell),
            consumed: self.consumed.clone(),
            events: self.events.clone(),
            outbox: self.outbox(),
        };
        let bytes = commit.encode()?;
        let hash = Digest::of(&bytes);
        Ok(Sealed {
            commit,
            bytes,
            hash,
        })
    }

    /// The state once the commit is stored at stream sequence `seq`.
    pub fn stored(self, sealed: &Sealed, seq: u64) -> State {
        let mut state = self.state;
        let commit = &sealed.commit;
        state.seal(
            commit.head.clone(),
            commit.outbox.clone(),
            commit.at_ms,
            sealed.hash,
            seq,
        );
        state
    }

    /// What is left of a deleted session is removed because of each commit that lies at its deletion, so that the next owner
    /// goes on where one was lost. First, for a new session may want things published under the same names.
    fn outbox(&self) -> Vec<Outbox> {
        let head = self.state.head.as_ref();
        let lies_behind = head.is_some_and(|head| head.phase == Phase::Deleted);
        let is_at_deletion =
            self.state.deleted.is_some() && (self.state.is_deleted() || lies_behind);
        let clean_up = is_at_deletion.then_some(Outbox::CleanUp);
        clean_up.into_iter().chain(self.outbox.clone()).collect()
    }

    /// Supplies the stored messages that the session begins with; see [`State::supply`].
    pub fn supply(&mut self, messages: Vec<teamster_protocol::Message>) {
        self.state.supply(messages);
    }

    fn head(&self, owner: &Incarnation, bell: Bell) -> Head {
        let (phase, deadline) = phase(&self.state);
        Head {
            phase,
            owner: owner.clone(),
            bell,
            epoch: self.state.epoch,
            attempt: self.state.turn.as_ref().map_or(0, |turn| turn.attempt),
            cursor: self.state.cursor,
            deadline,
        }
    }
}

/// Bytes of one consumed input in a commit, as JSON.
const CONSUMED_BYTES: usize = 112;

fn bytes_of(events: &[Event]) -> usize {
    let mut count = Count(0);
    // What cannot be encoded is found when the commit is sealed.
    for event in events {
        if serde_json::to_writer(&mut count, event).is_err() {
            return usize::MAX;
        }
    }
    count.0
}

/// Counts what is written.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What an outcome means that no commit can hold.
fn too_large(state: &State, outcome: &Outcome, bytes: usize) -> Vec<Event> {
    let message = format!(
        "it takes {bytes} bytes of a commit, which holds {}",
        limits::EVENTS_BYTES_MAX
    );
    match outcome {
        Outcome::Input(incoming) => vec![Event::InputDropped {
            lane: incoming.lane,
            seq: incoming.seq,
            why: DropReason::Malformed { message },
        }],
        _ => close(
            state,
            &EndReason::Failed {
                code: "turn.too_large".to_owned(),
                message: format!("what a hook, a model or a function gave is too large: {message}"),
            },
        ),
    }
}

fn is_deletion(outcome: &Outcome) -> bool {
    let Outcome::Input(incoming) = outcome else {
        return false;
    };
    match &incoming.input {
        Input::Deletion { .. } => true,
        Input::Control(Control::Admin(admin)) => admin.action == AdminAction::Delete,
        _ => false,
    }
}

/// What must be published because of `event`.
fn outbox_of(event: &Event) -> Option<Outbox> {
    match event {
        Event::ApprovalRequested {
            approval,
            expires_at_ms,
            ..
        } => Some(Outbox::Timer {
            approval: approval.clone(),
            at_ms: *expires_at_ms,
        }),
        Event::ApprovalResolved { approval, .. } | Event::ApprovalExpired { approval, .. } => {
            Some(Outbox::CancelTimer {
                approval: approval.clone(),
            })
        }
        _ => None,
    }
}

/// Who moves next, and until when a parked session waits.
fn phase(state: &State) -> (Phase, Option<u64>) {
    let Some(turn) = &state.turn else {
        // A session that nothing created is there as little as one that was deleted.
        if !state.exists() && state.transcript.is_empty() && state.loss.is_none() {
            return (Phase::Deleted, None);
        }
        return (
            if state.is_unanswered || !state.waiting.is_empty() {
                Phase::Active
            } else {
                Phase::Idle
            },
            None,
        );
    };
    let is_undecided = turn
        .calls
        .iter()
        .any(|call| call.state == CallState::Proposed);
    let deadline = state.held().map(|(_, held)| held.expires_at_ms).min();
    match deadline {
        Some(deadline) if !is_undecided => (Phase::Parked, Some(deadline)),
        _ => (Phase::Active, None),
    }
}
