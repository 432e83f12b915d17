//! The test support itself, against real processes.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a failed step is a failed test"
)]

mod broker;
mod model;
mod nats;
mod process;
mod proxy;
