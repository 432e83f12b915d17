//! What the end of a generation changes: the transcript, the turn, what was spent, what is known about the model's tokens.

use std::sync::Arc;

use teamster_protocol::{
    Event,
    function::router::ErrorKind,
    usage::{NanoUsd, Usage},
};

use super::{Cut, Failure, State};
use crate::context::Calibration;

impl State {
    /// Folds the end of a generation, whole or interrupted.
    pub(super) fn end_generation(&mut self, event: &Event) {
        match event {
            Event::GenerationFinished {
                message,
                stop,
                usage,
                cost,
                model,
                attempts,
                estimated,
                ..
            } => {
                self.spend(usage, *cost);
                let calibration = Calibration::of(model, *estimated, usage, *attempts);
                self.calibration = calibration.or(self.calibration.take());
                let exposure = self.exposure();
                if let Some(turn) = &mut self.turn {
                    turn.finish_generation(message.as_ref(), *stop, exposure);
                }
                self.transcript.extend(message.clone().map(Arc::new));
            }
            Event::GenerationInterrupted {
                partial,
                usage,
                cost,
                error,
                is_cut,
                attempts,
                ..
            } => {
                self.spend(usage, *cost);
                let hint = error.hint.as_deref().map(|hint| format!("; {hint}"));
                let left = if partial.is_some() {
                    Cut::Text
                } else {
                    Cut::Nothing
                };
                // Without an attempt nobody was asked: the request cannot fit and was never made.
                let is_refused = error.kind == ErrorKind::ContextOverflow && *attempts > 0;
                self.with_turn(|turn| {
                    turn.generation = None;
                    turn.calls.clear();
                    turn.refused += u32::from(is_refused);
                    turn.failure = Some(Failure {
                        code: code_of(error.kind),
                        message: format!("{}{}", error.message, hint.unwrap_or_default()),
                        cut: is_cut.then_some(left),
                        is_refused,
                    });
                });
                self.transcript.extend(partial.clone().map(Arc::new));
            }
            _ => {}
        }
    }

    fn spend(&mut self, usage: &Usage, cost: Option<NanoUsd>) {
        self.usage.add(usage);
        self.is_cost_partial |= cost.is_none();
        self.cost = self.cost.plus(cost.unwrap_or_default());
        self.with_turn(|turn| {
            turn.spent.add(usage);
            turn.cost = turn.cost.plus(cost.unwrap_or_default());
        });
    }
}

/// The code of a turn that a generation's failure ends.
fn code_of(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::ContextOverflow => "context.overflow".to_owned(),
        ErrorKind::ContextTruncated => "context.truncated".to_owned(),
        other => format!("model.{}", other.as_str()),
    }
}
