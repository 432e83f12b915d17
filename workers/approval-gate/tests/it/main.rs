//! The gate against a real broker.
