//! The file functions as callers see them: served on a real nats-server.
