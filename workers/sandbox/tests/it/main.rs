//! The functions as callers see them: served on a real nats-server.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "in a test a failed step is a failed test, and nothing of it is public"
)]

mod escape;
mod exec;
mod house;
mod serve;
