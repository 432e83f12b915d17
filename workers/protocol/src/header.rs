//! Headers of requests between workers. The body of a call is the argument bytes alone; everything else is a header.

/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
/// Milliseconds since 1970 after which the callee must not begin.
pub const NOT_AFTER_MS: &str = "Teamster-Not-After";
/// Milliseconds that the caller will wait for the answer.
pub const TIMEOUT_MS: &str = "Teamster-Timeout";
/// On a stored commit: its session, as its subject token. What a log holds without it is no commit.
pub const COMMIT: &str = "Teamster-Commit";
/// The call's id; also its idempotency key.
pub const CALL: &str = "Teamster-Call";
/// The session in whose name the call is made, as its subject token.
pub const SESSION: &str = "Teamster-Session";
/// The session's workspace root, absolute.
pub const WORKSPACE: &str = "Teamster-Workspace";
/// The calling turn's function policy as JSON, for functions that list functions.
pub const FUNCTIONS: &str = "Teamster-Functions";
/// On a reply: `running` for a sign of life, `fault` for a [`crate::Fault`] body, absent for the answer.
pub const STATUS: &str = "Teamster-Status";
/// [`STATUS`] of a sign of life: the callee is still at work.
pub const STATUS_RUNNING: &str = "running";
/// [`STATUS`] of a fault.
pub const STATUS_FAULT: &str = "fault";
/// [`STATUS`] of a worker that is asked about a call and knows of none.
pub const STATUS_UNKNOWN: &str = "unknown";
