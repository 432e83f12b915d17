//! What a model gets to see.
