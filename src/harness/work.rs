//! The machine's loop for a session that is claimed or about to be: next, barrier, act, again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use teamster_core::turn::{
    Action, Barrier, Draft, Env, Incoming, Input, Outcome, State, call::Allowed, next, settle,
};
use teamster_mesh::{lane::Queued, log::CommitError, registry::Catalog};
use teamster_protocol::{
    Commit, Event, Lane, Phase, SessionId, TurnId,
    event::EndReason,
    function::router::Price,
    hook::Point,
    input::{AdminAction, Control, Send},
    limits,
    trace::Trace,
};
use teamster_telemetry::trace;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::{
    act, admin, clock,
    desk::Entry,
    outbox, run,
    settings::Pinned,
    shared::Harness,
    spans::{self, Spans},
};
use crate::witness::Witness;

/// Why a session is given up before it rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GiveUp {
    /// This harness ends.
    Handover,
    /// Another owner has committed.
    Fenced,
    /// The log is behind what this owner stored.
    WentBack,
    /// The broker cannot be reached.
    Unavailable,
}

/// What the router says about the price of the turn's model.
enum Asked {
    NotYet,
    Answered(Option<Price>),
}

/// The work on one session under one lease.
pub(super) struct Work<'a> {
    pub(super) harness: &'a Harness,
    pub(super) entry: &'a Entry,
    pub(super) draft: Draft,
    pub(super) session: SessionId,
    seeds: [Option<Queued>; 2],
    has_claim: bool,
    proof: Option<Instant>,
    has_looked: bool,
    /// Whether the lanes must be read although no doorbell may have told of what was seen in them.
    pub(super) drain_strictly: bool,
    drained_bytes: usize,
    price: Asked,
    spans: Spans,
    /// The `traceparent` of the first message of the turn to come.
    cause: Option<String>,
    /// Gives the lines of a turn its ids.
    lines: Option<(TurnId, Span)>,
    /// What the running turn keeps, or what a turn that begins now would take.
    settings: Arc<Pinned>,
}

impl<'a> Work<'a> {
    /// Work on a loaded session. `seeds` are the first unread inputs of the control lane and of the message lane.
    pub(super) fn new(
        harness: &'a Harness,
        entry: &'a Entry,
        state: State,
        seeds: [Option<Queued>; 2],
    ) -> Self {
        Self {
            harness,
            entry,
            session: state.session.clone(),
            spans: Spans::of(&state),
            cause: None,
            lines: None,
            draft: Draft::new(state),
            seeds,
            has_claim: false,
            proof: None,
            has_looked: false,
            drain_strictly: false,
            drained_bytes: 0,
            price: Asked::NotYet,
            settings: harness.shared.pins.now(),
        }
    }

    /// Works until the session rests, and returns its stored state.
    pub(super) async fn run(mut self) -> Result<State, GiveUp> {
        self.take_over();
        loop {
            if self.harness.drain.is_cancelled() {
                if self.has_claim && !self.draft.is_empty() {
                    self.commit().await?;
                }
                return Err(GiveUp::Handover);
            }
            let strictly = std::mem::take(&mut self.drain_strictly);
            self.drain(strictly).await?;
            let action = self.next().await;
            let is_end = matches!(action, Action::Finish(EndReason::Completed));
            if is_end && !self.has_looked {
                // A turn never ends while a message lies behind the last one that the model saw.
                self.has_looked = true;
                self.drain(true).await?;
                continue;
            }
            let must_commit = match action.barrier() {
                Barrier::None => false,
                Barrier::Claim => !self.has_claim,
                Barrier::All => !self.draft.is_empty(),
            };
            if must_commit {
                self.commit().await?;
            } else if matches!(action, Action::Idle | Action::Await { .. }) {
                return Ok(self.draft.into_state());
            } else if !self.settle(&action).await? {
                self.guard().await?;
                let lines = self.lines();
                let executed = act::execute(&mut self, &action).instrument(lines).await?;
                for outcome in executed {
                    self.take(&outcome).await?;
                }
            }
        }
    }

