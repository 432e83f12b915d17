//! The log, projected for questions.
