//! How much of a model's window a request may take.

use teamster_protocol::limits;

/// How it is known how large a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// The configuration or the table of models says so.
    Known,
    /// Nobody says; a small one is assumed.
    Assumed,
    /// Nothing is said or assumed: it is larger than anything.
    Open,
}

/// A model's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Tokens that fit into it, request and answer together.
    pub tokens: u64,
    /// Tokens that are kept free for the answer.
    pub output: u64,
    /// How that is known.
    pub certainty: Certainty,
}

impl Window {
    /// A window that is known, for an answer of `output` tokens. At most a quarter is kept free: an answer that may be longer
    /// than that must not leave a small model without a question.
    pub fn known(tokens: u64, output: u64) -> Self {
        Self {
            tokens,
            output: output.min(tokens / 4),
            certainty: Certainty::Known,
        }
    }

    /// A window that is assumed because nobody knows it.
    pub fn assumed(tokens: u64, output: u64) -> Self {
        Self {
            tokens,
            output: output.min(tokens / 8),
            certainty: Certainty::Assumed,
        }
    }

    /// A window about which nothing is said: refusals alone tell how small it is.
    pub fn open() -> Self {
        Self {
            tokens: u64::from(u32::MAX),
            output: 0,
            certainty: Certainty::Open,
        }
    }

    /// Tokens that a request may take: what is left beside the answer and a reserve for what an estimate misses.
    pub fn usable(self) -> u64 {
        let reserve = limits::CONTEXT_RESERVE_TOKENS_MAX.min(self.tokens / 10);
        self.tokens.saturating_sub(self.output + reserve)
    }

    /// Bytes at which each single result is cut: about a quarter of what is usable.
    pub fn result_bytes_max(self) -> usize {
        usize::try_from(self.usable())
            .unwrap_or(usize::MAX)
            .clamp(limits::RESULT_BYTES_MIN, limits::RESULT_BYTES_MAX)
    }
}
