//! The two queues of a session: TURNS for user messages, CONTROL for control inputs and kicks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_nats::{
    HeaderMap,
    header::{NATS_MESSAGE_ID, NATS_SCHEDULE, NATS_SCHEDULE_TARGET},
};
use bytes::Bytes;
use teamster_protocol::{
    ApprovalId, Digest, Lane, MessageId, SessionId,
    input::ControlKind,
    limits,
    subject::{self, Doorbell},
};

use crate::{
    Error,
    connection::Mesh,
    guard, rfc3339,
    topology::{CONTROL, TURNS},
    trace,
    wire::{Failure, Get, PubAck},
};

/// How often a store whose answer is lost is made.
const STORE_TRIES: u32 = 4;
/// Pause before it is made again, times the tries so far.
const STORE_PAUSE: Duration = Duration::from_millis(50);
/// Timers of one session that one listing looks at.
const TIMERS_MAX: usize = 10_000;
/// Subjects that one listing looks at.
const SUBJECTS_MAX: usize = 200_000;

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
    /// The `traceparent` of whoever sent it.
    pub trace: Option<String>,
}

/// Both lanes, through one worker's connection.
#[derive(Clone)]
pub struct Lanes {
    mesh: Mesh,
}

impl Lanes {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// Stores a user message. A full queue is [`Error::QueueFull`].
    pub async fn send(
        &self,
        session: &SessionId,
        id: &MessageId,
        body: Bytes,
    ) -> Result<Accepted, Error> {
        let action = format!("queueing a message for {session}");
        self.store(subject::turn_in(session), id.as_str(), body, action)
            .await
    }

    /// Stores a control input.
    pub async fn control(
        &self,
        session: &SessionId,
        kind: ControlKind,
        id: &MessageId,
        body: Bytes,
    ) -> Result<Accepted, Error> {
        let action = format!("queueing a {} for {session}", kind.as_str());
        self.store(subject::turn_ctl(session, kind), id.as_str(), body, action)
            .await
    }

    /// Rings a session's bell without content. `reason` makes kicks of one cause and period one.
    pub async fn kick(&self, session: &SessionId, reason: &str) -> Result<(), Error> {
        let id = Digest::of_fields(&[b"kick", session.as_str().as_bytes(), reason.as_bytes()]);
        let action = format!("ringing the bell of {session}");
        self.store(
            subject::turn_kick(session),
            &id.to_string(),
            Bytes::new(),
            action,
        )
        .await?;
        Ok(())
    }

