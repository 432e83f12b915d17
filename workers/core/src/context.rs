//! What of a history a model may see: estimated, planned, applied. Pure.
//!
//! Owns: the estimate of tokens, the plan that fits a history into a window, the form of what a model reads in place of a
//! long or an old result. Invariants: a plan depends on the log and the window alone; a plan that is made always fits; a
//! call and its result stay together, since results are replaced and nothing is removed; what users, notices and models
//! said is sent word for word.
//!
//! Never: I/O, a summary, a change of the transcript. What is left out of a request stays in the log.

mod apply;
mod cut;
mod estimate;
mod overflow;
mod plan;
mod window;

#[cfg(test)]
mod tests;

pub use apply::{History, apply};
pub use cut::{Cut, fit, fits};
pub use estimate::{Calibration, is_truncated, of_bytes, of_message, of_text};
pub use overflow::Overflow;
pub use plan::{Ask, plan};
pub use window::{Certainty, Window};
