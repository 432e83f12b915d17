//! The context worker against a real broker. The tests write the log as a harness would.
#![expect(
    clippy::expect_used,
    reason = "a failed expectation is how a test fails"
)]

mod assemble;
mod read;
mod rig;
