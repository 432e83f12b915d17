//! The embedded nats-server: found or fetched, configured, supervised.
//!
//! Owns: the server's executable, its generated configuration, its process and the data directory it works in. Never: what
//! is stored in its streams; that is the business of the other modules of this crate.

pub mod binary;
pub mod error;

pub use error::Error;
