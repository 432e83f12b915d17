//! The functions as callers see them: served on a real nats-server.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "in a test a failed step is a failed test"
)]

mod exec;
mod house;
mod serve;
