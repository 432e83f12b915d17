//! One session, from a doorbell to the moment when nothing is left to do for it.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use teamster_core::turn::{
    State,
    load::{Seen, Step, decide},
    state::CallState,
};
use teamster_mesh::lane::Queued;
use teamster_protocol::{Cursor, Lane, Phase, SessionId, commit::Bell, id::Incarnation, limits};
use teamster_telemetry::task;
use tokio::time::Instant;

use super::{
    admin, cleanup, clock,
    desk::{Entry, Held},
    load, outbox, own,
    own::Word,
    shared::Harness,
    work::{GiveUp, Work},
};

/// Readings that found nothing although a doorbell proves something, before the doorbell is given back.
const STALE_MAX: u32 = 20;
/// Owners' denials that they hold a session, before it is taken over although its head did not change.
const DENIALS_MAX: u32 = 2;
/// How long a damaged session rests before it is looked at again.
const DAMAGED: Duration = Duration::from_mins(1);
/// How long a session rests that could not be read.
const UNREADABLE: Duration = Duration::from_secs(2);

/// The first unread inputs of the control lane and of the message lane.
type Unread = [Option<Queued>; 2];

/// What to do after one look at a session.
enum Next {
    /// Look again; this state is known.
    Look(Option<Box<State>>),
    /// The run is over.
    Over,
}

/// Runs a session until nothing is left to do for it here. A panic on the way touches no other session.
pub(super) async fn run(harness: Harness, session: SessionId, entry: Arc<Entry>) {
    let mut run = Run::new(harness, session, entry);
    let ended = AssertUnwindSafe(run.go_on()).catch_unwind().await;
    run.ended(ended).await;
}

struct Run {
    harness: Harness,
    session: SessionId,
    entry: Arc<Entry>,
    stale: u32,
    denials: u32,
    silent_since: Option<Instant>,
    turns: u64,
}

impl Run {
    fn new(harness: Harness, session: SessionId, entry: Arc<Entry>) -> Self {
        Self {
            harness,
            session,
            entry,
            stale: 0,
            denials: 0,
            silent_since: None,
            turns: 0,
        }
    }

    async fn go_on(&mut self) {
        let mut known = None;
        loop {
            if self.harness.drain.is_cancelled() {
                self.let_go(Duration::ZERO).await;
                return;
            }
            // Boxed: it is large, and one allocation a look.
            match Box::pin(self.look(known.take())).await {
                Next::Look(state) => known = state,
                Next::Over => return,
            }
        }
    }

    /// After a panic the session is given up like one that cannot be read, so that nobody waits for a run that is no more. Whoever
    /// takes it over counts the attempt: a turn that panics each time is ended as poisoned.
    async fn ended(&self, ended: Result<(), Box<dyn Any + Send>>) {
        if let Err(panic) = ended {
            tracing::error!(
                session = %self.session,
                panic = task::text_of(panic.as_ref()),
                "the run of a session panicked"
            );
            self.let_go(UNREADABLE).await;
        }
    }

    async fn look(&mut self, known: Option<Box<State>>) -> Next {
        let read = match known {
            Some(state) => self
                .read_lanes(state.cursor)
                .await
                .map(|lanes| (*state, lanes)),
            None => Box::pin(self.load()).await,
        };
        let (state, [control, message]) = match read {
            Ok(read) => read,
            Err(error) => return self.unreadable(error).await,
        };
        let step = decide(&Seen {
            head: state.head.as_ref(),
            me: self.harness.mesh.incarnation(),
            bell: self.entry.lease,
            is_kick: self.entry.is_kick,
            has_control: control.is_some(),
            has_message: message.is_some(),
            now_ms: clock::now_ms(),
        });
        match step {
            Step::Claim | Step::TakeOver => self.work(state, [control, message]).await,
            // Boxed: a state is large, and these are not the way of each step.
            Step::Ask(owner) => Box::pin(self.ask(state, owner, [control, message])).await,
            Step::Close => Box::pin(self.close(state)).await,
            Step::ReadAgain => self.read_again().await,
        }
    }

