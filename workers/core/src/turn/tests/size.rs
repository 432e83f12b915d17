//! No commit is larger than one may be, whatever comes in.

use proptest::prelude::*;
use teamster_protocol::{
    Event, Lane, SessionId,
    commit::Bell,
    event::{DropReason, EndReason},
    id::Incarnation,
    limits,
    message::{ResultKind, StopReason},
    policy::Judgement,
};

use super::super::{
    Action, Decided, Draft, Env, Incoming, Input, Outcome, Sent, Settings, State, draft::Sealed,
    next, settle,
};

use super::{call_part, completion, judgement, message};

/// A driver that stores what does not fit, and keeps what it stored.
struct Driver {
    draft: Draft,
    commits: Vec<Sealed>,
}

impl Driver {
    fn new() -> Self {
        let session = SessionId::parse("s").expect("valid");
        Self {
            draft: Draft::new(State::new(session)),
            commits: Vec::new(),
        }
    }

    fn commit(&mut self) {
        let bell = Bell {
            lane: Lane::In,
            seq: 1,
        };
        let owner = Incarnation::parse("me").expect("valid");
        let sealed = self.draft.seal(&owner, bell, 5).expect("encodes");
        let state = self.draft.clone().stored(&sealed, sealed.commit.n);
        self.commits.push(sealed);
        self.draft = Draft::new(state);
    }

    fn take(&mut self, outcome: &Outcome) {
        while !self.draft.take(outcome, 5) {
            self.commit();
        }
    }

    fn input(&mut self, seq: u64, input: Input) {
        let lane = Lane::In;
        self.take(&Outcome::Input(Incoming { lane, seq, input }));
    }

    /// Settles until something must be done outside.
    fn action(&mut self) -> Action {
        let (bound, settings) = (std::collections::BTreeSet::new(), Settings::default());
        loop {
            let env = Env {
                bound: &bound,
                price: None,
                settings: &settings,
                now_ms: 5,
                trace: None,
            };
            let action = next(self.draft.state(), &env);
            match settle(self.draft.state(), &action, &env) {
                Some(events) if self.draft.apply(events.clone(), 5) => {}
                Some(_) => self.commit(),
                None => return action,
            }
        }
    }

    fn events(mut self) -> Vec<Event> {
        self.commit();
        let commits = self.commits.into_iter();
        commits.flat_map(|sealed| sealed.commit.events).collect()
    }

    fn ask(&mut self, calls: usize, arguments: &str) {
        let first = message(&self.draft.state().session.clone(), "first");
        self.input(1, first);
        let Action::Generate(request) = self.action() else {
            panic!("a generation")
        };
        let parts = vec![call_part("t__write", arguments); calls];
        let completion = completion(parts, StopReason::Call);
        self.take(&Outcome::Generated {
            request,
            completion,
            sent: Sent::default(),
        });
    }
}

fn refusal(text: &str) -> Decided {
    Decided::Refuse {
        outcome: ResultKind::DeniedByPolicy,
        text: text.to_owned(),
        judgement: Some(Judgement {
            rule: text.to_owned(),
            ..judgement()
        }),
    }
}

#[test]
fn an_input_that_no_commit_can_hold_is_dropped() {
    let mut driver = Driver::new();
    let session = driver.draft.state().session.clone();
    let Input::Message(mut send) = message(&session, "first") else {
        panic!("a message")
    };
    send.text = "\u{1}".repeat(limits::EVENTS_BYTES_MAX / 4);
    driver.input(1, Input::Message(send));
    assert_eq!(driver.action(), Action::Idle);
    let events = driver.events();
    assert!(
        matches!(
            &events[..],
            [Event::InputDropped {
                why: DropReason::Malformed { .. },
                ..
            }]
        ),
        "{events:?}"
    );
}

#[test]
fn an_outcome_that_no_commit_can_hold_ends_the_turn_by_name() {
    let mut driver = Driver::new();
    driver.ask(2, "{}");
    let Action::Decide(call) = driver.action() else {
        panic!("a decision")
    };
    let decided = refusal(&"x".repeat(limits::EVENTS_BYTES_MAX));
    driver.take(&Outcome::Decided {
        call,
        decided,
        notes: Vec::new(),
    });
    assert_eq!(driver.action(), Action::Idle);
    let ended = driver.events().into_iter().find_map(|event| match event {
        Event::TurnEnded { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(
        matches!(&ended, Some(EndReason::Failed { code, .. }) if code == "turn.too_large"),
        "{ended:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Whatever sizes answers and refusals have, nothing is lost and no commit is too large.
    #[test]
    fn no_commit_is_larger_than_one_may_be(
        calls in 1_usize..200,
        arguments in 0_usize..2_000,
        reason in 0_usize..120_000,
        unit in prop::sample::select(vec!["x", "\u{1}", "\"", "中"]),
    ) {
        let mut driver = Driver::new();
        driver.ask(calls, &serde_json::json!({"a": unit.repeat(arguments)}).to_string());
        while let Action::Decide(call) = driver.action() {
            let decided = refusal(&unit.repeat(reason / unit.len()));
            driver.take(&Outcome::Decided { call, decided, notes: Vec::new() });
        }
        driver.commit();
        let mut state = State::new(driver.draft.state().session.clone());
        for sealed in &driver.commits {
            prop_assert!(sealed.bytes.len() <= limits::COMMIT_BYTES_MAX, "{}", sealed.bytes.len());
            state.absorb(&sealed.commit, sealed.hash, sealed.commit.n).expect("sound");
        }
        prop_assert_eq!(&state, driver.draft.state());
        let results = state.transcript.iter()
            .filter(|message| matches!(message.as_ref(), teamster_protocol::Message::FunctionResult { .. }))
            .count();
        let is_whole = state.transcript.iter().any(|message| matches!(message.as_ref(), teamster_protocol::Message::Assistant { .. }));
        prop_assert!(results == calls || !is_whole, "{results} results of {calls} calls");
    }
}
