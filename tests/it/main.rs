//! Scenarios over all workers, and the rules of the house.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a failed expectation is how a test fails, and nothing of a test is public"
)]

mod admin;
mod administer;
mod approval;
mod bounds;
mod budget;
mod chain;
mod cli;
mod context;
mod damage;
mod demo;
mod deploy;
mod exec;
mod hook;
mod house;
mod live;
mod misfit;
mod overflow;
mod own;
mod rot;
mod scene;
mod secured;
mod turn;
mod wire;
