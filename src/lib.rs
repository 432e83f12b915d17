//! Teamster.
