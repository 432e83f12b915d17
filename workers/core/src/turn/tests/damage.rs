//! Damaged logs, and the one way past a damage.

use proptest::prelude::*;
use teamster_protocol::{
    Commit, Digest, Event, Lane, Message, Phase, Principal, commit::Bell, event::EndReason,
    id::Incarnation,
};

use super::super::{
    State,
    fold::{Damage, Fold, counting},
    salvage::Salvage,
};

use super::world::{World, check_transcript};

type Log = Vec<Vec<u8>>;

fn log_of(world: &World) -> Log {
    world.log.iter().map(|(bytes, _)| bytes.clone()).collect()
}

fn fold(world: &World, log: &[Vec<u8>]) -> Result<State, Box<Damage>> {
    let mut fold = Fold::new(State::new(world.session.clone()));
    for (index, bytes) in log.iter().enumerate() {
        fold.take(bytes, index as u64 + 1);
    }
    fold.finish()
}

/// The acceptance of a damage as it is stored, and the state of whoever stored it.
fn accept(damage: Damage, seq: u64) -> (Vec<u8>, Commit, State) {
    let by = Principal::parse("owner").expect("valid");
    let draft = damage.accept(&by, 9_000_000);
    let bell = Bell {
        lane: Lane::Ctl,
        seq: 0,
    };
    let owner = Incarnation::parse("me").expect("valid");
    let sealed = draft.seal(&owner, bell, 9_000_000).expect("encodes");
    let (bytes, commit) = (sealed.bytes.clone(), sealed.commit.clone());
    (bytes, commit, draft.stored(&sealed, seq))
}

