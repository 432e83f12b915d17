//! The router against servers that speak recorded dialects byte by byte, and on a real mesh.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "in a test a failed step is a failed test"
)]

mod dialect;
mod mesh;
mod retry;
mod stream;
mod support;
mod tool;
