//! Test support: a real nats-server, a gated model server, waits that are bounded. Never a normal dependency.
