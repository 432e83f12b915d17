//! The log itself: its chain, its owners, its turns, and the head that is copied outside of it.

use std::collections::BTreeMap;

use teamster_core::turn::{State, state::FOLD_VERSION};
use teamster_protocol::{Digest, Event, Phase};

use super::{events, tombstone};
use crate::evidence::Evidence;

/// Numbers and hashes follow each other, and the whole can be folded.
pub fn chain(evidence: &Evidence, found: &mut Vec<String>) {
    let mut state = State::new(evidence.session.clone());
    for (stored, commit) in evidence.stored.iter().zip(&evidence.commits) {
        if stored.seq <= state.seq {
            found.push(format!(
                "commit {} lies at sequence {} behind {}",
                commit.n, stored.seq, state.seq
            ));
        }
        if let Err(error) = state.absorb(commit, Digest::of(&stored.body), stored.seq) {
            found.push(format!("the log cannot be folded: {error}"));
            return;
        }
    }
    if state.turn.is_some() {
        found.push("a turn is left running".to_owned());
    }
    if state.is_unanswered {
        found.push("a message waits for a turn".to_owned());
    }
    if state
        .head
        .as_ref()
        .is_some_and(|head| !matches!(head.phase, Phase::Idle | Phase::Deleted))
    {
        found.push("the session is not at rest".to_owned());
    }
    if !state.waiting.is_empty() {
        found.push("appended messages wait for ever".to_owned());
    }
}

/// A running turn changes hands by a claim only, and whoever lost it never commits under the old one.
pub fn owners(evidence: &Evidence, found: &mut Vec<String>) {
    let mut claims: BTreeMap<u64, String> = BTreeMap::new();
    let mut last: Option<(u64, String, Phase)> = None;
    for commit in &evidence.commits {
        let owner = commit.head.owner.to_string();
        let takes_over = commit.events.iter().find_map(|event| match event {
            Event::TookOver { from, .. } => Some(from.to_string()),
            _ => None,
        });
        if let Some((epoch, before, phase)) = &last {
            if *phase == Phase::Active && *before != owner && takes_over.as_ref() != Some(before) {
                found.push(format!(
                    "commit {}: {owner} commits in the turn of {before} without a claim",
                    commit.n
                ));
            }
            if commit.head.epoch < *epoch && !tombstone::is_one(commit) {
                found.push(format!(
                    "commit {}: the epoch went back from {epoch} to {}",
                    commit.n, commit.head.epoch
                ));
            }
        }
        let claims_now = takes_over.is_some()
            || commit
                .events
                .iter()
                .any(|event| matches!(event, Event::TurnStarted { .. }));
        if claims_now && commit.head.epoch != commit.n {
            found.push(format!(
                "commit {} claims under epoch {}",
                commit.n, commit.head.epoch
            ));
        }
        if claims_now {
            claims.insert(commit.n, owner.clone());
        }
        last = Some((commit.head.epoch, owner, commit.head.phase));
    }
}

/// Turns begin and end one after another; each generation that began came to something or was begun again.
pub fn turns(evidence: &Evidence, found: &mut Vec<String>) {
    let mut running = None;
    let mut turns = 0;
    let mut generation = None;
    for (n, event) in events(evidence) {
        match event {
            Event::SessionDeleted { .. } => turns = 0,
            Event::TurnStarted { turn, number, .. } => {
                turns += 1;
                if let Some(other) = running.replace(turn.clone()) {
                    found.push(format!("commit {n}: a turn begins while {other} runs"));
                }
                if *number != turns {
                    found.push(format!("commit {n}: turn {number} is the {turns}th"));
                }
            }
            Event::TurnEnded { turn, .. } => {
                if running.take().as_ref() != Some(turn) {
                    found.push(format!("commit {n}: {turn} ends, which does not run"));
                }
                generation = None;
            }
            Event::GenerationStarted { request, .. } => generation = Some(request.clone()),
            Event::GenerationFinished { request, .. }
            | Event::GenerationInterrupted { request, .. }
                if generation.take().as_ref() != Some(request) =>
            {
                found.push(format!(
                    "commit {n}: {request} comes to an end, which was not begun last"
                ));
            }
            _ => {}
        }
    }
}

/// The copied head is a lower bound: what it names stands in the log, with the state that the log folds to.
pub fn head(evidence: &Evidence, found: &mut Vec<String>) {
    let Some(snapshot) = &evidence.snapshot else {
        return;
    };
    let mark = &snapshot.mark;
    let at = evidence
        .stored
        .iter()
        .position(|stored| stored.seq == mark.seq);
    let Some(at) = at else {
        found.push(format!(
            "the head names sequence {}, which the log does not hold",
            mark.seq
        ));
        return;
    };
    if Digest::of(&evidence.stored[at].body) != mark.hash || evidence.commits[at].n != mark.n {
        found.push(format!(
            "the head of commit {} is not that of the log",
            mark.n
        ));
    }
    let Some(body) = &snapshot.state else { return };
    let mut state = State::new(evidence.session.clone());
    for (stored, commit) in evidence.stored.iter().zip(&evidence.commits).take(at + 1) {
        let _ = state.absorb(commit, Digest::of(&stored.body), stored.seq); // the chain is checked elsewhere
    }
    state.supply(evidence.base.clone());
    match serde_json::from_slice::<(u32, State)>(body) {
        Ok((FOLD_VERSION, kept)) if kept == state => {}
        Ok((version, _)) => found.push(format!(
            "the kept state (version {version}) is not what the log folds to"
        )),
        Err(error) => found.push(format!("the kept state cannot be read: {error}")),
    }
}
