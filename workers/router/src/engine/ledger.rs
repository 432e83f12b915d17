//! What a generation has cost so far.
//!
//! Owns: the sum over attempts, the failed ones included. What a provider did not report is estimated from bytes and says
//! so; without a price the money stays unknown. Never: a price of its own.

use teamster_protocol::{
    function::router::{Completion, CompletionError, Part, Price},
    message::StopReason,
    usage::{NanoUsd, Usage},
};

use crate::{price, project::Body, provider::Progress};

/// Bytes that an unknown count of tokens is taken for: less than a token has in most texts, so that what nobody counted is charged
/// with more than it was rather than less.
const BYTES_PER_TOKEN: usize = 3;

/// The sum over attempts.
pub(super) struct Ledger {
    pub(super) model: String,
    attempts: u32,
    usage: Usage,
    cost: Option<NanoUsd>,
}

impl Ledger {
    pub(super) fn new(model: String) -> Self {
        Self {
            model,
            attempts: 0,
            usage: Usage::default(),
            cost: None,
        }
    }

    /// Enters an attempt: what the provider reported, else an estimate of what it processed.
    pub(super) fn enter(&mut self, body: &Body, progress: &Progress, price: Option<&Price>) {
        if !progress.is_sent {
            return;
        }
        self.attempts += 1;
        let usage = match progress.accumulator.usage() {
            Some(usage) => usage,
            None if progress.is_refused => return,
            None => Usage {
                input: tokens(body.json.len()),
                output: tokens(progress.accumulator.bytes()),
                estimated: true,
                ..Usage::default()
            },
        };
        self.usage.add(&usage);
        if let Some(price) = price {
            self.cost = Some(
                self.cost
                    .unwrap_or_default()
                    .plus(price::cost(price, &usage)),
            );
        }
    }

    pub(super) fn completion(
        self,
        stop: StopReason,
        parts: Vec<Part>,
        error: Option<CompletionError>,
    ) -> Completion {
        Completion {
            parts,
            stop,
            error,
            usage: self.usage,
            cost: self.cost,
            model: self.model,
            attempts: self.attempts,
        }
    }
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}
