//! What Teamster's workers say to each other.
//!
//! Owns: ids, subjects, messages, events, commits, inputs, contracts, hook payloads, faults, limits, and the request and
//! reply types that cross a worker's border. Invariants: everything here is plain data with pure functions; every encoder
//! has its inverse, and both are tested as a pair.
//!
//! Never: I/O, a clock, randomness, an async runtime, a decision. Time and ids come in as arguments.

pub mod arguments;
pub mod blob;
pub mod commit;
pub mod contract;
pub mod digest;
pub mod event;
pub mod fault;
pub mod form;
pub mod function;
pub mod header;
pub mod hook;
pub mod id;
pub mod input;
pub mod limits;
pub mod message;
pub mod notice;
pub mod policy;
pub mod registry;
pub mod subject;
pub mod text;
pub mod trace;
pub mod usage;
pub mod wire_name;

pub use arguments::Arguments;
pub use blob::BlobRef;
pub use commit::{Commit, Cursor, Head, Lane, Phase};
pub use contract::{Class, Contract, Data, Trust, Visibility};
pub use digest::Digest;
pub use event::Event;
pub use fault::{Fault, FaultClass};
pub use id::{ApprovalId, CallId, FunctionId, MessageId, Principal, RequestId, SessionId, TurnId};
pub use message::Message;
