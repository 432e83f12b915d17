//! The worker against a real server. The tests write the logs as a harness would.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed expectation is how a test fails"
)]

mod anew;
mod approvals;
mod ask;
mod damage;
mod find;
mod heads;
mod money;
mod notices;
mod rebuild;
mod remains;
mod rig;
mod secured;
mod sweep;
mod values;
