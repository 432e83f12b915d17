//! What telemetry leaves behind in a file, seen from outside. Logs are set up once in a process, so this is one test.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation is how a test fails"
)]

mod lines;
