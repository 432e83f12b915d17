//! Judges each call before it runs, holds what a person must decide, and takes the decision.
