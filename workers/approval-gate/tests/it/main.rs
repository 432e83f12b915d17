//! The gate against a real broker. The tests write the log as a harness would.
#![expect(
    clippy::expect_used,
    reason = "a failed expectation is how a test fails"
)]

mod decide;
mod inbox;
mod policy;
mod rig;
