//! The only crate that knows async-nats.
//!
//! Owns: the connection of a worker, serving and calling functions, the log and its fence, the two lanes and their
//! doorbells, snapshots, finished generations, live deltas, the registry, the live configuration, the ensuring of streams and buckets, and the
//! supervised nats-server with its credentials and permissions. Invariants: subjects come from `protocol::subject` alone;
//! every wait has a deadline; a reply that did not come is *unknown*, never *no*.
//!
//! Never: a decision about a turn, a policy or a model. Those are made in `core` and executed by workers.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "in a test a failed step is a failed test"
    )
)]

pub mod bell;
pub mod blob;
pub mod broker;
mod call;
pub mod config;
pub mod connection;
pub mod credential;
mod denial;
mod dial;
mod direct;
pub mod error;
pub mod feed;
pub mod function;
pub mod generation;
mod guard;
pub mod head;
pub mod lane;
pub mod live;
pub mod log;
mod mux;
pub mod near;
pub mod notice;
mod pause;
pub mod permission;
mod pull;
mod reader;
pub mod registry;
mod reply;
mod rfc3339;
pub mod serve;
pub mod snap;
pub mod topology;
mod trace;
mod wire;

pub use connection::{Connect, Mesh};
pub use error::Error;
pub use function::{Ctx, Function, Worker};
