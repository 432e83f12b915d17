//! The two queues of a session: TURNS for user messages, CONTROL for control inputs and kicks.

use bytes::Bytes;
use teamster_protocol::{ApprovalId, Lane, MessageId, SessionId, input::ControlKind};

use crate::{Error, connection::Mesh};

/// An input that the broker has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Its stream sequence; of the first publish where this is a repetition.
    pub seq: u64,
    /// Whether the broker had it already.
    pub is_duplicate: bool,
}

/// An input as it lies in a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Its stream sequence.
    pub seq: u64,
    /// Its kind, in the control lane.
    pub kind: Option<ControlKind>,
    /// Its body.
    pub body: Bytes,
}

/// Both lanes, through one worker's connection.
#[derive(Clone)]
pub struct Lanes {
    #[expect(dead_code, reason = "skeleton")]
    mesh: Mesh,
}

impl Lanes {
    /// Stores a user message. A full queue is [`Error::QueueFull`].
    pub async fn send(
        &self,
        session: &SessionId,
        id: &MessageId,
        body: Bytes,
    ) -> Result<Accepted, Error> {
        let _ = (session, id, body);
        todo!()
    }

    /// Stores a control input.
    pub async fn control(
        &self,
        session: &SessionId,
        kind: ControlKind,
        id: &MessageId,
        body: Bytes,
    ) -> Result<Accepted, Error> {
        let _ = (session, kind, id, body);
        todo!()
    }

    /// Rings a session's bell without content. `reason` makes kicks of one cause and period one.
    pub async fn kick(&self, session: &SessionId, reason: &str) -> Result<(), Error> {
        let _ = (session, reason);
        todo!()
    }

    /// The first input of a lane after sequence `after`, read at the stream's leader. Kicks are no inputs.
    pub async fn next(
        &self,
        session: &SessionId,
        lane: Lane,
        after: u64,
    ) -> Result<Option<Queued>, Error> {
        let _ = (session, lane, after);
        todo!()
    }

    /// How many user messages of a session wait after sequence `after`; bounded by the queue's limit.
    pub async fn waiting(&self, session: &SessionId) -> Result<u64, Error> {
        let _ = session;
        todo!()
    }

    /// Removes a consumed input or kick; does not wait.
    pub async fn remove(&self, lane: Lane, seq: u64) {
        let _ = (lane, seq);
        todo!()
    }

    /// Sets the timer that will store the control input `body` of kind `timer` at `at_ms`. Setting it again replaces it.
    pub async fn set_timer(
        &self,
        session: &SessionId,
        approval: &ApprovalId,
        at_ms: u64,
        body: Bytes,
    ) -> Result<(), Error> {
        let _ = (session, approval, at_ms, body);
        todo!()
    }

    /// Removes a timer; does not fail when it is gone.
    pub async fn cancel_timer(
        &self,
        session: &SessionId,
        approval: &ApprovalId,
    ) -> Result<(), Error> {
        let _ = (session, approval);
        todo!()
    }

    /// The sessions that have anything in TURNS or CONTROL (schedules aside), with the oldest sequence of each lane.
    pub async fn sessions(&self) -> Result<Vec<SessionId>, Error> {
        todo!()
    }
}
