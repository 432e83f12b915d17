//! Teamster: a durable agent harness on a NATS mesh.
//!
//! Owns: the command line, the client that it and other programs use, configuration, the hosting of any set of workers in
//! one process, and the harness worker itself. Invariants: every verb is a client that talks to the mesh like any other
//! program would; one place turns errors into exit codes; standard output carries data and nothing else.
//!
//! Never: a decision about a turn or a policy (those are made in `core`), a word of the broker's protocol (`mesh` alone
//! knows it).

pub mod cli;
pub mod client;
pub mod config;
pub mod env;
pub mod harness;
pub mod host;
