//! The turn machine under random inputs, losses, repetitions and crashes between any two commits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use teamster_protocol::{
    Arguments, CallId, Class, Commit, Contract, Digest, Event, FunctionId, Lane, Message,
    MessageId, Phase, Principal, SessionId,
    commit::Bell,
    event::{DropReason, EndReason},
    function::router::{Completion, CompletionError, ErrorKind, Part},
    hook::Point,
    id::Incarnation,
    input::{Control, Decide, Decision, Send, SessionOptions, Stop, Timer, TurnOptions},
    limits,
    message::{ResultKind, StopReason},
    policy::{Effect, Exposure, FunctionPolicy, Judgement, Labels},
    usage::{Budget, BudgetKind, NanoUsd, Usage},
};

use super::{
    Action, Barrier, Decided, Draft, Env, HookNote, Incoming, Input, Outcome, Settings, State,
    call, next, settle, state::CallState,
};

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
struct World {
    dice: Dice,
    session: SessionId,
    log: Vec<(Vec<u8>, Commit)>,
    lanes: BTreeMap<Lane, Vec<Input>>,
    /// How often each call took effect.
    effects: BTreeMap<CallId, u32>,
    /// Calls that must not take effect twice.
    fragile: BTreeSet<CallId>,
    now_ms: u64,
    lives: u64,
    bound: BTreeSet<Point>,
    settings: Settings,
    crashes_left: u32,
}

fn principal() -> Principal {
    Principal::parse("owner").expect("valid")
}

fn function(text: &str) -> FunctionId {
    FunctionId::parse(text).expect("valid")
}

fn message(session: &SessionId, key: &str) -> Input {
    Input::Message(Box::new(Send {
        id: MessageId::of_input(session, "in", key),
        from: principal(),
        text: format!("message {key}"),
        at_ms: 1,
        session: SessionOptions::default(),
        options: TurnOptions {
            functions: Some(FunctionPolicy {
                allow: vec!["t::*".to_owned()],
                ..FunctionPolicy::default()
            }),
            ..TurnOptions::default()
        },
    }))
}

fn judgement() -> Judgement {
    Judgement {
        effect: Effect::Ask,
        layer: "test".to_owned(),
        rule: "0: ask".to_owned(),
        labels: Labels::default(),
        target: None,
        policy: Digest::ZERO,
        ask_ttl_ms: Some(50_000),
    }
}

fn completion(parts: Vec<Part>, stop: StopReason) -> Completion {
    Completion {
        parts,
        stop,
        error: None,
        usage: Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        },
        cost: Some(NanoUsd(7)),
        model: "test/model".to_owned(),
        attempts: 1,
    }
}

fn text_part(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
    }
}

fn call_part(name: &str, arguments: &str) -> Part {
    Part::Call {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }
}

