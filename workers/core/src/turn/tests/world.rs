//! Everything outside of the machine, at random: a log, lanes, functions, a model, people, and crashes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use teamster_protocol::{
    Arguments, BlobRef, CallId, Class, Commit, Digest, Event, Lane, Message, MessageId, Phase,
    SessionId,
    commit::Bell,
    function::router::{Completion, CompletionError, ErrorKind},
    hook::Point,
    id::Incarnation,
    input::{
        Admin, AdminAction, Appended, Control, Decide, Decision, Fork, SessionOptions, Stop, Timer,
        TurnOptions,
    },
    message::{ResultKind, StopReason},
};

use super::super::{
    Action, Barrier, Decided, Draft, Env, HookNote, Incoming, Input, Outcome, Sent, Settings,
    State, next, settle, state::CallState,
};

use super::{call_part, completion, function, judgement, message, principal, text_part};

/// A small generator of numbers: equal seeds give equal runs.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// Everything outside of the machine: the log, the lanes, the functions and a model.
pub(super) struct World {
    dice: Dice,
    pub(super) session: SessionId,
    pub(super) log: Vec<(Vec<u8>, Commit)>,
    pub(super) lanes: BTreeMap<Lane, Vec<Input>>,
    /// How often each call took effect.
    pub(super) effects: BTreeMap<CallId, u32>,
    /// Calls that must not take effect twice.
    pub(super) fragile: BTreeSet<CallId>,
    now_ms: u64,
    lives: u64,
    bound: BTreeSet<Point>,
    settings: Settings,
    crashes_left: u32,
    /// Whether somebody administers the session meanwhile.
    is_administered: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed | 1);
        let bound = Point::ALL
            .into_iter()
            .filter(|_| dice.happens(30))
            .collect();
        let session = SessionId::parse("s").expect("valid");
        let mut world = Self {
            dice,
            session,
            log: Vec::new(),
            lanes: BTreeMap::new(),
            effects: BTreeMap::new(),
            fragile: BTreeSet::new(),
            now_ms: 1_000_000,
            lives: 0,
            bound,
            settings: Settings::default(),
            crashes_left: 12,
            is_administered: false,
        };
        let messages = 1 + world.dice.roll(6);
        for index in 0..messages {
            // Now and then a message is published twice, beyond the window in which a broker would notice.
            for _ in 0..=u64::from(world.dice.happens(20)) {
                let input = message(&world.session, &index.to_string());
                world.push(Lane::In, input);
            }
        }
        world
    }

    /// The same, while somebody administers the session.
    pub(super) fn administered(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.is_administered = true;
        for _ in 0..world.dice.roll(3) {
            world.administer();
        }
        world
    }

    /// Somebody changes, adds to, deletes or creates the session, perhaps.
    fn administer(&mut self) {
        if !self.is_administered || !self.dice.happens(40) {
            return;
        }
        let lane = self.lanes.get(&Lane::Ctl).map_or(0, Vec::len);
        let key = format!("admin-{lane}");
        let action = match self.dice.roll(12) {
            0 => AdminAction::Delete,
            1 => AdminAction::Create {
                session: SessionOptions::default(),
            },
            2 => AdminAction::Fork {
                fork: Box::new(Self::fork()),
            },
            3..=5 => AdminAction::SetMeta {
                title: Some(key.clone()),
                metadata: BTreeMap::new(),
            },
            6..=8 => AdminAction::Append {
                messages: vec![
                    Appended::User {
                        text: format!("secret {key}"),
                    },
                    Appended::Custom {
                        kind: "note".to_owned(),
                        text: format!("secret {key}"),
                    },
                ],
            },
            _ => AdminAction::Append {
                messages: vec![Appended::Custom {
                    kind: "note".to_owned(),
                    text: format!("secret {key}"),
                }],
            },
        };
        let admin = Admin {
            id: MessageId::of_input(&self.session, "admin", &key),
            by: principal(),
            action,
        };
        for _ in 0..=u64::from(self.dice.happens(20)) {
            let input = Input::Control(Control::Admin(Box::new(admin.clone())));
            self.push(Lane::Ctl, input);
        }
    }

    fn fork() -> Fork {
        Fork {
            source: SessionId::parse("source").expect("valid"),
            at: 3,
            hash: Digest::of("source"),
            transcript: BlobRef::of(b"[]"),
            messages: 1,
            options: TurnOptions::default(),
            masked: Vec::new(),
            stored: BTreeMap::new(),
            session: SessionOptions::default(),
        }
    }

    /// What the fork's stored value holds.
    pub(super) fn base() -> Vec<Message> {
        vec![Message::Notice {
            id: MessageId::of_input(&SessionId::parse("source").expect("valid"), "x", "y"),
            text: "from the source".to_owned(),
        }]
    }

    fn push(&mut self, lane: Lane, input: Input) {
        self.lanes.entry(lane).or_default().push(input);
    }

    fn unread(&self, lane: Lane, after: u64) -> Option<Incoming> {
        let seq = after + 1;
        let index = usize::try_from(after).expect("small");
        self.lanes
            .get(&lane)
            .and_then(|inputs| inputs.get(index))
            .map(|input| Incoming {
                lane,
                seq,
                input: input.clone(),
            })
    }

    /// Folds the log, as any loader does.
    pub(super) fn load(&self) -> State {
        let mut state = State::new(self.session.clone());
        for (index, (bytes, commit)) in self.log.iter().enumerate() {
            assert_eq!(Commit::decode(bytes).expect("readable"), *commit);
            state
                .absorb(commit, Digest::of(bytes), index as u64 + 1)
                .expect("a sound chain");
        }
        if state.missing().is_some() {
            state.supply(Self::base());
        }
        state
    }

    /// One life of an owner: works until it has nothing to do (true) or is killed (false).
    fn live(&mut self) -> bool {
        self.lives += 1;
        let me = Incarnation::parse(format!("life-{}", self.lives)).expect("valid");
        let state = self.load();
        let mut has_claim = false;
        let mut draft = Draft::new(state);
        if let Some(head) = draft.state().head.clone()
            && head.phase == Phase::Active
            && let Some(attempt) = draft.state().turn.as_ref().map(|turn| turn.attempt)
        {
            let event = Event::TookOver {
                from: head.owner,
                attempt: attempt + 1,
            };
            assert!(draft.apply(vec![event], self.now_ms));
        }
        for _ in 0..2_000 {
            self.now_ms += self.dice.roll(40);
            draft = self.drain(draft, &me);
            let action = self.next(&draft);
            let needs_commit = match action.barrier() {
                Barrier::None => false,
                Barrier::Claim => !has_claim,
                Barrier::All => true,
            };
            if needs_commit && !draft.is_empty() {
                if self.crash() {
                    return false;
                }
                draft = self.commit(draft, &me);
                has_claim = true;
                if self.crash() {
                    return false;
                }
                // The clock moved: what was next may have changed.
                continue;
            }
            if let Some(events) = self.settle(&draft, &action) {
                if !draft.apply(events, self.now_ms) {
                    draft = self.commit(draft, &me);
                }
                continue;
            }
            self.administer();
            match self.execute(&draft, &action) {
                Some(outcomes) => {
                    for outcome in &outcomes {
                        while !draft.take(outcome, self.now_ms) {
                            draft = self.commit(draft, &me);
                        }
                    }
                }
                None => return true,
            }
            if self.crash() {
                return false;
            }
        }
        panic!("the session does not come to rest");
    }

    fn crash(&mut self) -> bool {
        let dies = self.crashes_left > 0 && self.dice.happens(6);
        self.crashes_left -= u32::from(dies);
        dies
    }

    fn drain(&mut self, mut draft: Draft, me: &Incarnation) -> Draft {
        while let Some(incoming) = self.unread(Lane::Ctl, draft.state().cursor.ctl) {
            draft = self.take(draft, incoming, me);
        }
        while draft.state().takes_messages()
            && let Some(incoming) = self.unread(Lane::In, draft.state().cursor.input)
        {
            draft = self.take(draft, incoming, me);
            if self.dice.happens(50) {
                break;
            }
        }
        draft
    }

    /// Takes an input. Only a deletion is a commit of its own; everything else here is small.
    fn take(&mut self, mut draft: Draft, mut incoming: Incoming, me: &Incarnation) -> Draft {
        if let Input::Control(Control::Admin(admin)) = &incoming.input
            && admin.action == AdminAction::Delete
        {
            let queued = self.lanes.get(&Lane::In).map_or(0, Vec::len);
            incoming.input = Input::Deletion {
                admin: (**admin).clone(),
                queued: queued as u64,
            };
        }
        let outcome = Outcome::Input(incoming);
        while !draft.take(&outcome, self.now_ms) {
            draft = self.commit(draft, me);
        }
        if draft.state().missing().is_some() {
            draft.supply(Self::base());
        }
        draft
    }

    fn env(&self) -> Env<'_> {
        Env {
            bound: &self.bound,
            price: None,
            settings: &self.settings,
            now_ms: self.now_ms,
            trace: None,
        }
    }

    fn next(&self, draft: &Draft) -> Action {
        let action = next(draft.state(), &self.env());
        assert_eq!(
            action,
            next(draft.state(), &self.env()),
            "the machine has no memory of its own"
        );
        action
    }

    fn settle(&self, draft: &Draft, action: &Action) -> Option<Vec<Event>> {
        settle(draft.state(), action, &self.env())
    }

    fn commit(&mut self, draft: Draft, me: &Incarnation) -> Draft {
        let sealed = draft
            .seal(
                me,
                Bell {
                    lane: Lane::In,
                    seq: 1,
                },
                self.now_ms,
            )
            .expect("encodes");
        self.log.push((sealed.bytes.clone(), sealed.commit.clone()));
        let state = draft.stored(&sealed, self.log.len() as u64);
        assert_eq!(
            state,
            self.load(),
            "the state in memory is the fold of the log"
        );
        Draft::new(state)
    }

    /// Does what an action asks for; `None` when the session rests.
    fn execute(&mut self, draft: &Draft, action: &Action) -> Option<Vec<Outcome>> {
        let state = draft.state();
        match action {
            Action::Idle => None,
            Action::Await { deadline } => {
                self.someone_decides(state, *deadline);
                None
            }
            Action::RunHook(point) => {
                let denied =
                    (*point == Point::PreTurn && self.dice.happens(5)).then(|| "no".to_owned());
                let notes = vec![HookNote {
                    function: Some(function("h::hook")),
                    annotation: Some("seen".to_owned()),
                    denied,
                    ..HookNote::default()
                }];
                Some(vec![Outcome::Hooks {
                    point: *point,
                    notes,
                }])
            }
            Action::Generate(request) => {
                if self.dice.happens(10) {
                    self.push(
                        Lane::In,
                        message(&self.session.clone(), &format!("steer-{request}")),
                    );
                }
                if self.dice.happens(4) {
                    let turn = state.turn.as_ref().map(|turn| turn.id.clone());
                    let id = MessageId::of_input(&self.session, "stop", request.as_str());
                    self.push(
                        Lane::Ctl,
                        Input::Control(Control::Stop(Stop {
                            id,
                            from: principal(),
                            turn,
                        })),
                    );
                    return Some(Vec::new());
                }
                let completion = self.answer();
                Some(vec![Outcome::Generated {
                    request: request.clone(),
                    completion,
                    sent: Sent::default(),
                }])
            }
            Action::Recover(request) => Some(vec![if self.dice.happens(50) {
                Outcome::Generated {
                    request: request.clone(),
                    completion: self.answer(),
                    sent: Sent::default(),
                }
            } else {
                Outcome::Lost(request.clone())
            }]),
            Action::Decide(id) => Some(vec![self.judge(state, id)]),
            Action::Invoke(ids) => Some(ids.iter().map(|id| self.invoke(state, id)).collect()),
            Action::RecoverCalls(ids) => Some(ids.iter().map(|id| self.recover(id)).collect()),
            other => panic!("{other:?} is settled by the machine itself"),
        }
    }

    fn answer(&mut self) -> Completion {
        match self.dice.roll(10) {
            0 => completion(vec![text_part("cut")], StopReason::Incomplete),
            1 => Completion {
                error: Some(CompletionError {
                    kind: ErrorKind::Auth,
                    message: "no key".to_owned(),
                    hint: None,
                }),
                ..completion(Vec::new(), StopReason::Error)
            },
            2 => completion(vec![call_part("t__write", "{\"a\":")], StopReason::Length),
            3..=6 => {
                let calls = 1 + self.dice.roll(4);
                let parts = (0..calls)
                    .map(|index| {
                        let name = ["t__read", "t__write", "t__ask", "nothing", "t__read"];
                        let pick = usize::try_from(self.dice.roll(5)).expect("small");
                        call_part(
                            name[pick],
                            &format!("{{\"i\":{index},\"x\":{}}}", self.dice.roll(1000)),
                        )
                    })
                    .collect();
                completion(parts, StopReason::Call)
            }
            _ => completion(vec![text_part("done")], StopReason::End),
        }
    }

    fn judge(&mut self, state: &State, id: &CallId) -> Outcome {
        let call = state.call(id).expect("known");
        let Some(name) = call.function().map(ToString::to_string) else {
            return Self::decided(
                id,
                Decided::Refuse {
                    outcome: ResultKind::Invalid,
                    text: "no such tool".to_owned(),
                    judgement: None,
                },
            );
        };
        let is_released = matches!(call.state, CallState::Released { .. });
        let arguments = call
            .meant
            .as_ref()
            .expect("has a function")
            .arguments
            .clone();
        if name == "t::ask" && !is_released {
            let decided = Decided::Hold {
                function: function("t::ask"),
                arguments,
                judgement: judgement(),
                holder: function("approval::gate"),
                rest: Vec::new(),
            };
            return Self::decided(id, decided);
        }
        let class = if name == "t::read" {
            Class::Read
        } else {
            Class::Write
        };
        if class == Class::Write {
            self.fragile.insert(id.clone());
        }
        let decided = Decided::Allow {
            class,
            is_repeatable: class == Class::Read,
            timeout_ms: 1000,
            arguments: None,
            judgement: None,
        };
        Self::decided(id, decided)
    }

    fn decided(id: &CallId, decided: Decided) -> Outcome {
        Outcome::Decided {
            call: id.clone(),
            decided,
            notes: Vec::new(),
        }
    }

    fn invoke(&mut self, state: &State, id: &CallId) -> Outcome {
        let is_stored = self
            .load()
            .call(id)
            .is_some_and(|call| matches!(call.state, CallState::Started { .. }));
        assert!(is_stored, "an effect without a stored intent: {id}");
        assert!(
            state.held().next().is_none(),
            "a call ran while another of its answer was undecided"
        );
        *self.effects.entry(id.clone()).or_default() += 1;
        Self::finished(id, ResultKind::Ok, "ok")
    }

    fn recover(&mut self, id: &CallId) -> Outcome {
        if self.effects.contains_key(id) && self.dice.happens(50) {
            Self::finished(id, ResultKind::Ok, "ok")
        } else {
            Self::finished(id, ResultKind::OutcomeUnknown, "unknown")
        }
    }

    fn finished(id: &CallId, outcome: ResultKind, text: &str) -> Outcome {
        Outcome::Finished {
            call: id.clone(),
            outcome,
            text: text.to_owned(),
            duration_ms: 1,
            notes: Vec::new(),
            whole: None,
        }
    }

    /// A person, or time, or somebody with a stale screen.
    fn someone_decides(&mut self, state: &State, deadline: u64) {
        let open: Vec<_> = state
            .held()
            .map(|(_, held)| (held.approval.clone(), held.digest))
            .collect();
        for (approval, digest) in open {
            let id = MessageId::of_input(
                &self.session,
                "decide",
                &format!("{approval}-{}", self.lives),
            );
            let decide = |digest, decision| {
                Control::Decide(Decide {
                    id: id.clone(),
                    approval: approval.clone(),
                    by: principal(),
                    channel: "test".to_owned(),
                    digest,
                    decision,
                })
            };
            let control = match self.dice.roll(6) {
                0 => decide(Digest::of("another call"), Decision::Approve),
                1 => decide(
                    digest,
                    Decision::Deny {
                        reason: Some("no".to_owned()),
                    },
                ),
                2 => {
                    let arguments = Arguments::parse("{\"edited\":true}").expect("valid");
                    decide(digest, Decision::Edit { arguments })
                }
                3 => {
                    self.now_ms = self.now_ms.max(deadline);
                    Control::Timer(Timer {
                        id: id.clone(),
                        approval: approval.clone(),
                    })
                }
                _ => decide(digest, Decision::Approve),
            };
            self.push(Lane::Ctl, Input::Control(control.clone()));
            if self.dice.happens(30) {
                self.push(Lane::Ctl, Input::Control(control));
            }
        }
    }

    pub(super) fn run(&mut self) -> State {
        for _ in 0..200 {
            let rests = self.live();
            let state = self.load();
            let is_read = self.unread(Lane::In, state.cursor.input).is_none()
                && self.unread(Lane::Ctl, state.cursor.ctl).is_none();
            if rests && is_read && state.turn.is_none() {
                return state;
            }
        }
        panic!("the session never rests");
    }
}

pub(super) fn check_transcript(transcript: &[Arc<Message>]) {
    let mut open: BTreeSet<CallId> = BTreeSet::new();
    for message in transcript {
        match message.as_ref() {
            Message::Assistant { content, .. } => {
                assert!(
                    open.is_empty(),
                    "an answer before all results of the last one"
                );
                for part in content {
                    if let teamster_protocol::message::Content::Call(wire) = part {
                        assert!(open.insert(wire.call.clone()), "a call id was used twice");
                    }
                }
            }
            Message::FunctionResult { call, .. } => {
                assert!(open.remove(call), "a result without its call");
            }
            Message::User { .. } | Message::Notice { .. } | Message::Custom { .. } => {
                assert!(open.is_empty(), "a message between a call and its result");
            }
        }
    }
    assert!(open.is_empty(), "a call was left open");
}
