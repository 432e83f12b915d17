//! One turn after another by script: tables of what must follow from what.

use std::collections::BTreeSet;

use teamster_protocol::{
    Arguments, Class, Commit, Digest, Event, Lane, Message, MessageId, SessionId,
    commit::Bell,
    event::{DropReason, EndReason},
    function::router::{Completion, CompletionError, ErrorKind, Part},
    hook::Point,
    id::Incarnation,
    input::{Control, Decide, Decision, TurnOptions},
    limits,
    message::{ResultKind, StopReason},
    usage::{Budget, BudgetKind, NanoUsd},
};

use super::super::{
    Action, Decided, Draft, Env, Incoming, Input, Outcome, Sent, Settings, State, draft::Sealed,
    next, settle,
};

use super::{call_part, completion, function, judgement, message, principal, text_part};

/// A driver that answers by script, for tables.
pub(super) struct Desk {
    draft: Draft,
    settings: Settings,
    bound: BTreeSet<Point>,
    now_ms: u64,
    stored: u64,
}

impl Desk {
    pub(super) fn new(options: TurnOptions) -> Self {
        let session = SessionId::parse("s").expect("valid");
        let mut desk = Self {
            draft: Draft::new(State::new(session.clone())),
            settings: Settings::default(),
            bound: BTreeSet::new(),
            now_ms: 1_000,
            stored: 0,
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

    pub(super) fn take(&mut self, outcome: &Outcome) {
        assert!(self.draft.take(outcome, self.now_ms), "it fits");
    }

    pub(super) fn state(&self) -> &State {
        self.draft.state()
    }

    /// Whether an input fits into the draft; then it is taken.
    pub(super) fn fits(&mut self, lane: Lane, seq: u64, input: Input) -> bool {
        let incoming = Incoming { lane, seq, input };
        self.draft.take(&Outcome::Input(incoming), self.now_ms)
    }

    /// Stores the draft.
    pub(super) fn commit(&mut self) -> Commit {
        let sealed = self.seal();
        let commit = sealed.commit.clone();
        self.stored += 1;
        let empty = Draft::new(State::new(self.draft.state().session.clone()));
        let draft = std::mem::replace(&mut self.draft, empty);
        self.draft = Draft::new(draft.stored(&sealed, self.stored));
        commit
    }

    fn seal(&self) -> Sealed {
        let me = Incarnation::parse("me").expect("valid");
        let bell = Bell {
            lane: Lane::In,
            seq: 1,
        };
        self.draft.seal(&me, bell, self.now_ms).expect("encodes")
    }

    /// Why the input that was taken last was dropped.
    pub(super) fn dropped(&self) -> Option<DropReason> {
        match self.seal().commit.events.last() {
            Some(Event::InputDropped { why, .. }) => Some(why.clone()),
            _ => None,
        }
    }

    /// Lets the model call a function that a person must decide about.
    pub(super) fn hold(&mut self, name: &str, arguments: &str) {
        let action = self.generate(vec![call_part(name, arguments)], StopReason::Call);
        let Action::Decide(call) = action else {
            panic!("nothing to decide: {action:?}")
        };
        let decided = Decided::Hold {
            function: function("t::ask"),
            arguments: Arguments::parse(arguments).expect("valid"),
            judgement: judgement(),
            holder: function("approval::gate"),
            rest: Vec::new(),
        };
        self.take(&Outcome::Decided {
            call,
            decided,
            notes: Vec::new(),
        });
    }

    /// Allows the next call, which changes something.
    pub(super) fn allow(&mut self) {
        let Action::Decide(call) = self.action() else {
            panic!("nothing to decide: {:?}", self.action())
        };
        let decided = Decided::Allow {
            class: Class::Write,
            is_repeatable: false,
            timeout_ms: 1,
            arguments: None,
            judgement: None,
        };
        self.take(&Outcome::Decided {
            call,
            decided,
            notes: Vec::new(),
        });
    }

    /// Settles until something must be done outside, and stores what does not fit into one commit.
    pub(super) fn action_storing(&mut self) -> Action {
        for _ in 0..100 {
            let env = Env {
                bound: &self.bound,
                price: None,
                settings: &self.settings,
                now_ms: self.now_ms,
                trace: None,
            };
            let action = next(self.draft.state(), &env);
            match settle(self.draft.state(), &action, &env) {
                Some(events) => {
                    if !self.draft.apply(events, self.now_ms) {
                        self.commit();
                    }
                }
                None => return action,
            }
        }
        panic!("the machine does not come to an end");
    }

    /// Settles until something must be done outside.
    pub(super) fn action(&mut self) -> Action {
        for _ in 0..100 {
            let env = Env {
                bound: &self.bound,
                price: None,
                settings: &self.settings,
                now_ms: self.now_ms,
                trace: None,
            };
            let action = next(self.draft.state(), &env);
            match settle(self.draft.state(), &action, &env) {
                Some(events) => assert!(self.draft.apply(events, self.now_ms), "it fits"),
                None => return action,
            }
        }
        panic!("the machine does not come to an end");
    }

    pub(super) fn generate(&mut self, parts: Vec<Part>, stop: StopReason) -> Action {
        let Action::Generate(request) = self.action() else {
            panic!("wants no generation: {:?}", self.action())
        };
        self.take(&Outcome::Generated {
            request,
            completion: completion(parts, stop),
            sent: Sent::default(),
        });
        self.action()
    }

    /// Runs a read with a fixed result.
    pub(super) fn read(&mut self, result: &str) -> Action {
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
                whole: None,
            });
        }
        self.action_storing()
    }

    pub(super) fn reason(&self) -> Option<EndReason> {
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
        .filter(|message| matches!(message.as_ref(), Message::Notice { .. }))
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
                message.as_ref(),
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
        .filter(|message| matches!(message.as_ref(), Message::Assistant { partial: true, .. }))
        .count();
    assert_eq!(partials, 2);
}