    /// Reads log and lanes at once: what a lane holds beyond an old cursor tells what it holds beyond the log's, too.
    async fn load(&self) -> Result<(State, Unread), load::Error> {
        let known = self.harness.shared.cache.take(&self.session);
        let cursor = known
            .as_ref()
            .map_or(Cursor::default(), |state| state.cursor);
        let (state, unread) = tokio::join!(
            // Boxed: a state is large, and this is not the way of each step.
            Box::pin(load::load(
                &self.harness.mesh,
                &self.harness.shared.witnesses,
                &self.session,
                known
            )),
            self.read_lanes(cursor),
        );
        let (mut state, unread) = (state?, unread?);
        self.repeat_outbox(&state).await;
        admin::supply(&self.harness.mesh, &mut state).await?;
        let [control, message] = &unread;
        let is_old = |queued: &Option<Queued>, cursor: u64| {
            queued.as_ref().is_some_and(|queued| queued.seq <= cursor)
        };
        if is_old(control, state.cursor.ctl) || is_old(message, state.cursor.input) {
            let unread = self.read_lanes(state.cursor).await?;
            return Ok((state, unread));
        }
        Ok((state, unread))
    }

    /// The first inputs of both lanes beyond a cursor.
    async fn read_lanes(&self, cursor: Cursor) -> Result<Unread, load::Error> {
        let lanes = self.harness.mesh.lanes();
        let (control, message) = tokio::join!(
            lanes.next(&self.session, Lane::Ctl, cursor.ctl),
            lanes.next(&self.session, Lane::In, cursor.input),
        );
        Ok([control?, message?])
    }

    /// Whoever wrote the last commit may have died before it published what the commit wants published.
    async fn repeat_outbox(&self, state: &State) {
        if state
            .head
            .as_ref()
            .is_some_and(|head| head.owner != *self.harness.mesh.incarnation())
        {
            outbox::publish(&self.harness, state, self.entry.lease).await;
        }
    }

    async fn unreadable(&mut self, error: load::Error) -> Next {
        let delay = match &error {
            load::Error::Damaged(what) => {
                tracing::error!(session = %self.session, code = "session.log_damaged", %what, "the session is stopped");
                DAMAGED
            }
            load::Error::ValueMissing { .. } => {
                tracing::error!(session = %self.session, code = "session.value_missing", "the session is stopped");
                DAMAGED
            }
            load::Error::Mesh(_) => UNREADABLE,
        };
        tracing::warn!(session = %self.session, error = %teamster_telemetry::chain(&error), "a session cannot be loaded");
        self.let_go(delay).await;
        Next::Over
    }

    async fn work(&mut self, state: State, seeds: Unread) -> Next {
        let turns = state.turns;
        let work = Work::new(&self.harness, &self.entry, state, seeds);
        // Boxed: it is large, and one allocation for all steps.
        match Box::pin(work.run()).await {
            Ok(state) => {
                self.harness.shared.heads.note(&state);
                self.turns += state.turns.saturating_sub(turns);
                self.stale = 0;
                if self.turns >= u64::from(limits::TURNS_PER_LEASE_MAX) {
                    return self.yield_slot(state).await;
                }
                Next::Look(Some(Box::new(state)))
            }
            Err(reason) => {
                let delay = match reason {
                    GiveUp::Handover | GiveUp::Fenced => Duration::ZERO,
                    GiveUp::Unavailable => UNREADABLE,
                    GiveUp::WentBack => DAMAGED,
                };
                self.let_go(delay).await;
                Next::Over
            }
        }
    }

    /// Lets other sessions have the slot: a fresh doorbell brings this one back.
    async fn yield_slot(&mut self, state: State) -> Next {
        self.harness.shared.cache.put(state);
        own::kick(
            &self.harness.mesh,
            &self.session,
            &format!("yield-{}", uuid::Uuid::now_v7().simple()),
        )
        .await;
        let (rings, _) = self.harness.shared.desk.abandon(&self.session, &self.entry);
        for held in rings {
            held.ack().await;
        }
        Next::Over
    }

    async fn close(&mut self, state: State) -> Next {
        if state.is_deleted() {
            // The last doorbell is acked when nothing is left to remove.
            if let Err(error) = cleanup::clean_up(&self.harness, &state, self.entry.lease).await {
                return self.unreadable(error.into()).await;
            }
        }
        let cursor = state.cursor;
        let is_parked = state
            .head
            .as_ref()
            .is_some_and(|head| head.phase == Phase::Parked);
        let is_done = |promise: &Cursor| {
            promise.ctl <= cursor.ctl && (promise.input <= cursor.input || is_parked)
        };
        // The state is kept before the run ends, so that the next doorbell finds it.
        self.harness.shared.cache.put(state);
        let Some(rings) = self
            .harness
            .shared
            .desk
            .close(&self.session, &self.entry, is_done)
        else {
            return self.read_again().await;
        };
        for held in rings {
            held.ack().await;
            if held.ring.is_kick || held.ring.seq <= cursor.of(held.ring.lane) {
                self.harness
                    .mesh
                    .lanes()
                    .remove(held.ring.lane, held.ring.seq)
                    .await;
            }
        }
        Next::Over
    }