    fn take_over(&mut self) {
        let state = self.draft.state();
        let Some(head) = state
            .head
            .as_ref()
            .filter(|head| head.phase == Phase::Active)
        else {
            return;
        };
        if let Some(turn) = &state.turn {
            tracing::info!(session = %self.session, turn = %turn.id, from = %head.owner, "a running turn is taken over");
            let event = Event::TookOver {
                from: head.owner.clone(),
                attempt: turn.attempt + 1,
            };
            let _fits = self.draft.apply(vec![event], clock::now_ms()); // it is the first
        }
    }

    /// Adds what an outcome means to the draft. Where it does not fit, what is drafted is stored first.
    pub(super) async fn take(&mut self, outcome: &Outcome) -> Result<(), GiveUp> {
        while !self.draft.take(outcome, clock::now_ms()) {
            self.commit().await?;
        }
        Ok(())
    }

    /// What runs in this turn as far as the registry goes.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.harness.registry.catalog()
    }

    /// What the turn's policy allows.
    pub(super) fn allowed(&self) -> Arc<Allowed> {
        let policy = self.draft.state().options.functions.as_ref();
        self.harness.shared.allowed.get(policy)
    }

    /// What the running turn was started with.
    pub(super) fn settings(&self) -> &Pinned {
        &self.settings
    }

    /// Workers without whose hook no call runs: those of the turn's start, and those that have become required since.
    pub(super) fn required_hooks(&self) -> BTreeSet<String> {
        let now = self.harness.shared.pins.now();
        let all = self.settings.required_hooks.iter();
        all.chain(&now.required_hooks).cloned().collect()
    }

    /// Takes what is configured now, unless a turn runs: that one keeps what it was started with.
    fn pin(&mut self) {
        let pins = &self.harness.shared.pins;
        self.settings = match &self.draft.state().turn {
            None => pins.now(),
            Some(turn) => pins.pin(&turn.id, &self.settings),
        };
    }

    async fn next(&mut self) -> Action {
        self.pin();
        let bound = bound(&self.catalog());
        let price = self.price().await;
        let env = self.env(&bound, price.as_ref(), None);
        next(self.draft.state(), &env)
    }

    /// The span of the turn's lines.
    fn lines(&mut self) -> Span {
        let Some(turn) = &self.draft.state().turn else {
            return Span::none();
        };
        if let Some((id, span)) = &self.lines
            && *id == turn.id
        {
            return span.clone();
        }
        let (trace_id, span_id) = spans::place(turn, None)
            .and_then(|place| trace::ids(&place))
            .unzip();
        let span = tracing::info_span!(
            target: trace::LINES,
            "turn",
            session = %self.session,
            turn = %turn.id,
            trace_id,
            span_id
        );
        self.lines = Some((turn.id.clone(), span.clone()));
        span
    }

    /// The `traceparent` that others go on from: of a generation or a call by its id, else of the turn.
    pub(super) fn trace(&self, id: Option<&str>) -> Option<String> {
        let turn = self.draft.state().turn.as_ref()?;
        spans::place(turn, id)
    }

    /// Does what needs nobody; false when the action is of another kind.
    async fn settle(&mut self, action: &Action) -> Result<bool, GiveUp> {
        let bound = bound(&self.catalog());
        let price = self.price().await;
        let trace = (*action == Action::StartTurn)
            .then(|| spans::begin(self.cause.as_deref()))
            .flatten();
        let env = self.env(&bound, price.as_ref(), trace.as_ref());
        let now_ms = env.now_ms;
        let Some(events) = settle(self.draft.state(), action, &env) else {
            return Ok(false);
        };
        if !self.draft.apply(events, now_ms) {
            // The machine is asked again, on top of what is stored then.
            self.commit().await?;
        } else if *action == Action::Assemble {
            self.has_looked = false;
        } else if *action == Action::StartTurn {
            self.cause = None;
        }
        Ok(true)
    }

    fn env<'e>(
        &'e self,
        bound: &'e BTreeSet<Point>,
        price: Option<&'e Price>,
        trace: Option<&'e Trace>,
    ) -> Env<'e> {
        Env {
            bound,
            price,
            trace,
            settings: &self.settings.turn,
            now_ms: clock::now_ms(),
        }
    }

    /// The price of the turn's model, asked for only where a bound on money needs it.
    async fn price(&mut self) -> Option<Price> {
        let options = &self.draft.state().options;
        options.budget.cost?;
        if let Asked::Answered(price) = &self.price {
            return price.clone();
        }
        let model = options.model.clone().unwrap_or_default();
        let price = act::generate::price(self.harness, &model, self.trace(None)).await;
        self.price = Asked::Answered(price.clone());
        price
    }

    /// Reads what has come in. Control inputs first; user messages where they may join. With `strictly` the lanes are read
    /// even if no doorbell told of anything new.
    pub(super) async fn drain(&mut self, strictly: bool) -> Result<(), GiveUp> {
        let found = if strictly {
            self.look_into_lanes().await?
        } else {
            [true, true]
        };
        for (lane, is_found) in [Lane::Ctl, Lane::In].into_iter().zip(found) {
            if !is_found {
                continue;
            }
            while let Some(queued) = self.unread(lane, strictly).await? {
                let read = admin::prepare(self, read_input(&queued)).await?;
                let incoming = Incoming {
                    lane,
                    seq: queued.seq,
                    input: read.input,
                };
                self.drained_bytes += queued.body.len();
                if lane == Lane::In && self.draft.state().turn.is_none() && self.cause.is_none() {
                    self.cause = queued.trace;
                }
                self.take(&Outcome::Input(incoming)).await?;
                self.draft.supply(read.base);
            }
        }
        Ok(())
    }

    /// Reads the first input of either lane at once, for [`Self::unread`] to take; says in which there is one.
    async fn look_into_lanes(&mut self) -> Result<[bool; 2], GiveUp> {
        let cursor = self.draft.state().cursor;
        let lanes = self.harness.mesh.lanes();
        let (control, message) = tokio::join!(
            lanes.next(&self.session, Lane::Ctl, cursor.ctl),
            lanes.next(&self.session, Lane::In, cursor.input),
        );
        match (control, message) {
            (Ok(control), Ok(message)) => {
                self.seeds = [control, message];
                Ok(self.seeds.each_ref().map(Option::is_some))
            }
            (Err(error), _) | (_, Err(error)) => Err(self.unreadable(&error)),
        }
    }

    pub(super) fn unreadable(&self, error: &teamster_mesh::Error) -> GiveUp {
        tracing::warn!(session = %self.session, error = %teamster_telemetry::chain(error), "a lane cannot be read");
        GiveUp::Unavailable
    }

    async fn unread(&mut self, lane: Lane, strictly: bool) -> Result<Option<Queued>, GiveUp> {
        let state = self.draft.state();
        let cursor = state.cursor.of(lane);
        if lane == Lane::In
            && (!state.takes_messages() || self.drained_bytes > limits::DRAIN_BYTES_MAX)
        {
            return Ok(None);
        }
        let seed = match lane {
            Lane::Ctl => &mut self.seeds[0],
            Lane::In => &mut self.seeds[1],
        };
        if let Some(queued) = seed.take()
            && queued.seq > cursor
        {
            return Ok(Some(queued));
        }
        if !strictly && self.entry.promised().of(lane) <= cursor {
            return Ok(None);
        }
        let next = self
            .harness
            .mesh
            .lanes()
            .next(&self.session, lane, cursor)
            .await;
        next.map_err(|error| self.unreadable(&error))
    }

    /// Stores the draft. Everything that follows from it is published afterwards.
    pub(super) async fn commit(&mut self) -> Result<(), GiveUp> {
        let waiting = self.entry.waiting();
        let me = self.harness.mesh.incarnation();
        let mut sealed = self
            .draft
            .seal(me, self.entry.lease, clock::now_ms())
            .map_err(|error| {
                tracing::error!(session = %self.session, %error, "a commit cannot be encoded");
                GiveUp::Unavailable
            })?;
        if sealed.bytes.len() > limits::COMMIT_BYTES_MAX {
            tracing::error!(session = %self.session, bytes = sealed.bytes.len(), "a commit is larger than its bound");
            return Err(GiveUp::Unavailable);
        }
        let expected = self.draft.state().seq;
        // Before it is stored: the commit that ends a turn is still one of its lines.
        let lines = match self.lines() {
            lines if lines.is_none() => self.lines.take().map_or(lines, |(_, turn)| turn),
            lines => lines,
        };
        let body = Bytes::from(std::mem::take(&mut sealed.bytes));
        // What the answer proves held when it was asked for: this process may sleep until it reads it.
        let asked = Instant::now();
        let seq = match self
            .harness
            .mesh
            .log()
            .commit(&self.session, body, expected)
            .await
        {
            Ok(seq) => seq,
            Err(error) => return Err(self.refused(&error)),
        };
        let draft = std::mem::replace(
            &mut self.draft,
            Draft::new(State::new(self.session.clone())),
        );
        self.draft = Draft::new(draft.stored(&sealed, seq));
        let commit = sealed.commit;
        self.has_claim = true;
        self.proof = Some(asked);
        self.drained_bytes = 0;
        self.spans.stored(&commit, self.draft.state());
        lines.in_scope(|| {
            tracing::debug!(session = %self.session, n = commit.n, seq, events = commit.events.len(), "committed");
        });
        self.follow_up(&commit).await;
        run::ack_proven(self.entry, waiting).await;
        Ok(())
    }

    fn refused(&self, error: &CommitError) -> GiveUp {
        match error {
            CommitError::Fenced { tail } => {
                tracing::info!(session = %self.session, tail, "another owner has the session");
                GiveUp::Fenced
            }
            CommitError::WentBack { tail } => {
                tracing::error!(session = %self.session, tail, code = "session.log_damaged", "the log went back");
                self.went_back()
            }
            CommitError::Unreadable => {
                tracing::error!(session = %self.session, code = "session.log_damaged", "the end of the log cannot be read");
                self.went_back()
            }
            CommitError::Unknown(error) => {
                tracing::warn!(session = %self.session, error = %teamster_telemetry::chain(error), "a commit is unconfirmed");
                GiveUp::Unavailable
            }
        }
    }

    /// The log is behind what this owner stored: that is remembered, for the log itself does not show it.
    fn went_back(&self) -> GiveUp {
        let witness = Witness::of(self.draft.state());
        let witnesses = &self.harness.shared.witnesses;
        witnesses.note(&self.session, witness);
        GiveUp::WentBack
    }

    async fn follow_up(&self, commit: &Commit) {
        let mesh = &self.harness.mesh;
        outbox::publish(self.harness, self.draft.state(), self.entry.lease).await;
        for input in &commit.consumed {
            let is_lease = self.entry.lease.lane == input.lane && self.entry.lease.seq == input.seq;
            if !is_lease {
                mesh.lanes().remove(input.lane, input.seq).await;
            }
        }
        // Once a turn: a completion is small, and one that is not removed costs nothing but memory.
        let is_end = |event: &Event| matches!(event, Event::TurnEnded { .. });
        if commit.events.iter().any(is_end) {
            mesh.generations().remove(&self.session).await;
        }
        if commit.n.is_multiple_of(limits::SNAPSHOT_COMMITS) {
            self.harness.shared.heads.note(self.draft.state());
        }
    }

    /// Proves the claim again when the last proof is old. It is no guarantee (the log is), but it keeps an owner that slept
    /// from beginning something new.
    pub(super) async fn guard(&mut self) -> Result<(), GiveUp> {
        if self
            .proof
            .is_some_and(|proof| proof.elapsed() < limits::ACK_WAIT / 2)
        {
            return Ok(());
        }
        let state = self.draft.state();
        let asked = Instant::now();
        match self.harness.mesh.log().tail(&self.session).await {
            Ok(tail) if tail.as_ref().map_or(0, |stored| stored.seq) == state.seq => {
                self.proof = Some(asked);
                Ok(())
            }
            Ok(tail) if tail.as_ref().map_or(0, |stored| stored.seq) < state.seq => {
                Err(self.went_back())
            }
            Ok(_) => Err(GiveUp::Fenced),
            Err(_) => Err(GiveUp::Unavailable),
        }
    }

    /// How long the turn may still work, by its bound on time; without one, for as long as any generation may take.
    pub(super) fn time_left(&self) -> Duration {
        let state = self.draft.state();
        match (&state.turn, state.options.budget.wall_ms) {
            (Some(turn), Some(wall_ms)) => {
                Duration::from_millis(wall_ms.saturating_sub(turn.worked_ms(clock::now_ms())))
            }
            _ => limits::GENERATION_MAX * 2,
        }
    }

    /// Until when something that is asked for now may begin, in milliseconds since 1970.
    pub(super) fn not_after_ms(&self) -> u64 {
        let spent = self.proof.map_or(limits::ACK_WAIT, |proof| proof.elapsed());
        clock::now_ms() + clock::millis((limits::ACK_WAIT / 2).saturating_sub(spent))
    }

    /// Whether a stop for the running turn, or the deletion of its session, lies in the control lane.
    pub(super) async fn has_stop(&self) -> bool {
        let state = self.draft.state();
        let Some(turn) = state.turn.as_ref().map(|turn| &turn.id) else {
            return false;
        };
        let mut after = state.cursor.ctl;
        for _ in 0..limits::QUEUE_PER_SESSION_MAX {
            match self
                .harness
                .mesh
                .lanes()
                .next(&self.session, Lane::Ctl, after)
                .await
            {
                Ok(Some(queued)) => {
                    let ends = match read_input(&queued) {
                        Input::Control(Control::Stop(stop)) => {
                            stop.turn.as_ref().is_none_or(|wanted| wanted == turn)
                        }
                        Input::Control(Control::Admin(admin)) => {
                            admin.action == AdminAction::Delete
                        }
                        _ => false,
                    };
                    if ends {
                        return true;
                    }
                    after = queued.seq;
                }
                Ok(None) | Err(_) => return false,
            }
        }
        false
    }
}

fn bound(catalog: &Catalog) -> BTreeSet<Point> {
    catalog
        .hooks
        .iter()
        .map(|(binding, _)| binding.point)
        .collect()
}

/// Reads a lane's message as what its subject says. What cannot be read is consumed with the reason, so that it holds
/// nothing up.
fn read_input(queued: &Queued) -> Input {
    let read = match queued.kind {
        Some(kind) => Control::decode(kind, &queued.body).map(Input::Control),
        None => {
            serde_json::from_slice::<Send>(&queued.body).map(|send| Input::Message(Box::new(send)))
        }
    };
    match read {
        Ok(Input::Message(send)) if send.text.len() > limits::MESSAGE_BYTES_MAX => {
            Input::Malformed(format!(
                "the message has {} bytes, more than {}",
                send.text.len(),
                limits::MESSAGE_BYTES_MAX
            ))
        }
        Ok(input) => input,
        Err(error) => Input::Malformed(teamster_protocol::text::cut(&error.to_string(), 512)),
    }
}