/// RETRY-1, RETRY-2: a router has tried again by itself; an answer that never began is not asked for a second time, and what
/// the user can do is said. One that broke off without a text is asked for anew, in words that are true.
#[test]
fn retry_2_only_an_answer_that_had_begun_is_resumed() {
    let failing = |kind: ErrorKind, stop: StopReason| Completion {
        error: Some(CompletionError {
            kind,
            message: "no".to_owned(),
            hint: Some("try again after 3600 s".to_owned()),
        }),
        ..completion(Vec::new(), stop)
    };
    for kind in [ErrorKind::Transient, ErrorKind::RateLimited] {
        let mut desk = Desk::new(TurnOptions::default());
        let Action::Generate(request) = desk.action() else {
            panic!("a generation")
        };
        let completion = failing(kind, StopReason::Error);
        desk.take(&Outcome::Generated {
            request,
            completion,
            sent: Sent::default(),
        });
        assert_eq!(desk.action(), Action::Idle);
        let reason = desk.reason();
        assert!(
            matches!(&reason, Some(EndReason::Failed { message, .. }) if message == "no; try again after 3600 s"),
            "{reason:?}"
        );
    }
    let mut desk = Desk::new(TurnOptions::default());
    let Action::Generate(request) = desk.action() else {
        panic!("a generation")
    };
    let completion = failing(ErrorKind::Transient, StopReason::Incomplete);
    desk.take(&Outcome::Generated {
        request,
        completion,
        sent: Sent::default(),
    });
    assert!(matches!(desk.action(), Action::Generate(_)));
    let told = desk.draft.state().transcript.iter().any(
        |message| matches!(message.as_ref(), Message::Notice { text, .. } if text.contains("nothing of it could be kept")),
    );
    assert!(told);
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

/// SEC-37: a thousand calls in one answer come to as many as one answer may hold; the rest is refused, each by name.
#[test]
fn sec_37_calls_beyond_the_bound_of_one_answer_are_refused() {
    let mut desk = Desk::new(TurnOptions::default());
    let parts = (0..1000).map(|_| call_part("t__read", "{}")).collect();
    desk.generate(parts, StopReason::Call);
    let calls = &desk.draft.state().turn.as_ref().expect("runs").calls;
    assert_eq!(calls.len(), 1000);
    let (taken, refused): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.meant.is_ok());
    assert_eq!(taken.len(), limits::CALLS_PER_MESSAGE_MAX);
    assert!(refused.iter().all(|call| {
        call.meant
            .as_ref()
            .is_err_and(|why| why.contains("at once"))
    }));
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
        sent: Sent::default(),
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
        super::super::on(
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
        let event = Event::TookOver {
            from: from.clone(),
            attempt,
        };
        assert!(desk.draft.apply(vec![event], desk.now_ms));
    }
    assert_eq!(desk.action(), Action::Idle);
    assert_eq!(desk.reason(), Some(EndReason::Poisoned));
}
