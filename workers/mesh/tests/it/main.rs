//! The mesh against a real nats-server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test a failed step is a failed test"
)]

mod broker;
mod permission;
mod user;
mod within;