    /// A reading was stale. What a doorbell proves will show; until then nothing is acked.
    async fn read_again(&mut self) -> Next {
        self.stale += 1;
        if self.stale > STALE_MAX {
            self.let_go(UNREADABLE).await;
            return Next::Over;
        }
        tokio::time::sleep(Duration::from_millis(2) * self.stale).await;
        Next::Look(None)
    }

    async fn ask(&mut self, state: State, owner: Incarnation, seeds: Unread) -> Next {
        let bells: Vec<Bell> = self
            .entry
            .held()
            .iter()
            .filter(|held| !held.ring.is_kick)
            .map(|held| held.bell())
            .collect();
        match own::ask(&self.harness.mesh, &owner, &self.session, bells).await {
            Word::Holds => self.leave_to_owner(&state).await,
            Word::Gone => self.work(state, seeds).await,
            Word::DoesNot => {
                self.denials += 1;
                if self.denials > DENIALS_MAX {
                    self.work(state, seeds).await
                } else {
                    self.pause(Duration::from_millis(5)).await
                }
            }
            Word::Silent => {
                let since = *self.silent_since.get_or_insert_with(Instant::now);
                let patience = if is_in_doubt(&state) {
                    limits::ACK_WAIT
                } else {
                    limits::OWN_SILENCE
                };
                if since.elapsed() >= patience {
                    self.work(state, seeds).await
                } else {
                    self.pause(limits::BEAT_EVERY).await
                }
            }
        }
    }

    async fn pause(&self, time: Duration) -> Next {
        tokio::time::sleep(time).await;
        Next::Look(None)
    }

    /// The owner has promised to look. Its own lease is left alone.
    async fn leave_to_owner(&self, state: &State) -> Next {
        let lease = state.head.as_ref().map(|head| head.bell);
        let (rings, _) = self.harness.shared.desk.abandon(&self.session, &self.entry);
        for held in rings {
            if Some(held.bell()) == lease {
                held.forget();
            } else {
                held.ack().await;
                if held.ring.is_kick {
                    self.harness
                        .mesh
                        .lanes()
                        .remove(held.ring.lane, held.ring.seq)
                        .await;
                }
            }
        }
        Next::Over
    }

    /// Gives the session up. Its doorbells come back; a promise that they do not cover is passed on by a kick.
    async fn let_go(&self, delay: Duration) {
        let (rings, _) = self.harness.shared.desk.abandon(&self.session, &self.entry);
        if self.entry.has_promised_to_peers() {
            let reason = format!("given-up-{}", uuid::Uuid::now_v7().simple());
            own::kick(&self.harness.mesh, &self.session, &reason).await;
        }
        for held in rings {
            held.give_back(delay).await;
        }
    }
}

/// Whether a call runs that must not run twice.
fn is_in_doubt(state: &State) -> bool {
    state
        .turn
        .iter()
        .flat_map(|turn| &turn.calls)
        .any(|call| !call.is_repeatable && matches!(call.state, CallState::Started { .. }))
}

/// Proves the claim by a reading and acks the doorbells that came before it: a flood costs one reading.
pub(super) async fn prove(harness: &Harness, session: &SessionId, entry: &Entry) {
    let waiting = entry.waiting();
    let Ok(Some(tail)) = harness.mesh.log().tail(session).await else {
        return;
    };
    let is_mine = teamster_protocol::Commit::decode(&tail.body).is_ok_and(|commit| {
        commit.head.phase == Phase::Active && commit.head.owner == *harness.mesh.incarnation()
    });
    if is_mine {
        ack_proven(entry, waiting).await;
    }
}

/// Acks doorbells that came before a proof of the claim. What they promised is still owed.
pub(super) async fn ack_proven(entry: &Entry, waiting: Vec<Arc<Held>>) {
    entry.release(&waiting);
    for held in waiting {
        held.ack().await;
    }
}

#[cfg(test)]
mod tests;
