//! Teamster: a durable agent harness on a NATS mesh.
//!
//! Owns: the command line, the client that it and other programs use, configuration, the hosting of any set of workers in
//! one process, and the harness worker itself. Invariants: every verb is a client that talks to the mesh like any other
//! program would; one place turns errors into exit codes; standard output carries data and nothing else.
//!
//! A program that embeds it is a client like the command line:
//!
//! ```no_run
//! # async fn example() -> Result<(), teamster::client::Error> {
//! use teamster::client::{Client, Item};
//! use teamster_mesh::Connect;
//! use teamster_protocol::{Event, function::harness::SendRequest};
//!
//! let client = Client::connect(&Connect {
//!     url: "nats://127.0.0.1:4222".to_owned(),
//!     credentials: Some("/path/to/credentials".into()),
//! })
//! .await?;
//! let sent = client
//!     .send(SendRequest {
//!         message: "what is in this directory?".to_owned(),
//!         ..SendRequest::default()
//!     })
//!     .await?;
//! let mut watch = client.watch(&sent.session_id, 0);
//! loop {
//!     if let Item::Commit { commit, .. } = watch.next().await? {
//!         for event in &commit.events {
//!             if let Event::TurnEnded { reason, .. } = event {
//!                 println!("{}", reason.status());
//!                 return Ok(());
//!             }
//!         }
//!     }
//! }
//! # }
//! ```
//!
//! Never: a decision about a turn or a policy (those are made in `core`), a word of the broker's protocol (`mesh` alone
//! knows it).

pub mod cli;
pub mod client;
pub mod config;
pub mod env;
pub mod harness;
pub mod host;
mod witness;
