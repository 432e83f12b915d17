//! Placeholder until the functions compile.
fn main() {}
