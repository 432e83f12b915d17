//! How one event changes the state: the one place where each kind of event is given its meaning, less what ends a generation.

use std::{collections::BTreeMap, sync::Arc};

use teamster_protocol::{Event, Message, event::EndReason, limits};

use super::{Ended, Loss, Origin, State};
use crate::turn::running::{CallState, Held, Turn};

impl State {
    /// Folds one event of the commit that is being drafted or read.
    pub(crate) fn apply(&mut self, event: &Event, at_ms: u64) {
        let n = self.drafting();
        match event {
            Event::SessionCreated {
                by,
                title,
                workspace,
                metadata,
            } => {
                self.origin = Some(Origin {
                    by: by.clone(),
                    title: title.clone(),
                    workspace: workspace.clone(),
                    metadata: metadata.clone(),
                    at_ms,
                });
            }
            Event::MessageAdded {
                message,
                options,
                appended,
            } => {
                self.asked = options.clone().or(&self.asked);
                self.add_message(message, *appended);
            }
            Event::AppendWaits { messages, .. } => self.waiting.extend(messages.iter().cloned()),
            Event::SessionForked { by, fork } => self.begin_fork(by, fork, at_ms),
            Event::SessionDeleted { .. } => self.bury(event, at_ms),
            Event::TurnStarted { .. } => self.start_turn(event, at_ms),
            Event::TurnEnded { reason, .. } => self.end_turn(reason),
            Event::LossAccepted { .. } => self.accept_loss(event, at_ms),
            Event::TookOver { attempt, .. } => {
                self.epoch = n;
                self.with_turn(|turn| turn.attempt = *attempt);
            }
            Event::GenerationStarted { request, step, .. } => {
                self.with_turn(|turn| turn.start_generation(request, *step, n));
            }
            Event::GenerationFinished { .. } | Event::GenerationInterrupted { .. } => {
                self.spent.note(event, self.options.model.as_deref(), at_ms);
                self.end_generation(event);
            }
            Event::MetaChanged {
                title, metadata, ..
            } => self.change_meta(title.as_ref(), metadata),
            Event::ContextMasked { calls, .. } => self.masked.extend(calls.iter().cloned()),
            Event::CallProposed { .. }
            | Event::BudgetExceeded { .. }
            | Event::InputDropped { .. } => {}
            Event::ApprovalExpired { .. } => self.note_approval(event, at_ms),
            Event::HookRan { .. } => self.note_hook(event),
            Event::CallAllowed { .. }
            | Event::CallRefused { .. }
            | Event::CallStarted { .. }
            | Event::CallFinished { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. } => self.move_call(event, at_ms),
        }
    }

    fn accept_loss(&mut self, event: &Event, at_ms: u64) {
        let Event::LossAccepted {
            lost_from,
            turns,
            spent,
            unknown,
            ..
        } = event
        else {
            return;
        };
        let before = self.loss.map_or(0, |loss| loss.unknown);
        self.loss = Some(Loss {
            from: *lost_from,
            at_ms,
            unknown: before.saturating_add(*unknown),
        });
        self.turns = self.turns.saturating_add(*turns);
        self.spent.extend(spent);
        for row in spent {
            self.usage.add(&row.usage);
            self.cost = self.cost.plus(row.cost);
            self.is_cost_partial |= row.unpriced > 0;
        }
    }

    fn change_meta(&mut self, title: Option<&String>, metadata: &BTreeMap<String, Option<String>>) {
        let Some(origin) = &mut self.origin else {
            return;
        };
        if let Some(title) = title {
            origin.title = Some(title.clone());
        }
        for (name, value) in metadata {
            match value {
                Some(value) => origin.metadata.insert(name.clone(), value.clone()),
                None => origin.metadata.remove(name),
            };
        }
    }

    fn add_message(&mut self, message: &Message, is_appended: bool) {
        if is_appended {
            self.joined(message);
        } else if matches!(message, Message::User { .. }) {
            match &mut self.turn {
                Some(turn) => {
                    turn.has_unseen = true;
                    turn.is_answered = false;
                }
                None => self.is_unanswered = true,
            }
        }
        if matches!(message, Message::Notice { .. }) {
            self.with_turn(|turn| {
                // A notice answers what it speaks of: a cut stream, or calls that repeat.
                if turn.failure.take().is_some() {
                    turn.resumes += 1;
                } else if turn
                    .repeats
                    .as_ref()
                    .is_some_and(|(_, count)| *count >= limits::REPEATS_WARN)
                {
                    turn.is_warned = true;
                }
            });
        }
        self.transcript.push(Arc::new(message.clone()));
    }