impl World {
    fn new(seed: u64) -> Self {
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
    fn load(&self) -> State {
        let mut state = State::new(self.session.clone());
        for (index, (bytes, commit)) in self.log.iter().enumerate() {
            assert_eq!(Commit::decode(bytes).expect("readable"), *commit);
            state
                .absorb(commit, Digest::of(bytes), index as u64 + 1)
                .expect("a sound chain");
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
            draft.apply(
                vec![Event::TookOver {
                    from: head.owner,
                    attempt: attempt + 1,
                }],
                self.now_ms,
            );
        }
        for _ in 0..2_000 {
            self.now_ms += self.dice.roll(40);
            self.drain(&mut draft);
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
                draft.apply(events, self.now_ms);
                continue;
            }
            match self.execute(&draft, &action) {
                Some(outcomes) => outcomes
                    .iter()
                    .for_each(|outcome| draft.take(outcome, self.now_ms)),
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

    fn drain(&mut self, draft: &mut Draft) {
        while let Some(incoming) = self.unread(Lane::Ctl, draft.state().cursor.ctl) {
            draft.take(&Outcome::Input(incoming), self.now_ms);
        }
        while draft.state().takes_messages()
            && let Some(incoming) = self.unread(Lane::In, draft.state().cursor.input)
        {
            draft.take(&Outcome::Input(incoming), self.now_ms);
            if self.dice.happens(50) {
                break;
            }
        }
    }

    fn env(&self) -> Env<'_> {
        Env {
            bound: &self.bound,
            price: None,
            settings: &self.settings,
            now_ms: self.now_ms,
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
        let state = draft.stored(sealed, self.log.len() as u64);
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
                }])
            }
            Action::Recover(request) => Some(vec![if self.dice.happens(50) {
                Outcome::Generated {
                    request: request.clone(),
                    completion: self.answer(),
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

    fn run(&mut self) -> State {
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

fn check_transcript(transcript: &[Message]) {
    let mut open: BTreeSet<CallId> = BTreeSet::new();
    for message in transcript {
        match message {
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
            Message::User { .. } | Message::Notice { .. } => {
                assert!(open.is_empty(), "a message between a call and its result");
            }
        }
    }
    assert!(open.is_empty(), "a call was left open");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// DUR-1, DUR-3, DUR-4, CONC-2, LOOP-1, HIST-2: whatever comes, is lost, comes twice, and wherever the owner dies, every
    /// accepted message enters the transcript once and in order, no fragile call takes effect twice, nothing is left open.
    #[test]
    fn dur_1_any_run_ends_with_everything_answered_and_nothing_repeated(seed in any::<u64>()) {
        let mut world = World::new(seed);
        let state = world.run();
        prop_assert_eq!(state.head.as_ref().map(|head| head.phase), Some(Phase::Idle));
        check_transcript(&state.transcript);
        let sent: Vec<MessageId> = {
            let mut seen = BTreeSet::new();
            world.lanes.get(&Lane::In).into_iter().flatten().filter_map(|input| match input {
                Input::Message(send) if seen.insert(send.id.clone()) => Some(send.id.clone()),
                _ => None,
            }).collect()
        };
        let got: Vec<MessageId> = state.transcript.iter().filter_map(|message| match message {
            Message::User { id, .. } => Some(id.clone()),
            _ => None,
        }).collect();
        prop_assert_eq!(got, sent);
        for id in &world.fragile {
            prop_assert!(world.effects.get(id).copied().unwrap_or(0) <= 1, "{} took effect twice", id);
        }
        let events: Vec<&Event> = world.log.iter().flat_map(|(_, commit)| &commit.events).collect();
        let started = events.iter().filter(|event| matches!(event, Event::TurnStarted { .. })).count();
        let ended = events.iter().filter(|event| matches!(event, Event::TurnEnded { .. })).count();
        prop_assert_eq!(started, ended);
        let spent = events.iter().fold(0, |sum, event| sum + match event {
            Event::GenerationFinished { usage, .. } | Event::GenerationInterrupted { usage, .. } => usage.total(),
            _ => 0,
        });
        prop_assert_eq!(state.usage.total(), spent);
        let asked: BTreeSet<_> = events.iter().filter_map(|event| match event {
            Event::ApprovalRequested { approval, .. } => Some(approval.clone()),
            _ => None,
        }).collect();
        let answered: Vec<_> = events.iter().filter_map(|event| match event {
            Event::ApprovalResolved { approval, .. } | Event::ApprovalExpired { approval, .. } => Some(approval.clone()),
            _ => None,
        }).collect();
        prop_assert_eq!(answered.len(), asked.len(), "each request is answered once");
        prop_assert_eq!(answered.into_iter().collect::<BTreeSet<_>>(), asked);
    }

    /// SEC-61: the fold of any log is the same for every reader, and survives being written down.
    #[test]
    fn sec_61_a_snapshot_and_the_rest_of_the_log_give_the_same_state(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let mut world = World::new(seed);
        let whole = world.run();
        let cut = cut.index(world.log.len());
        let mut state = State::new(world.session.clone());
        for (index, (bytes, commit)) in world.log.iter().enumerate() {
            if index == cut {
                let snapshot = serde_json::to_vec(&state).expect("encodes");
                state = serde_json::from_slice(&snapshot).expect("decodes");
            }
            state.absorb(commit, Digest::of(bytes), index as u64 + 1).expect("sound");
        }
        prop_assert_eq!(state, whole);
    }
}

/// SEC-56: a commit that was changed, left out, doubled or moved does not fold.
#[test]
fn sec_56_the_chain_names_the_first_commit_that_does_not_follow() {
    let mut world = World::new(3);
    world.run();
    let log = world.log.clone();
    assert!(log.len() > 2);
    let fold = |commits: &[(Vec<u8>, Commit)]| {
        let mut state = State::new(world.session.clone());
        commits
            .iter()
            .try_for_each(|(bytes, commit)| state.absorb(commit, Digest::of(bytes), 1))
    };
    assert_eq!(fold(&log), Ok(()));
    let mut removed = log.clone();
    removed.remove(1);
    assert!(fold(&removed).is_err());
    let mut doubled = log.clone();
    doubled.insert(1, log[1].clone());
    assert!(fold(&doubled).is_err());
    let mut swapped = log.clone();
    swapped.swap(0, 1);
    assert!(fold(&swapped).is_err());
    let mut edited = log;
    edited[0].1.at_ms += 1;
    edited[0].0 = edited[0].1.encode().expect("encodes");
    assert!(fold(&edited).is_err());
}

/// A driver that answers by script, for tables.
struct Desk {
    draft: Draft,
    settings: Settings,
    bound: BTreeSet<Point>,
    now_ms: u64,
}

impl Desk {
    fn new(options: TurnOptions) -> Self {
        let session = SessionId::parse("s").expect("valid");
        let mut desk = Self {
            draft: Draft::new(State::new(session.clone())),
            settings: Settings::default(),
            bound: BTreeSet::new(),
            now_ms: 1_000,
        };
        let Input::Message(mut send) = message(&session, "first") else {
            panic!("a message")
        };
        send.options = options;
        desk.take(&Outcome::Input(Incoming {
            lane: Lane::In,
            seq: 1,
            input: Input::Message(send),
        }));
        desk
    }

    fn take(&mut self, outcome: &Outcome) {
        self.draft.take(outcome, self.now_ms);
    }

    /// Settles until something must be done outside.
    fn action(&mut self) -> Action {
        for _ in 0..100 {
            let env = Env {
                bound: &self.bound,
                price: None,
                settings: &self.settings,
                now_ms: self.now_ms,
            };
            let action = next(self.draft.state(), &env);
            match settle(self.draft.state(), &action, &env) {
                Some(events) => self.draft.apply(events, self.now_ms),
                None => return action,
            }
        }
        panic!("the machine does not come to an end");
    }

    fn generate(&mut self, parts: Vec<Part>, stop: StopReason) -> Action {
        let Action::Generate(request) = self.action() else {
            panic!("wants no generation: {:?}", self.action())
        };
        self.take(&Outcome::Generated {
            request,
            completion: completion(parts, stop),
        });
        self.action()
    }

    /// Runs a read with a fixed result.
    fn read(&mut self, result: &str) -> Action {
        let Action::Decide(call) = self.action() else {
            panic!("nothing to decide: {:?}", self.action())
        };
        let decided = Decided::Allow {
            class: Class::Read,
            is_repeatable: true,
            timeout_ms: 1,
            arguments: None,
            judgement: None,
        };
        self.take(&Outcome::Decided {
            call,
            decided,
            notes: Vec::new(),
        });
        let Action::Invoke(calls) = self.action() else {
            return self.action();
        };
        for call in calls {
            self.take(&Outcome::Finished {
                call,
                outcome: ResultKind::Ok,
                text: result.to_owned(),
                duration_ms: 1,
                notes: Vec::new(),
            });
        }
        self.action()
    }

    fn reason(&self) -> Option<EndReason> {
        self.draft
            .state()
            .last
            .as_ref()
            .map(|last| last.reason.clone())
    }
}

/// LOOP-2: equal calls with equal results end the turn, after a warning.
#[test]
fn loop_2_the_same_call_with_the_same_result_ends_for_want_of_progress() {
    let mut desk = Desk::new(TurnOptions::default());
    for _ in 0..limits::REPEATS_MAX {
        desk.generate(vec![call_part("t__list", "{}")], StopReason::Call);
        desk.read("0 items");
    }
    assert_eq!(desk.reason(), Some(EndReason::NoProgress));
    let notices = desk
        .draft
        .state()
        .transcript
        .iter()
        .filter(|message| matches!(message, Message::Notice { .. }))
        .count();
    assert_eq!(notices, 1);
}

/// SEC-36, SEC-37: a bound on calls stops the next call, not the turn after it.
#[test]
fn sec_36_a_bound_met_between_two_calls_keeps_the_second_from_running() {
    let budget = Budget {
        calls: Some(2),
        ..Budget::default()
    };
    let mut desk = Desk::new(TurnOptions {
        budget,
        ..TurnOptions::default()
    });
    let parts = (0..5)
        .map(|index| call_part("t__read", &format!("{{\"i\":{index}}}")))
        .collect();
    desk.generate(parts, StopReason::Call);
    for _ in 0..4 {
        let Action::Decide(call) = desk.action() else {
            panic!("five calls")
        };
        let decided = Decided::Allow {
            class: Class::Read,
            is_repeatable: true,
            timeout_ms: 1,
            arguments: None,
            judgement: None,
        };
        desk.take(&Outcome::Decided {
            call,
            decided,
            notes: Vec::new(),
        });
    }
    desk.read("x");
    assert_eq!(
        desk.reason(),
        Some(EndReason::Budget {
            which: BudgetKind::Calls
        })
    );
    let cancelled = desk
        .draft
        .state()
        .transcript
        .iter()
        .filter(|message| {
            matches!(
                message,
                Message::FunctionResult {
                    outcome: ResultKind::Cancelled,
                    ..
                }
            )
        })
        .count();
    assert_eq!(cancelled, 3);
}

#[test]
fn each_bound_ends_the_turn_with_its_name() {
    let check = |budget: Budget, want: BudgetKind| {
        let mut desk = Desk::new(TurnOptions {
            budget,
            ..TurnOptions::default()
        });
        for index in 0..20 {
            desk.now_ms += 1_000;
            let Action::Generate(_) = desk.action() else {
                break;
            };
            desk.generate(
                vec![call_part("t__read", &format!("{{\"i\":{index}}}"))],
                StopReason::Call,
            );
            desk.read(&index.to_string());
        }
        assert_eq!(desk.reason(), Some(EndReason::Budget { which: want }));
    };
    check(
        Budget {
            steps: Some(3),
            ..Budget::default()
        },
        BudgetKind::Steps,
    );
    check(
        Budget {
            tokens: Some(9_000),
            ..Budget::default()
        },
        BudgetKind::Tokens,
    );
    check(
        Budget {
            cost: Some(NanoUsd(20)),
            ..Budget::default()
        },
        BudgetKind::Cost,
    );
    check(
        Budget {
            wall_ms: Some(4_000),
            ..Budget::default()
        },
        BudgetKind::Wall,
    );
    check(Budget::default(), BudgetKind::Steps);
}

/// STREAM-2: a cut stream is resumed within its bound, then fails the turn by name; what was visible is kept.
#[test]
fn stream_2_a_cut_stream_is_resumed_once_and_then_fails() {
    let mut desk = Desk::new(TurnOptions::default());
    let action = desk.generate(vec![text_part("half")], StopReason::Incomplete);
    assert!(matches!(action, Action::Generate(_)), "{action:?}");
    let action = desk.generate(vec![text_part("other half")], StopReason::Incomplete);
    assert_eq!(action, Action::Idle);
    assert!(
        matches!(desk.reason(), Some(EndReason::Failed { code, .. }) if code == "model.transient")
    );
    let partials = desk
        .draft
        .state()
        .transcript
        .iter()
        .filter(|message| matches!(message, Message::Assistant { partial: true, .. }))
        .count();
    assert_eq!(partials, 2);
}

/// STREAM-5: a call that was cut at the output limit does not run; its siblings do.
#[test]
fn stream_5_a_call_cut_at_the_limit_is_refused_and_its_siblings_are_judged() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.generate(
        vec![call_part("t__read", "{}"), call_part("t__write", "{}")],
        StopReason::Length,
    );
    let calls = &desk.draft.state().turn.as_ref().expect("runs").calls;
    assert!(calls[0].meant.is_ok());
    assert!(calls[1].meant.is_err());
}

/// A message at the moment of finalisation joins the turn: it does not end behind the model's back.
#[test]
fn conc_2_a_turn_does_not_end_while_a_message_is_unseen() {
    let mut desk = Desk::new(TurnOptions::default());
    let Action::Generate(request) = desk.action() else {
        panic!("a generation")
    };
    desk.take(&Outcome::Generated {
        request,
        completion: completion(vec![text_part("bye")], StopReason::End),
    });
    let session = desk.draft.state().session.clone();
    desk.take(&Outcome::Input(Incoming {
        lane: Lane::In,
        seq: 2,
        input: message(&session, "wait"),
    }));
    assert!(matches!(desk.action(), Action::Generate(_)));
    assert_eq!(desk.draft.state().turns, 1);
}

/// SEC-29, SEC-30: the first decision counts, a second one and one about other bytes do not.
#[test]
fn sec_30_the_first_decision_wins_and_a_stale_digest_is_refused() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.generate(vec![call_part("t__ask", "{\"a\":1}")], StopReason::Call);
    let Action::Decide(call) = desk.action() else {
        panic!("a decision")
    };
    let arguments = Arguments::parse("{\"a\":1}").expect("valid");
    let decided = Decided::Hold {
        function: function("t::ask"),
        arguments: arguments.clone(),
        judgement: judgement(),
        holder: function("approval::gate"),
        rest: Vec::new(),
    };
    desk.take(&Outcome::Decided {
        call: call.clone(),
        decided,
        notes: Vec::new(),
    });
    assert!(matches!(desk.action(), Action::Await { .. }));
    let approval = desk
        .draft
        .state()
        .held()
        .next()
        .expect("held")
        .1
        .approval
        .clone();
    let session = desk.draft.state().session.clone();
    let mut seq = 0;
    let mut decide = |desk: &mut Desk, digest: Digest, decision: Decision| {
        seq += 1;
        let control = Control::Decide(Decide {
            id: MessageId::of_input(&session, "decide", &seq.to_string()),
            approval: approval.clone(),
            by: principal(),
            channel: "cli".to_owned(),
            digest,
            decision,
        });
        let incoming = Incoming {
            lane: Lane::Ctl,
            seq,
            input: Input::Control(control),
        };
        super::on(
            desk.draft.state(),
            &Outcome::Input(incoming.clone()),
            desk.now_ms,
        )
        .iter()
        .find_map(|event| match event {
            Event::InputDropped { why, .. } => Some(why.clone()),
            _ => None,
        })
        .map_or_else(
            || {
                desk.take(&Outcome::Input(incoming));
                None
            },
            Some,
        )
    };
    assert_eq!(
        decide(&mut desk, Digest::of("other"), Decision::Approve),
        Some(DropReason::StaleDigest)
    );
    assert_eq!(
        decide(
            &mut desk,
            arguments.digest(),
            Decision::Deny { reason: None }
        ),
        None
    );
    assert_eq!(
        decide(&mut desk, arguments.digest(), Decision::Approve),
        Some(DropReason::NotPending)
    );
    assert!(matches!(desk.action(), Action::Generate(_)));
    assert_eq!(
        desk.draft.state().call(&call).map(|call| &call.state),
        None,
        "the next generation began"
    );
}

/// SEC-38: a turn that is taken over again and again is given up.
#[test]
fn sec_38_a_turn_that_kills_its_owners_is_poisoned() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.action();
    let from = Incarnation::parse("dead").expect("valid");
    for attempt in 1..=limits::ATTEMPTS_MAX + 1 {
        desk.draft.apply(
            vec![Event::TookOver {
                from: from.clone(),
                attempt,
            }],
            desk.now_ms,
        );
    }
    assert_eq!(desk.action(), Action::Idle);
    assert_eq!(desk.reason(), Some(EndReason::Poisoned));
}

fn contract(id: &str) -> Contract {
    let mut contract = Contract::new::<serde_json::Value, serde_json::Value>(function(id), "test");
    contract.visibility = teamster_protocol::Visibility::Agent;
    contract
}

/// LOOP-3, APPR-9: what was not offered is refused with a reason, and never taken for something else.
#[test]
fn loop_3_unknown_and_forbidden_names_are_told_apart_and_named() {
    let read = contract("fs::read");
    let offered = [&read];
    let allowed = call::Allowed::compile(Some(&FunctionPolicy {
        allow: vec!["fs::*".to_owned()],
        deny: vec!["fs::write".to_owned()],
        expose: Exposure::Native,
    }));
    let admit = |name: &str| {
        let wire = teamster_protocol::message::WireCall {
            call: CallId::parse("call_1").expect("valid"),
            name: name.to_owned(),
            arguments: "{}".to_owned(),
        };
        call::admit(&call::meaning(&wire, Exposure::Native), &allowed, &offered)
            .map(|contract| contract.id.to_string())
            .map_err(|refusal| (refusal.outcome, refusal.text))
    };
    assert_eq!(admit("fs__read"), Ok("fs::read".to_owned()));
    let (outcome, text) = admit("search_files").expect_err("unknown");
    assert_eq!(outcome, ResultKind::Invalid);
    assert!(text.contains("fs::read"), "{text}");
    assert_eq!(
        admit("fs__write").expect_err("denied").0,
        ResultKind::DeniedByPolicy
    );
    assert_eq!(
        admit("approval__resolve").expect_err("denied").0,
        ResultKind::DeniedByPolicy
    );
    assert_eq!(
        admit("fs__find").expect_err("allowed, not there").0,
        ResultKind::Invalid
    );
}

/// Without a policy nothing may be called; a glob that cannot be read denies everything.
#[test]
fn functions_are_denied_by_default() {
    assert!(!call::Allowed::compile(None).permits(&function("fs::read")));
    let policy = |allow: &str| FunctionPolicy {
        allow: vec![allow.to_owned()],
        ..FunctionPolicy::default()
    };
    assert!(!call::Allowed::compile(Some(&policy("["))).permits(&function("fs::read")));
    let allowed = call::Allowed::compile(Some(&policy("fs::*")));
    assert!(allowed.permits(&function("fs::read")));
    assert!(allowed.permits(&function("engine::functions::list")));
    assert!(!allowed.permits(&function("router::chat")));
}

/// The inner payload of `agent_trigger` is the call's exact bytes.
#[test]
fn agent_trigger_keeps_the_payload_bytes() {
    let meaning = |arguments: &str| {
        let wire = teamster_protocol::message::WireCall {
            call: CallId::parse("call_1").expect("valid"),
            name: call::AGENT_TRIGGER.to_owned(),
            arguments: arguments.to_owned(),
        };
        call::meaning(&wire, Exposure::AgentTrigger)
    };
    let meant = meaning("{\"function\": \"fs::read\", \"payload\": {\"a\" :1.0 }}").expect("valid");
    assert_eq!(meant.function, Some(function("fs::read")));
    assert_eq!(meant.arguments.as_str(), "{\"a\" :1.0 }");
    assert_eq!(
        meaning("{\"function\":\"fs::list\"}")
            .expect("valid")
            .arguments
            .as_str(),
        "{}"
    );
    for bad in [
        "{\"function\":\"fs::read\",\"payload\":\"{}\"}",
        "{\"function\":\"read\",\"payload\":{}}",
        "{\"payload\":{}}",
        "{\"function\":\"fs::read\",\"payload\":{},\"more\":1}",
        "[]",
    ] {
        assert!(meaning(bad).is_err(), "{bad}");
    }
}
