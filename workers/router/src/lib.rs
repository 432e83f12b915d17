//! Model providers: catalogue, streaming, retries, cost. The only worker that talks to a model.
//!
//! Owns: `router::chat`, `router::complete`, `router::abort`, `router::models::*`; the SSE codec; the projection of a
//! transcript to a provider's wire; the prices. Invariants: a request id is run once at a time and answered the same to
//! everybody; a completion is kept before it is told; nothing is tried again after something was visible; what the provider
//! did not report is an estimate or unknown, never zero; no key is in a log, an error, a bucket or an answer.
//!
//! Never: running a call, deciding what of a history is sent, sending anything to a provider that was not chosen.

pub mod accumulate;
pub mod chunk;
pub mod classify;
pub mod config;
pub mod engine;
pub mod error;
mod flight;
mod functions;
mod halves;
mod misfit;
pub mod price;
pub mod project;
pub mod provider;
pub mod retry;
mod run;
pub mod secret;
pub mod sse;

use std::sync::Arc;

use teamster_mesh::{
    Worker,
    config::{Derived, Live},
};
use teamster_protocol::id::WorkerName;

pub use crate::{config::Config, engine::Engine, error::Error};

/// The router worker. A provider that cannot be used is reported in the log and to whoever asks for it; the others work.
pub fn worker(config: &Config) -> Worker {
    let live = Live::new(config.clone());
    let router = Arc::new(run::Router {
        engine: Derived::new(live.clone(), Engine::new),
        flights: Arc::default(),
    });
    let name = WorkerName::parse("router");
    let functions = functions::all(&router);
    match (name, functions) {
        (Ok(name), Ok(functions)) => functions.into_iter().fold(
            Worker::new(
                name,
                "Talks to model providers: streams answers, retries, counts tokens and money.",
            )
            .config(&live),
            Worker::function,
        ),
        _ => unreachable!("the router's own names are valid"),
    }
}

/// Makes ring the process's TLS provider, once. Whoever builds a TLS client calls it first.
pub fn install_tls() {
    // An error says that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