    /// Stores with a message id: a repetition is recognised by the broker's window.
    async fn store(
        &self,
        subject: String,
        id: &str,
        body: Bytes,
        action: String,
    ) -> Result<Accepted, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, id);
        trace::inject(&mut headers, None);
        let ack = self
            .store_repeatedly(subject, headers, body, action)
            .await?;
        Ok(Accepted {
            seq: ack.seq,
            is_duplicate: ack.duplicate,
        })
    }

    /// Stores, and stores again when the answer is lost. Only for what may be stored twice.
    async fn store_repeatedly(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        action: String,
    ) -> Result<PubAck, Error> {
        let wire = self.mesh.wire();
        let mut tries = 0;
        loop {
            let stored = wire
                .store(subject.clone(), Some(headers.clone()), body.clone())
                .await;
            let failure = match stored {
                Ok(ack) => return Ok(ack),
                Err(failure) => failure,
            };
            tries += 1;
            if !failure.is_passing() || tries >= STORE_TRIES {
                return Err(failure.during(action));
            }
            tokio::time::sleep(STORE_PAUSE * tries).await;
            wire.up(limits::BROKER_REQUEST).await;
        }
    }

    /// The first input of a lane after sequence `after`, read at the stream's leader. Kicks are no inputs.
    pub async fn next(
        &self,
        session: &SessionId,
        lane: Lane,
        after: u64,
    ) -> Result<Option<Queued>, Error> {
        let subject = match lane {
            Lane::In => subject::turn_in(session),
            Lane::Ctl => subject::turn_ctl_all(session),
        };
        let wire = self.mesh.wire();
        let mut from = after.saturating_add(1);
        loop {
            let get = Get {
                seq: Some(from),
                next_by_subj: Some(&subject),
                ..Get::default()
            };
            let found = wire
                .get(stream_of(lane), &get)
                .await
                .map_err(|failure| failure.during(format!("reading the queue of {session}")))?;
            let Some(message) = found else {
                return Ok(None);
            };
            let kind = match Doorbell::parse(&message.subject) {
                Ok(Doorbell::In(_)) => None,
                Ok(Doorbell::Control(_, kind)) => Some(kind),
                Ok(Doorbell::Kick(_)) | Err(_) => {
                    tracing::error!(subject = %message.subject, seq = message.seq, "an input of no known kind is removed");
                    self.remove(lane, message.seq).await;
                    from = message.seq + 1;
                    continue;
                }
            };
            return Ok(Some(Queued {
                seq: message.seq,
                kind,
                trace: trace::of(&message.headers),
                body: message.body,
            }));
        }
    }

    /// How many user messages of a session wait, consumed ones that are not removed yet included; bounded by the queue's
    /// limit.
    pub async fn waiting(&self, session: &SessionId) -> Result<u64, Error> {
        let subject = subject::turn_in(session);
        let counts = self
            .mesh
            .wire()
            .subjects(TURNS, &subject, 1)
            .await
            .map_err(|failure| failure.during(format!("counting the queue of {session}")))?;
        Ok(counts.values().sum())
    }

    /// How many user messages of a session wait that no commit has consumed: `cursor` is how far one has. What a commit consumes is
    /// removed a moment later, and the message that rang for a turn is held until its end.
    pub async fn unconsumed(&self, session: &SessionId, cursor: u64) -> Result<u64, Error> {
        let (mut consumed, mut after) = (0_u64, 0);
        while let Some(found) = self.next(session, Lane::In, after).await? {
            if found.seq > cursor {
                // What is removed meanwhile was consumed.
                return Ok(self.waiting(session).await?.saturating_sub(consumed));
            }
            consumed += 1;
            after = found.seq;
        }
        Ok(0)
    }

    /// The sequence of the last user message of a session that its queue holds, read at the stream's leader; 0 if it holds none.
    pub async fn last_message(&self, session: &SessionId) -> Result<u64, Error> {
        let subject = subject::turn_in(session);
        let get = Get {
            last_by_subj: Some(&subject),
            ..Get::default()
        };
        let found = self.mesh.wire().get(TURNS, &get).await;
        let found =
            found.map_err(|failure| failure.during(format!("reading the queue of {session}")))?;
        Ok(found.map_or(0, |message| message.seq))
    }

    /// The sessions in whose queues the server holds messages that it cannot read, because their stored bytes are damaged, and how
    /// many. Such a message is handed to nobody; what lies behind it is. Looks at no more than 200,000 subjects of each kind.
    pub async fn unreadable(&self) -> Result<BTreeMap<SessionId, u64>, Error> {
        let mut unreadable = BTreeMap::new();
        for (stream, filter) in [(TURNS, "turn.in.>"), (CONTROL, "turn.ctl.>")] {
            let about =
                |failure: Failure| failure.during(format!("counting what lies in {stream}"));
            let wire = self.mesh.wire();
            let held = wire.subjects(stream, filter, SUBJECTS_MAX).await;
            for subject in held.map_err(about)?.into_keys() {
                let (_, mut missing) = guard::missing(wire, stream, &subject)
                    .await
                    .map_err(about)?;
                if missing > 0 {
                    // What came and went at the same time is not missing twice.
                    let again = guard::missing(wire, stream, &subject)
                        .await
                        .map_err(about)?;
                    missing = missing.min(again.1);
                }
                if let Ok(doorbell) = Doorbell::parse(&subject)
                    && missing > 0
                {
                    *unreadable.entry(doorbell.session().clone()).or_default() += missing;
                }
            }
        }
        Ok(unreadable)
    }

    /// Removes a consumed input or kick; does not wait.
    pub async fn remove(&self, lane: Lane, seq: u64) {
        if let Err(failure) = self.mesh.wire().delete(stream_of(lane), seq).await {
            tracing::debug!(?lane, seq, error = %failure, "a consumed input stays in its queue");
        }
    }

    /// Sets the timer that will store the control input `body` of kind `timer` at `at_ms`. Setting it again replaces it. A
    /// moment that has passed means now.
    pub async fn set_timer(
        &self,
        session: &SessionId,
        approval: &ApprovalId,
        at_ms: u64,
        body: Bytes,
    ) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        headers.insert(
            NATS_SCHEDULE,
            format!("@at {}", rfc3339::format(at_ms)).as_str(),
        );
        headers.insert(
            NATS_SCHEDULE_TARGET,
            subject::turn_ctl(session, ControlKind::Timer),
        );
        let subject = subject::turn_timer(session, approval.as_str());
        let action = format!("setting a timer of {session}");
        // No message id: a timer that is set again replaces what stands, so that a repetition is harmless.
        self.store_repeatedly(subject, headers, body, action)
            .await?;
        Ok(())
    }

    /// Removes a timer; does not fail when it is gone.
    pub async fn cancel_timer(
        &self,
        session: &SessionId,
        approval: &ApprovalId,
    ) -> Result<(), Error> {
        let subject = subject::turn_timer(session, approval.as_str());
        self.mesh
            .wire()
            .purge(CONTROL, &subject)
            .await
            .map_err(|failure| failure.during(format!("removing a timer of {session}")))
    }

    /// The approvals of a session whose timers are set. Looks at no more than 10,000.
    pub async fn timers(&self, session: &SessionId) -> Result<Vec<ApprovalId>, Error> {
        let subjects = self
            .mesh
            .wire()
            .subjects(CONTROL, &subject::turn_timer_all(session), TIMERS_MAX)
            .await
            .map_err(|failure| failure.during(format!("listing the timers of {session}")))?;
        let approval = |subject: &String| {
            let id = subject.rsplit('.').next().and_then(subject::untoken)?;
            ApprovalId::parse(id).ok()
        };
        Ok(subjects.keys().filter_map(approval).collect())
    }

    /// The sessions that have anything in TURNS or CONTROL (schedules aside), in the order of their ids. Looks at no more
    /// than 200,000 subjects of each kind.
    pub async fn sessions(&self) -> Result<Vec<SessionId>, Error> {
        let mut sessions = BTreeSet::new();
        for (stream, filter) in [
            (TURNS, "turn.in.>"),
            (CONTROL, "turn.ctl.>"),
            (CONTROL, "turn.kick.>"),
        ] {
            let subjects = self
                .mesh
                .wire()
                .subjects(stream, filter, SUBJECTS_MAX)
                .await
                .map_err(|failure| failure.during(format!("listing the queues in {stream}")))?;
            sessions.extend(
                subjects
                    .keys()
                    .filter_map(|subject| Doorbell::parse(subject).ok())
                    .map(|doorbell| doorbell.session().clone()),
            );
        }
        Ok(sessions.into_iter().collect())
    }
}

fn stream_of(lane: Lane) -> &'static str {
    match lane {
        Lane::In => TURNS,
        Lane::Ctl => CONTROL,
    }
}
