//! Requests and replies of the functions that cross a worker's border. A function that only models call keeps its types
//! beside its handler.

pub mod approval;
pub mod context;
pub mod engine;
pub mod harness;
pub mod router;
pub mod session;
