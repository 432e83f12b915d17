//! Runs what a model asks for inside its session's workspace: files now, commands later.
