//! Calls: each comes to exactly one end, nothing takes effect twice or unannounced, and a person's word is neither lost nor
//! used twice.

use std::collections::BTreeMap;

use teamster_protocol::{Event, input::Decision, message::ResultKind};

use super::{events, tombstone};
use crate::{evidence::Evidence, outside::Effect};

/// What the log says of one call.
#[derive(Debug, Default)]
struct Call {
    is_repeatable: bool,
    allowed: u32,
    begun: u32,
    ends: Vec<ResultKind>,
    function: String,
}

fn calls(evidence: &Evidence) -> BTreeMap<String, Call> {
    let mut calls: BTreeMap<String, Call> = BTreeMap::new();
    for (_, event) in events(evidence) {
        match event {
            Event::CallProposed { call, function, .. } => {
                let function = function
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                calls.entry(call.to_string()).or_default().function = function;
            }
            Event::CallAllowed {
                call, repeatable, ..
            } => {
                let known = calls.entry(call.to_string()).or_default();
                known.is_repeatable = *repeatable;
                known.allowed += 1;
            }
            Event::CallStarted { call } => calls.entry(call.to_string()).or_default().begun += 1,
            Event::CallRefused { call, outcome, .. }
            | Event::CallFinished { call, outcome, .. } => {
                calls
                    .entry(call.to_string())
                    .or_default()
                    .ends
                    .push(*outcome);
            }
            _ => {}
        }
    }
    calls
}

/// Each call that was proposed comes to one end, and begins at most once.
pub fn settled(evidence: &Evidence, found: &mut Vec<String>) {
    for (id, call) in calls(evidence) {
        if call.ends.len() != 1 {
            found.push(format!("{id} came to {:?}", call.ends));
        }
        if call.begun > 1 || call.begun > call.allowed {
            found.push(format!(
                "{id} was allowed {} times and began {} times",
                call.allowed, call.begun
            ));
        }
        if call.ends.contains(&ResultKind::Ok) && call.begun == 0 {
            found.push(format!("{id} succeeded without a beginning"));
        }
    }
}

/// Effects and log agree.
pub fn effects(evidence: &Evidence, found: &mut Vec<String>) {
    let mut counts: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in &evidence.effects {
        counts.entry(&effect.call).or_default().push(effect);
        if effect.had_intent == Some(false) {
            found.push(format!(
                "{} took effect before its intent was stored",
                effect.call
            ));
        }
    }
    let calls = calls(evidence);
    let is_erased = evidence.commits.first().is_some_and(tombstone::is_one);
    for (id, effects) in &counts {
        match calls.get(*id) {
            // Its call may have been of the session that was deleted.
            None if is_erased => {}
            None => found.push(format!("{id} took effect and the log knows nothing of it")),
            Some(call) if call.begun == 0 => {
                found.push(format!("{id} took effect and never began"));
            }
            Some(call) if !call.is_repeatable && effects.len() > 1 => {
                found.push(format!("{id} took effect {} times", effects.len()));
            }
            Some(_) => {}
        }
    }
    for (id, call) in &calls {
        let is_counted = call.function.starts_with("t::");
        if is_counted && call.ends.contains(&ResultKind::Ok) && !counts.contains_key(id.as_str()) {
            found.push(format!("{id} succeeded without an effect"));
        }
    }
}

/// A request is resolved or expires once; what runs are the bytes that were approved.
pub fn approvals(evidence: &Evidence, found: &mut Vec<String>) {
    let mut asked = BTreeMap::new();
    let mut ended: BTreeMap<String, u32> = BTreeMap::new();
    let mut approved: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (n, event) in events(evidence) {
        match event {
            Event::ApprovalRequested {
                approval,
                call,
                arguments,
                ..
            } => {
                approved.insert(call.to_string(), None);
                let digest = arguments.digest().to_string();
                if asked
                    .insert(approval.to_string(), (call.to_string(), digest))
                    .is_some()
                {
                    found.push(format!("commit {n}: {approval} is asked for again"));
                }
            }
            Event::ApprovalResolved {
                approval,
                call,
                digest,
                decision,
                ..
            } => {
                *ended.entry(approval.to_string()).or_default() += 1;
                let is_as_asked =
                    asked.get(approval.as_str()) == Some(&(call.to_string(), digest.to_string()));
                if !is_as_asked {
                    found.push(format!(
                        "commit {n}: {approval} is decided for other bytes or another call"
                    ));
                }
                let word = matches!(decision, Decision::Approve).then(|| digest.to_string());
                approved.insert(call.to_string(), word);
            }
            Event::ApprovalExpired { approval, .. } => {
                *ended.entry(approval.to_string()).or_default() += 1;
            }
            Event::CallStarted { call } if approved.get(call.as_str()) == Some(&None) => {
                found.push(format!(
                    "commit {n}: {call} begins without the word that it waits for"
                ));
            }
            _ => {}
        }
    }
    for approval in asked.keys() {
        let times = ended.get(approval).copied().unwrap_or(0);
        if times != 1 {
            found.push(format!("{approval} came to an end {times} times"));
        }
    }
    for effect in &evidence.effects {
        if let Some(word) = approved.get(&effect.call)
            && word.as_ref() != Some(&effect.digest)
        {
            found.push(format!(
                "{} ran with other bytes than those approved",
                effect.call
            ));
        }
    }
}
