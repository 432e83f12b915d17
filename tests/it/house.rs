//! The rules of the house, as tests. Each name says the rule; each failure says the place. Rules that a tool checks
//! (formatting, lints, licences, bans) are left to the tool.

mod command;
mod coverage;
mod dependency;
mod fault_code;
mod link;
mod log_field;
mod manifest;
mod source;
pub mod tree;
