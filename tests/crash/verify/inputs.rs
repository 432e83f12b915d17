//! Inputs: each that was accepted is consumed once, in order, and answered.

use std::collections::{BTreeMap, VecDeque};

use teamster_protocol::{Event, Lane, Message, MessageId, event::DropReason};

use super::events;
use crate::evidence::Evidence;

/// Lanes are consumed forwards, and the messages consumed are those that were accepted, in the order of the queue.
pub fn consumed_once(evidence: &Evidence, found: &mut Vec<String>) {
    // A repetition that the broker did not recognise is consumed without effect.
    let repeated: Vec<u64> = events(evidence)
        .filter_map(|(_, event)| match event {
            Event::InputDropped {
                lane: Lane::In,
                seq,
                why: DropReason::Duplicate,
            } => Some(*seq),
            _ => None,
        })
        .collect();
    let mut marks = BTreeMap::new();
    let mut messages = Vec::new();
    for commit in &evidence.commits {
        for input in &commit.consumed {
            let mark = marks.insert(input.lane, input.seq).unwrap_or(0);
            if input.seq <= mark {
                found.push(format!(
                    "commit {} consumes {:?} {} again",
                    commit.n, input.lane, input.seq
                ));
            }
            if input.lane == Lane::In && !repeated.contains(&input.seq) {
                messages.push((input.id.clone(), input.seq));
            }
            if commit.head.cursor.of(input.lane) < input.seq {
                found.push(format!("commit {} consumes beyond its cursor", commit.n));
            }
        }
    }
    let accepted: Vec<(MessageId, u64)> = evidence
        .accepted
        .iter()
        .map(|reply| (reply.message_id.clone(), reply.seq))
        .collect();
    if messages != accepted {
        found.push(format!("accepted {accepted:?}, but consumed {messages:?}"));
    }
    if evidence.has_unread {
        found.push("an input lies in its queue, unread".to_owned());
    }
}

/// Each accepted message joins the transcript once, in order, and a generation that began after it comes to an answer, or the
/// turn ends for another reason that is written down.
pub fn answered(evidence: &Evidence, found: &mut Vec<String>) {
    let mut added = Vec::new();
    let mut open: Vec<MessageId> = Vec::new();
    let mut asked: BTreeMap<String, Vec<MessageId>> = BTreeMap::new();
    for (_, event) in events(evidence) {
        match event {
            Event::MessageAdded {
                message: Message::User { id, .. },
                appended: false,
                ..
            } => {
                added.push(id.clone());
                open.push(id.clone());
            }
            Event::GenerationStarted { request, .. } => {
                asked.insert(request.to_string(), open.clone());
            }
            Event::GenerationFinished { request, .. } => {
                let seen = asked.remove(&request.to_string()).unwrap_or_default();
                open.retain(|id| !seen.contains(id));
            }
            Event::TurnEnded { reason, .. } if reason.status() != "completed" => open.clear(),
            Event::InputDropped {
                why: DropReason::Malformed { message },
                ..
            } => {
                found.push(format!("an input was malformed: {message}"));
            }
            _ => {}
        }
    }
    let accepted: Vec<MessageId> = evidence
        .accepted
        .iter()
        .map(|reply| reply.message_id.clone())
        .collect();
    if added != accepted {
        found.push(format!(
            "accepted {accepted:?}, but the transcript got {added:?}"
        ));
    }
    if !open.is_empty() {
        found.push(format!("no answer to {open:?}"));
    }
}

/// What was appended joins once, in order.
pub fn joined(evidence: &Evidence, found: &mut Vec<String>) {
    let mut waiting: VecDeque<&Message> = VecDeque::new();
    let mut joined: Vec<&Message> = Vec::new();
    for (n, event) in events(evidence) {
        match event {
            Event::AppendWaits { messages, .. } => waiting.extend(messages),
            Event::MessageAdded {
                message,
                appended: true,
                ..
            } => {
                if waiting.front().is_some_and(|first| *first != message) {
                    found.push(format!(
                        "commit {n}: a message joins before one that waited"
                    ));
                }
                waiting.pop_front();
                if joined.contains(&message) {
                    found.push(format!("commit {n}: an appended message joins again"));
                }
                joined.push(message);
            }
            _ => {}
        }
    }
    if !waiting.is_empty() {
        found.push(format!("{} appended messages never joined", waiting.len()));
    }
}
