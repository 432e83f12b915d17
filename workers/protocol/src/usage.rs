//! Tokens, money and budgets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens of one generation in disjoint classes: their sum is what was processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Input tokens that no cache answered.
    pub input: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write: u64,
    /// Output tokens that are not reasoning.
    pub output: u64,
    /// Reasoning tokens.
    pub reasoning: u64,
    /// Whether the figures are an estimate because the provider reported none.
    pub estimated: bool,
}

impl Usage {
    /// All tokens.
    pub fn total(&self) -> u64 {
        [
            self.input,
            self.cache_read,
            self.cache_write,
            self.output,
            self.reasoning,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// Takes away what was added before.
    pub fn subtract(&mut self, other: &Self) {
        self.input = self.input.saturating_sub(other.input);
        self.cache_read = self.cache_read.saturating_sub(other.cache_read);
        self.cache_write = self.cache_write.saturating_sub(other.cache_write);
        self.output = self.output.saturating_sub(other.output);
        self.reasoning = self.reasoning.saturating_sub(other.reasoning);
    }

    /// Adds another generation's tokens.
    pub fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.estimated |= other.estimated;
    }
}

/// Money in billionths of a US dollar, so that a token's price is a whole number.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct NanoUsd(pub u64);

impl NanoUsd {
    /// As dollars, for people and JSON output.
    #[expect(
        clippy::cast_precision_loss,
        reason = "for display: 2^53 billionths are nine million dollars"
    )]
    pub fn as_usd(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Adds, saturating.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// What the generations of one model came to within a while: what is kept of them when their session is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// The beginning of the quarter of an hour in which they ended, in milliseconds since 1970. Where rows had to be added
    /// together, that of the first.
    pub at_ms: u64,
    /// `provider/model`.
    pub model: String,
    /// Generations, interrupted ones included.
    pub generations: u64,
    /// Requests that reached a provider.
    pub attempts: u64,
    /// Tokens.
    pub usage: Usage,
    /// Money that is known.
    pub cost: NanoUsd,
    /// Generations by models without a known price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
}

impl Spent {
    /// Adds what others came to; time and model stay.
    pub fn add(&mut self, other: &Self) {
        self.generations = self.generations.saturating_add(other.generations);
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.usage.add(&other.usage);
        self.cost = self.cost.plus(other.cost);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }

    /// Takes away what was added before; time and model stay.
    pub fn subtract(&mut self, other: &Self) {
        self.generations = self.generations.saturating_sub(other.generations);
        self.attempts = self.attempts.saturating_sub(other.attempts);
        self.usage.subtract(&other.usage);
        self.cost = NanoUsd(self.cost.0.saturating_sub(other.cost.0));
        self.unpriced = self.unpriced.saturating_sub(other.unpriced);
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Bounds of one turn. Each is checked before every generation and every call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Generations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Tokens of all classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// Calls that the model proposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Wall-clock time since the turn began, in milliseconds. Time spent waiting for a person does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

impl Budget {
    /// Whether nothing is bounded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These bounds where they say something, else those of `base`.
    pub fn or(self, base: &Self) -> Self {
        Self {
            steps: self.steps.or(base.steps),
            tokens: self.tokens.or(base.tokens),
            cost: self.cost.or(base.cost),
            calls: self.calls.or(base.calls),
            wall_ms: self.wall_ms.or(base.wall_ms),
        }
    }
}

/// Which bound of a budget was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// Generations.
    Steps,
    /// Tokens.
    Tokens,
    /// Money.
    Cost,
    /// Calls.
    Calls,
    /// Wall-clock time.
    Wall,
}

impl BudgetKind {
    /// The word used in reasons and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::Calls => "calls",
            Self::Wall => "wall",
        }
    }
}
