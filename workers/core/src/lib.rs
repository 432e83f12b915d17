//! Teamster's decisions, pure.
//!
//! Owns: the turn machine (`turn`), policy (`policy`), whether a call's arguments fit its function's schema (`schema`), what of a
//! history a model sees (`context`), and how text of unknown origin is shown (`display`). Invariants: a decision depends on its arguments alone; the same code answers `explain` and
//! enforces.
//!
//! Never: I/O, a clock, randomness, an async runtime. Time and ids come in as arguments.

#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test ends by panicking"
    )
)]

pub mod context;
pub mod display;
pub mod policy;
pub mod schema;
pub mod turn;
