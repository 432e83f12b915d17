//! Events in words, one line each. Pure.

use teamster_core::display::terminal;
use teamster_protocol::{Event, FunctionId, event::EndReason, input::Decision};

use crate::{cli::show::word, client::session::visible};

/// Bytes of a text within a line.
const TEXT_BYTES_MAX: usize = 160;

/// One event as a line for people: its kind, and what tells it from others.
pub(in crate::cli) fn event_words(event: &Event) -> String {
    match event {
        Event::SessionCreated { by, workspace, .. } => format!(
            "session created by {by}, workspace {}",
            cut(workspace.as_deref().unwrap_or("none"))
        ),
        Event::SessionForked { by, fork } => format!(
            "session forked by {by} from {} at commit {}, {} messages",
            terminal(fork.source.as_str()),
            fork.at,
            fork.messages
        ),
        Event::MetaChanged {
            by,
            title,
            metadata,
        } => {
            let mut changed: Vec<String> = title.iter().map(|title| cut(title)).collect();
            changed.extend(metadata.keys().map(|name| cut(name)));
            format!("changed by {by}: {}", changed.join(", "))
        }
        Event::SessionDeleted { by, .. } => format!("session deleted by {by}"),
        Event::AppendWaits { by, messages } => format!(
            "{} messages of {by} wait for the end of the step",
            messages.len()
        ),
        Event::ContextMasked {
            calls,
            tokens_before,
            tokens_after,
        } => format!(
            "results of {} calls masked: {tokens_before} to {tokens_after} tokens",
            calls.len()
        ),
        Event::MessageAdded { message, .. } => format!("message: {}", cut(&visible(message))),
        Event::TurnStarted { number, .. } => format!("turn {number} started"),
        Event::TurnEnded { reason, .. } => format!("turn ended: {}", end_words(reason)),
        Event::GenerationStarted { step, .. } => {
            format!("step {}: generation started", u64::from(*step) + 1)
        }
        Event::GenerationFinished {
            message,
            usage,
            model,
            ..
        } => format!(
            "generation finished ({}, {} tokens): {}",
            terminal(model),
            usage.total(),
            cut(&message.as_ref().map(visible).unwrap_or_default())
        ),
        Event::GenerationInterrupted { error, .. } => {
            format!("generation interrupted: {}", cut(&error.message))
        }
        Event::BudgetExceeded { which, limit, used } => {
            format!("budget {} exceeded: {used} of {limit}", which.as_str())
        }
        Event::HookRan {
            point, function, ..
        } => format!(
            "hook ran at {}: {}",
            point.as_str(),
            name(function.as_ref())
        ),
        Event::InputDropped { lane, seq, why } => {
            format!("input dropped: {} {seq}, {}", word(lane), cut(&word(why)))
        }
        Event::LossAccepted {
            by,
            lost_from,
            message,
            ..
        } => format!(
            "loss accepted by {by}: nothing from commit {lost_from} on counts any more ({})",
            cut(message)
        ),
        Event::TookOver { from, attempt } => format!("took over from {from}, attempt {attempt}"),
        call_or_approval => call_words(call_or_approval),
    }
}

/// Events of one call and of the decision about it.
fn call_words(event: &Event) -> String {
    match event {
        Event::CallProposed { call, function, .. } => {
            format!("call proposed: {} {call}", name(function.as_ref()))
        }
        Event::CallAllowed {
            call,
            class,
            judgement,
            ..
        } => {
            let rule = judgement
                .as_ref()
                .map(|judgement| format!(", rule {}", cut(&judgement.rule)));
            format!(
                "call allowed: {call}, class {}{}",
                word(class),
                rule.unwrap_or_default()
            )
        }
        Event::CallRefused {
            call,
            outcome,
            text,
            ..
        } => format!("call refused: {call}, {}: {}", word(outcome), cut(text)),
        Event::CallStarted { call } => format!("call started: {call}"),
        Event::CallFinished {
            call,
            outcome,
            duration_ms,
            ..
        } => format!("call finished: {call}, {}, {duration_ms} ms", word(outcome)),
        Event::ApprovalRequested {
            approval, function, ..
        } => format!("approval requested: {function} {approval}"),
        Event::ApprovalResolved {
            approval,
            by,
            channel,
            decision,
            ..
        } => format!(
            "{} by {by} through {}: {approval}",
            decision_word(decision),
            cut(channel)
        ),
        Event::ApprovalExpired {
            approval,
            withdrawn: true,
            ..
        } => format!("approval withdrawn: {approval}"),
        Event::ApprovalExpired { approval, .. } => format!("approval expired: {approval}"),
        other => word(other),
    }
}

/// A decision in one word.
fn decision_word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Approve => "approved",
        Decision::Edit { .. } => "edited",
        Decision::Deny { .. } => "denied",
    }
}

/// A reason in words.
pub(in crate::cli) fn end_words(reason: &EndReason) -> String {
    match reason {
        EndReason::Failed { code, message } => {
            format!("failed ({}): {}", terminal(code), terminal(message))
        }
        EndReason::Cancelled { by } => format!("cancelled by {by}"),
        EndReason::Budget { which } => format!("budget ({})", which.as_str()),
        EndReason::Denied { rule, message } => {
            format!("denied by {}: {}", terminal(rule), terminal(message))
        }
        EndReason::Completed | EndReason::NoProgress | EndReason::Poisoned => {
            reason.status().to_owned()
        }
    }
}

fn cut(text: &str) -> String {
    terminal(&teamster_protocol::text::cut(text, TEXT_BYTES_MAX).replace('\n', " "))
}

fn name(function: Option<&FunctionId>) -> String {
    function.map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use teamster_protocol::{BlobRef, Digest, Principal, SessionId, input::Fork};

    use super::*;

    #[test]
    fn what_is_done_to_a_session_is_one_safe_line() {
        let by = Principal::parse("owner").expect("valid");
        let fork = Fork {
            source: SessionId::parse("a b").expect("valid"),
            at: 7,
            hash: Digest::ZERO,
            transcript: BlobRef::of(b"[]"),
            messages: 3,
            options: teamster_protocol::input::TurnOptions::default(),
            masked: Vec::new(),
            stored: BTreeMap::new(),
            session: teamster_protocol::input::SessionOptions::default(),
        };
        let metadata = BTreeMap::from([("key".to_owned(), None)]);
        for (event, want) in [
            (
                Event::SessionForked {
                    by: by.clone(),
                    fork: Box::new(fork),
                },
                "session forked by owner from a b at commit 7, 3 messages",
            ),
            (
                Event::MetaChanged {
                    by,
                    title: Some("a\nb\u{1b}[2J".to_owned()),
                    metadata,
                },
                "changed by owner: a b\\u{1b}[2J, key",
            ),
            (
                Event::ContextMasked {
                    calls: Vec::new(),
                    tokens_before: 9,
                    tokens_after: 4,
                },
                "results of 0 calls masked: 9 to 4 tokens",
            ),
        ] {
            assert_eq!(event_words(&event), want);
        }
    }
}
