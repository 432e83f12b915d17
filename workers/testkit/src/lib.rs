//! Test support: a real nats-server, a gated model server, waits that are bounded. Never a normal dependency.
//!
//! Owns: processes, servers and gates that a test needs around the thing it tests; each ends with its handle. Never: an
//! expectation about the product's behaviour; those stand in the tests.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "in test support a failed step is a failed test, and a task needs no name"
)]

pub mod blocks;
pub mod cluster;
pub mod collector;
pub mod counter;
pub mod fetched;
pub mod frame;
mod guard;
pub mod meshes;
pub mod model;
pub mod nats;
pub mod process;
pub mod proxy;
pub mod secured;
pub mod wait;
pub mod written;

pub use cluster::Cluster;
pub use collector::Collector;
pub use counter::Counter;
pub use meshes::{connect, prepare};
pub use model::ModelServer;
pub use nats::Nats;
pub use process::Process;
pub use proxy::Proxy;
pub use secured::Secured;
