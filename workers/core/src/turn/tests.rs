//! The turn machine under random inputs, losses, repetitions and crashes between any two commits.

mod admin;
mod damage;
mod desk;
mod naming;
mod size;
mod world;

use std::collections::BTreeSet;

use proptest::prelude::*;
use teamster_protocol::{
    Commit, Digest, Event, FunctionId, Lane, Message, MessageId, Phase, Principal, SessionId,
    function::router::{Completion, Part},
    input::{Send, SessionOptions, TurnOptions},
    message::StopReason,
    policy::{Effect, FunctionPolicy, Judgement, Labels},
    usage::{NanoUsd, Usage},
};

use super::{Input, State};

use world::{World, check_transcript};

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
        let got: Vec<MessageId> = state.transcript.iter().filter_map(|message| match message.as_ref() {
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
