//! The verifier finds what is planted: each of its rules, broken once.

use teamster_protocol::{Commit, Digest, Event, Message, MessageId, Principal, id::Incarnation};

use crate::{
    evidence::Evidence,
    operator::session,
    verify::check,
    world::{SIBLINGS, World},
};

type Plant = fn(&mut Evidence);

fn effect(evidence: &mut Evidence, function: &str) -> usize {
    evidence
        .effects
        .iter()
        .position(|effect| effect.function == function)
        .expect("an effect")
}

/// Removes the events that `is_meant`.
fn remove(evidence: &mut Evidence, is_meant: fn(&Event) -> bool) {
    for commit in &mut evidence.commits {
        commit.events.retain(|event| !is_meant(event));
    }
}

/// Doubles the first event that `is_meant`.
fn double(evidence: &mut Evidence, is_meant: fn(&Event) -> bool) {
    let commit = evidence
        .commits
        .iter_mut()
        .find(|commit| commit.events.iter().any(is_meant))
        .expect("an event");
    let event = commit
        .events
        .iter()
        .find(|event| is_meant(event))
        .expect("an event")
        .clone();
    commit.events.push(event);
}

fn commit(evidence: &mut Evidence, index: usize) -> &mut Commit {
    &mut evidence.commits[index]
}

const PLANTS: [(&str, Plant); 20] = [
    ("took effect 2 times", |evidence| {
        let index = effect(evidence, "t::write");
        let again = evidence.effects[index].clone();
        evidence.effects.push(again);
    }),
    ("before its intent was stored", |evidence| {
        evidence.effects[0].had_intent = Some(false);
    }),
    ("the log knows nothing of it", |evidence| {
        "call_x".clone_into(&mut evidence.effects[0].call);
    }),
    ("succeeded without an effect", |evidence| {
        drop(evidence.effects.remove(0));
    }),
    ("ran with other bytes than those approved", |evidence| {
        let index = effect(evidence, "t::destroy");
        evidence.effects[index].digest = Digest::of("other").to_string();
    }),
    ("a turn is left running", |evidence| {
        evidence.stored.pop();
        evidence.commits.pop();
    }),
    ("cannot be folded", |evidence| {
        commit(evidence, 2).prev = Digest::ZERO;
    }),
    ("cannot be folded", |evidence| {
        drop((evidence.commits.remove(1), evidence.stored.remove(1)));
    }),
    ("without a claim", |evidence| {
        commit(evidence, 2).head.owner = Incarnation::parse("thief").expect("valid");
    }),
    ("the epoch went back", |evidence| {
        commit(evidence, 2).head.epoch = 0;
    }),
    ("but the transcript got", |evidence| {
        remove(evidence, |event| {
            matches!(event, Event::MessageAdded { .. })
        });
    }),
    ("but consumed", |evidence| {
        commit(evidence, 0).consumed.clear();
    }),
    ("lies in its queue", |evidence| evidence.has_unread = true),
    ("no answer to", |evidence| {
        remove(evidence, |event| {
            matches!(event, Event::GenerationFinished { .. })
        });
    }),
    ("came to [Ok, Ok]", |evidence| {
        double(evidence, |event| {
            matches!(event, Event::CallFinished { .. })
        });
    }),
    ("came to []", |evidence| {
        remove(evidence, |event| {
            matches!(event, Event::CallFinished { .. })
        });
    }),
    ("came to an end 2 times", |evidence| {
        double(evidence, |event| {
            matches!(event, Event::ApprovalResolved { .. })
        });
    }),
    ("commits lie before the tombstone", |evidence| {
        let deleted = Event::SessionDeleted {
            by: Principal::parse("owner").expect("valid"),
            turns: 1,
            queued: 0,
            approvals: Vec::new(),
            keys: Vec::new(),
            spent: Vec::new(),
        };
        commit(evidence, 3).events.push(deleted);
    }),
    ("never joined", |evidence| {
        let waits = Event::AppendWaits {
            by: Principal::parse("owner").expect("valid"),
            messages: vec![Message::Custom {
                id: MessageId::parse("msg_1").expect("valid"),
                from: Principal::parse("owner").expect("valid"),
                kind: "note".to_owned(),
                text: "x".to_owned(),
            }],
        };
        commit(evidence, 1).events.insert(0, waits);
    }),
    ("without the word that it waits for", |evidence| {
        remove(evidence, |event| {
            matches!(event, Event::ApprovalResolved { .. })
        });
    }),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_verifier_finds_what_is_planted() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let _harness = world.worker(&["harness"]).await;
    let id = session("s");
    let accepted = [world.owner.send(&id, "full turn").await];
    world.owner.settle(&id, &accepted).await;
    let sound = world.verify(&id, &accepted).await;
    for (wanted, plant) in PLANTS {
        let mut evidence = sound.clone();
        plant(&mut evidence);
        let found = check(&evidence);
        assert!(
            found.iter().any(|complaint| complaint.contains(wanted)),
            "{wanted}: {found:?}"
        );
    }
}
