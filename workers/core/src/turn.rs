//! The turn machine: pure.
//!
//! [`State`] is a fold over events. [`next`](next::next) says what must happen next, [`settle`] does what
//! needs nobody, [`on`](fn@on) turns the outcome of everything else into events, and [`Draft`] gathers
//! events into commits. Crash recovery is no feature of its own: it is the same `next`, asked by another process.
//!
//! Never: I/O, a clock, randomness. Equal commits give equal states, on every machine and for every reader.

pub mod admin;
pub mod call;
pub mod draft;
pub mod fold;
pub mod fork;
pub mod history;
pub mod kept;
pub mod load;
pub mod next;
pub mod on;
pub mod running;
pub mod salvage;
pub mod spent;
pub mod state;

#[cfg(test)]
mod tests;

pub use draft::Draft;
pub use fold::Fold;
pub use next::{Action, Barrier, Env, Settings, next};
pub use on::{Decided, HookNote, Incoming, Input, Outcome, Sent, on, settle};
pub use state::State;
