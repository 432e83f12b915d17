//! Kills, stops and cuts real processes at chosen points, and checks log and effects afterwards.
//!
//! Faults come from outside alone: signals, a gate in the model server, a gate in the called function, a gate in front of
//! nats-server. A planned fault that does not come about fails the test. What must hold afterwards stands in `verify`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a failed expectation is how a test fails, and nothing of a test is public"
)]

mod admin;
mod broker;
mod cluster;
mod commits;
mod damage;
mod evidence;
mod middle;
mod model;
mod operator;
mod outside;
mod pause;
mod planted;
mod random;
mod siblings;
mod steps;
mod traces;
mod up;
mod verify;
mod world;