    fn start_turn(&mut self, event: &Event, at_ms: u64) {
        let Event::TurnStarted {
            turn: id,
            number,
            options,
            trace,
            ..
        } = event
        else {
            return;
        };
        if let Some(options) = options {
            self.options = options.clone();
        }
        *self.wanted = std::mem::take(&mut self.asked).or(&self.wanted);
        self.turns += 1;
        self.is_unanswered = false;
        self.epoch = self.drafting();
        let mut turn = Turn::new(id.clone(), *number, at_ms);
        turn.trace.clone_from(trace);
        self.turn = Some(turn);
    }

    fn end_turn(&mut self, reason: &EndReason) {
        if let Some(turn) = self.turn.take() {
            self.is_unanswered = turn.has_unseen && turn.steps > 0;
            self.last = Some(Ended {
                id: turn.id,
                number: turn.number,
                steps: turn.steps,
                reason: reason.clone(),
                spent: turn.spent,
                cost: turn.cost,
            });
        }
    }

    fn note_hook(&mut self, event: &Event) {
        let Event::HookRan {
            point,
            step,
            function,
            denied,
            system_prompt,
            ..
        } = event
        else {
            return;
        };
        self.with_turn(|turn| {
            if let Some(prompt) = system_prompt {
                turn.system_prompt = Some(prompt.clone());
            }
            match (function, denied) {
                (None, _) => {
                    turn.hooks.insert(*point, *step);
                }
                (Some(function), Some(reason)) => {
                    turn.denied = Some((function.to_string(), reason.clone()));
                }
                (Some(_), None) => {}
            }
        });
    }

    fn move_call(&mut self, event: &Event, at_ms: u64) {
        self.note_approval(event, at_ms);
        let n = self.drafting();
        let Some(turn) = &mut self.turn else { return };
        let (Event::CallAllowed { call, .. }
        | Event::CallRefused { call, .. }
        | Event::CallStarted { call }
        | Event::CallFinished { call, .. }
        | Event::ApprovalRequested { call, .. }
        | Event::ApprovalResolved { call, .. }) = event
        else {
            return;
        };
        let Some(call) = turn.calls.iter_mut().find(|known| known.id == *call) else {
            return;
        };
        let mut result = None;
        match event {
            Event::CallAllowed {
                class,
                repeatable,
                timeout_ms,
                arguments,
                ..
            } => {
                call.class = *class;
                call.is_repeatable = *repeatable;
                call.timeout_ms = *timeout_ms;
                call.replace_arguments(arguments.as_ref());
                call.state = CallState::Allowed;
            }
            Event::ApprovalRequested {
                approval,
                arguments,
                holder: _,
                rest,
                expires_at_ms,
                judgement,
                ..
            } => {
                call.replace_arguments(Some(arguments));
                call.asked += 1;
                call.state = CallState::Held(Held {
                    approval: approval.clone(),
                    digest: arguments.digest(),
                    rest: rest.clone(),
                    expires_at_ms: *expires_at_ms,
                    judgement: judgement.clone(),
                });
                turn.waits_since_ms.get_or_insert(at_ms);
            }
            Event::ApprovalResolved {
                decision, digest, ..
            } => call.release(decision, *digest),
            Event::CallStarted { .. } => {
                call.state = CallState::Started { n };
                turn.calls_started += 1;
            }
            Event::CallRefused { outcome, text, .. }
            | Event::CallFinished { outcome, text, .. } => {
                if let Event::CallFinished {
                    whole: Some(whole), ..
                } = event
                {
                    self.stored.insert(call.id.clone(), *whole);
                }
                call.state = CallState::Done;
                result = Some(call.result(*outcome, text));
            }
            _ => {}
        }
        if let Some(message) = result {
            turn.note_result(&message);
            self.transcript.push(Arc::new(message));
        }
        turn.stop_waiting(at_ms);
    }

    pub(super) fn with_turn(&mut self, change: impl FnOnce(&mut Turn)) {
        if let Some(turn) = &mut self.turn {
            change(turn);
        }
    }
}
