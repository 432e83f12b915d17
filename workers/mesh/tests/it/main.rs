//! The mesh against a real nats-server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "in a test a failed step is a failed test, and a task needs no name"
)]

mod bell;
mod broker;
mod call;
mod commit;
mod config;
mod connect;
mod erase;
mod fixture;
mod lane;
mod near;
mod noise;
mod notice;
mod outside;
mod permission;
mod registry;
mod rot;
mod secured;
mod serve;
mod store;
mod timer;
mod topology;
mod user;
mod within;