/// Ways in which a log comes to harm, behind which something is left.
fn harm(log: &mut Log, way: u8, at: usize) {
    match way {
        0 => {
            log.remove(at);
        }
        1 => log.insert(at, b"{\"v\":1}".to_vec()),
        2 => {
            let copy = log[at].clone();
            log.insert(at, copy);
        }
        3 => log.swap(at, at + 1),
        _ => {
            let mut commit = Commit::decode(&log[at]).expect("readable");
            commit.at_ms += 1;
            log[at] = commit.encode().expect("encodes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// SEC-55, SEC-56: whatever harm a log comes to, nothing but the acceptance of exactly that loss leads past it.
    #[test]
    fn sec_56_only_an_accepted_loss_leads_past_a_break(
        seed in any::<u64>(), way in 0_u8..5, at in any::<prop::sample::Index>(), tamper in 0_u8..5,
    ) {
        let mut world = World::new(seed);
        let whole = world.run();
        let mut log = log_of(&world);
        prop_assume!(log.len() > 3);
        let at = at.index(log.len() - 2);
        harm(&mut log, way, at);
        let damage = fold(&world, &log).expect_err("the harm shows");
        prop_assert!(damage.state.n <= at as u64 + 1, "what is kept lies before the harm");
        prop_assert_eq!(damage.n_max, whole.n, "the last number that is there is known");
        let kept = damage.state.clone();
        let (bytes, commit, stored) = accept(*damage, log.len() as u64 + 1);

        // Another acceptance leads nowhere, and nor does what a confused owner adds.
        let mut wrong = commit.clone();
        match tamper {
            0 => wrong.prev = Digest::of("other"),
            1 => wrong.n = kept.n.max(1),
            2 => wrong.events.insert(0, wrong.events[0].clone()),
            _ => if let Some(Event::LossAccepted { lost_from, kept, .. }) = wrong.events.first_mut() {
                if tamper == 3 { *lost_from += 1 } else { *kept = Digest::of("other") }
            },
        }
        let mut other = log.clone();
        other.push(wrong.encode().expect("encodes"));
        if wrong != commit {
            prop_assert!(fold(&world, &other).is_err());
        }
        other.push(bytes.clone());
        prop_assert!(fold(&world, &other).is_err(), "it accepts what lies right before it, nothing else");

        log.push(bytes);
        let state = fold(&world, &log).expect("accepted");
        prop_assert_eq!(&state, &stored, "every reader folds what the writer folded");
        prop_assert!(state.turn.is_none() && state.n > whole.n);
        prop_assert_eq!(state.loss.map(|loss| loss.from), Some(kept.n + 1));
        check_transcript(&state.transcript);
        let begins = state.transcript.starts_with(&kept.transcript);
        prop_assert!(begins, "what is kept stays as it was");
        if kept.turn.is_some() {
            let ended = state.last.as_ref().map(|last| &last.reason);
            let is_named = matches!(ended, Some(EndReason::Failed { code, .. }) if code == "session.log_damaged");
            prop_assert!(is_named);
        }
        let stored: Vec<(u64, &[u8])> = (1..).zip(log.iter().map(Vec::as_slice)).collect();
        let counted = counting(&world.session, &stored).expect("readable where it counts");
        let numbers: Vec<u64> = counted.iter().map(|(_, commit)| commit.n).collect();
        let wanted: Vec<u64> = (1..=kept.n).chain([state.n]).collect();
        prop_assert_eq!(numbers, wanted);
    }

    /// SEC-55: what turns there were, what they spent and what the session was asked for outlives a commit that cannot be read,
    /// where a snapshot knows it; without one, as far as the other commits tell.
    #[test]
    fn sec_55_an_acceptance_keeps_what_is_known_of_turns_and_spending(
        seed in any::<u64>(), at in any::<prop::sample::Index>(), has_snapshot in any::<bool>(),
    ) {
        let mut world = World::new(seed);
        let whole = world.run();
        let mut log = log_of(&world);
        prop_assume!(log.len() > 2);
        let lost = Commit::decode(&log.remove(at.index(log.len() - 1))).expect("readable");
        let mut damage = fold(&world, &log).expect_err("the harm shows");
        let kept = damage.state.clone();
        let behind: Vec<Commit> = log.iter().map(|bytes| Commit::decode(bytes).expect("readable"))
            .filter(|commit| commit.n > kept.n).collect();
        let snapshot = has_snapshot.then_some(&whole);
        damage.salvage = Salvage::of(&kept, snapshot, &behind, true);
        damage.salvage.bound(kept.n, snapshot.map(|state| state.n), &behind, whole.n);
        let (bytes, _, stored) = accept(*damage, log.len() as u64 + 1);
        log.push(bytes);
        let state = fold(&world, &log).expect("accepted");
        prop_assert_eq!(&state, &stored);
        let begun = lost.events.iter().filter(|event| matches!(event, Event::TurnStarted { .. })).count() as u64;
        let spent: u64 = lost.events.iter().map(|event| match event {
            Event::GenerationFinished { usage, .. } | Event::GenerationInterrupted { usage, .. } => usage.total(),
            _ => 0,
        }).sum();
        let total = |state: &State| state.spent.rows().iter().map(|row| row.usage.total()).sum::<u64>();
        prop_assert_eq!(total(&state), state.usage.total());
        prop_assert_eq!(total(&whole), whole.usage.total());
        let unpriced = |state: &State| state.spent.rows().iter().map(|row| row.unpriced).sum::<u64>();
        let hidden = lost.events.iter().filter(|event| matches!(
            event,
            Event::GenerationFinished { cost: None, .. } | Event::GenerationInterrupted { cost: None, .. }
        )).count() as u64;
        let known = if has_snapshot { unpriced(&whole) } else { unpriced(&whole) - hidden };
        prop_assert_eq!(unpriced(&state), known, "what is lost is not of a model without a price");
        if has_snapshot {
            prop_assert_eq!((state.turns, state.usage, state.cost), (whole.turns, whole.usage, whole.cost));
            prop_assert_eq!(state.is_cost_partial, whole.is_cost_partial);
            let options = |state: &State| state.asked.clone().or(&state.wanted);
            prop_assert_eq!(options(&state), options(&whole));
            prop_assert_eq!(state.loss.map(|loss| loss.unknown), Some(0));
        } else {
            prop_assert_eq!((state.turns, state.usage.total()), (whole.turns - begun, whole.usage.total() - spent));
            prop_assert_eq!(state.loss.map(|loss| loss.unknown), Some(1));
        }
    }

    /// A log that is only shorter than it was: its numbers are not used again.
    #[test]
    fn sec_55_a_shorter_log_goes_on_behind_the_numbers_that_were_used(seed in any::<u64>(), at in any::<prop::sample::Index>()) {
        let mut world = World::new(seed);
        let whole = world.run();
        let mut log = log_of(&world);
        log.truncate(at.index(log.len()));
        let short = fold(&world, &log).expect("sound as far as it goes");
        let damage = Damage::of(short.clone(), whole.n, "it is shorter".to_owned());
        let (bytes, commit, stored) = accept(damage, log.len() as u64 + 1);
        prop_assert_eq!(commit.prev, short.hash);
        log.push(bytes);
        let state = fold(&world, &log).expect("accepted");
        prop_assert_eq!(&state, &stored);
        prop_assert!(state.n > whole.n && state.turn.is_none());
        let phase = state.head.as_ref().map(|head| head.phase);
        prop_assert_eq!(phase, Some(if state.is_unanswered { Phase::Active } else { Phase::Idle }));
    }
}

/// A commit of a newer build is no loss.
#[test]
fn sec_59_what_a_newer_build_wrote_is_told_apart_from_a_damage() {
    let mut world = World::new(3);
    world.run();
    let mut log = log_of(&world);
    log.push(b"{\"v\":2,\"more\":true}".to_vec());
    assert!(fold(&world, &log).expect_err("unknown").is_newer);
    let last = log.len() - 1;
    log[last] = b"{\"v\":1}".to_vec();
    assert!(!fold(&world, &log).expect_err("unreadable").is_newer);
}

/// The model is told that something is missing.
#[test]
fn a_loss_is_told_to_the_model() {
    let mut world = World::new(3);
    world.run();
    let mut log = log_of(&world);
    log.truncate(2);
    let short = fold(&world, &log).expect("sound");
    let (_, _, state) = accept(Damage::of(short, 9, "it is shorter".to_owned()), 3);
    assert!(
        matches!(state.transcript.last().map(AsRef::as_ref), Some(Message::Notice { text, .. }) if text.contains("lost"))
    );
}

/// SEC-55: a second loss, of a part before the first, keeps what the first acceptance kept, once.
#[test]
fn sec_55_a_second_acceptance_counts_what_the_first_one_counted_once() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        world.run();
        let mut log = log_of(&world);
        if log.len() < 4 {
            continue;
        }
        let mut sums = Vec::new();
        for at in [log.len() - 2, 1] {
            log.remove(at);
            let mut damage = fold(&world, &log).expect_err("the harm shows");
            let kept = damage.state.clone();
            let behind: Vec<Commit> = log
                .iter()
                .map(|bytes| Commit::decode(bytes).expect("readable"))
                .filter(|commit| commit.n > kept.n)
                .collect();
            damage.salvage = Salvage::of(&kept, None, &behind, true);
            let (n_max, seq) = (damage.n_max, log.len() as u64 + 1);
            damage.salvage.bound(kept.n, None, &behind, n_max);
            let (bytes, ..) = accept(*damage, seq);
            log.push(bytes);
            let state = fold(&world, &log).expect("accepted");
            sums.push((state.turns, state.usage.total()));
        }
        let lost = Commit::decode(&log_of(&world)[1]).expect("readable");
        let begun = |event: &&Event| matches!(event, Event::TurnStarted { .. });
        let turns = lost.events.iter().filter(begun).count() as u64;
        let spent: u64 = lost
            .events
            .iter()
            .map(|event| match event {
                Event::GenerationFinished { usage, .. }
                | Event::GenerationInterrupted { usage, .. } => usage.total(),
                _ => 0,
            })
            .sum();
        assert_eq!(sums[1], (sums[0].0 - turns, sums[0].1 - spent), "{seed}");
    }
}
