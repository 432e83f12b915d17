//! Who may publish and subscribe to what on the embedded server: data, made from one table of users.
//!
//! A role's rights are the least that its part of the protocol needs. What the lists cannot express is kept out by leaving a
//! right away: the server publishes answers to `JetStream` requests to whatever reply subject the request names, without
//! asking whether the requester may publish there. So a worker that chooses what a stream holds (the router's generations,
//! every worker's registration) gets no right by which the server would send that content on verbatim (`DIRECT.GET`,
//! `CONSUMER.*`); it reads through `STREAM.MSG.GET`, whose answer is a wrapped form that no reader takes for an input. Such
//! answers are stored all the same where a stream listens: readers of logs and snapshots pass by what is not marked as theirs,
//! and the harness takes it out of a log, whose fence counts it.
//!
//! Who may answer requests may publish to whatever reply subject a message names that it receives. So nobody who may answer can
//! send a message to itself: what it may publish to and what it may subscribe to have no subject in common.
//!
//! The same holds for the live configuration: the operator alone writes it and, like every worker, reads it in the wrapped form
//! only. A worker hears that its own section has changed.

use std::{collections::BTreeSet, time::Duration};

use teamster_protocol::{id::WorkerName, input::ControlKind, limits};

/// The user that reads the server's own settings, in an account of its own.
pub const SYSTEM: &str = "system";
/// The user that creates streams, buckets and consumers at start, and does nothing else.
pub const TOPOLOGY: &str = "topology";
/// The user of the person who owns the mesh.
pub const OPERATOR: &str = "operator";
/// Who acts through the operator's credentials: the token of `op.<principal>.…`.
pub const OWNER: &str = "owner";

/// The bucket of the registry, as a stream.
const REGISTRY: &str = "KV_registry";
/// The bucket of the live configuration, as a stream.
const CONFIG: &str = "KV_config";
/// Asks all servers, here the one, for their settings.
pub(crate) const SETTINGS: &str = "$SYS.REQ.SERVER.PING.VARZ";
/// What an inbox begins with; a user's name follows.
const INBOX: &str = "_INBOX";

/// A user of the mesh's account.
struct Role {
    /// Its name, which names its credentials, its inbox and its registration.
    name: &'static str,
    /// The function namespaces that it alone serves.
    namespaces: &'static [&'static str],
    /// Whom it may answer.
    answers: Answers,
    /// What it may do besides serving and registering.
    grant: fn(&mut Permissions),
}

/// Whom a serving user may answer.
#[derive(Clone, Copy)]
enum Answers {
    /// Whoever asked it, for so long: the server opens each request's reply subject to it, whatever it is. Nothing for a user
    /// that could ask itself.
    Asked(Duration),
    /// All inboxes. For the harness, which asks replicas of itself and so itself: with the right to answer who asked it could
    /// open any subject, `op.owner.approval.resolve` and decisions among them. What this costs: it may write into inboxes of
    /// requests that were made to others, if it guesses their tokens, which are random and which it never sees. That is less
    /// than what it closes, and little for the one that writes the log in any case.
    Inboxes,
}

/// Every user of the mesh's account. A new worker is one line more.
const ROLES: [Role; 8] = [
    worker("harness", &["harness", "engine"], Answers::Inboxes, harness),
    worker("router", &["router"], Answers::Inboxes, router),
    worker(
        "approval-gate",
        &["approval", "approval-gate"],
        Answers::Asked(SHORT),
        approval_gate,
    ),
    worker(
        "sandbox",
        &["sandbox", "fs"],
        Answers::Asked(limits::CALL_TIMEOUT_MAX),
        nothing,
    ),
    worker("session", &["session"], Answers::Asked(SHORT), session),
    worker("context", &["context"], Answers::Asked(SHORT), context),
    worker(OPERATOR, &[], NONE, operator),
    worker(TOPOLOGY, &[], NONE, topology),
];

/// How long workers take whose functions only look and write down.
const SHORT: Duration = Duration::from_mins(5);
/// For users that serve nothing.
const NONE: Answers = Answers::Asked(Duration::ZERO);

const fn worker(
    name: &'static str,
    namespaces: &'static [&'static str],
    answers: Answers,
    grant: fn(&mut Permissions),
) -> Role {
    Role {
        name,
        namespaces,
        answers,
        grant,
    }
}

/// What one user may do: subjects, `*` and `>` as in NATS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects that it may publish to.
    pub publish: BTreeSet<String>,
    /// Subjects that it may subscribe to.
    pub subscribe: BTreeSet<String>,
    /// How many answers it may send to a request that it was sent, and for how long; `None`: none.
    pub answers: Option<(u64, Duration)>,
}

/// The names of all users of the mesh's account.
pub fn users() -> impl Iterator<Item = &'static str> {
    ROLES.iter().map(|role| role.name)
}

/// Workers of the house that are no users yet. No worker from outside takes their names.
const RESERVED: [&str; 7] = [
    SYSTEM,
    "mcp",
    "gateway",
    "telegram",
    "cron",
    "documents",
    "teamster",
];

/// Whether a name is one of the house's: a user, a namespace, or kept for a coming worker.
pub fn is_of_the_house(name: &str) -> bool {
    RESERVED.contains(&name) || owner_of(name).is_some() || users().any(|user| user == name)
}

/// The worker that alone serves a function namespace.
pub fn owner_of(namespace: &str) -> Option<&'static str> {
    ROLES
        .iter()
        .find(|role| role.namespaces.contains(&namespace))
        .map(|role| role.name)
}

/// What a user of the mesh's account may do; `None` for a name that is no user.
pub fn of(user: &str) -> Option<Permissions> {
    let role = ROLES.iter().find(|role| role.name == user)?;
    let mut rights = Permissions::default();
    rights.subscribe([format!("{INBOX}.{user}.>")]);
    if !role.namespaces.is_empty() {
        rights.serve(role.name, role.namespaces, role.answers);
        rights.publish([format!("$KV.registry.hooks.{user}")]);
        rights.look(CONFIG);
        rights.subscribe([format!("$KV.config.{user}")]);
    }
    (role.grant)(&mut rights);
    Some(rights)
}

/// What a worker from outside may do: serve its namespaces, register itself, be discovered, and answer who asks it. It binds no
/// hook, calls nobody and reads nothing.
pub fn of_outside<'a>(
    name: &WorkerName,
    namespaces: impl IntoIterator<Item = &'a str>,
) -> Permissions {
    let mut rights = Permissions::default();
    rights.subscribe([format!("{INBOX}.{name}.>")]);
    let namespaces: Vec<&str> = namespaces.into_iter().collect();
    let answers = Answers::Asked(limits::CALL_TIMEOUT_MAX);
    rights.serve(name.as_str(), &namespaces, answers);
    rights
}

/// What the user of the system account may do: ask the server for its settings.
pub(crate) fn system() -> Permissions {
    let mut rights = Permissions::default();
    rights.subscribe([format!("{INBOX}.{SYSTEM}.>")]);
    rights.publish([SETTINGS]);
    rights
}

fn nothing(_: &mut Permissions) {}

/// Alone: commits, snapshots, timers, results, kicks, and the acknowledging of doorbells.
fn harness(rights: &mut Permissions) {
    rights.publish([
        "log.*.*",
        "snap.*.*",
        "turn.in.*.*",
        "turn.kick.*.*",
        "turn.tmr.*.*.*",
        "blob.*",
    ]);
    rights.look("BLOBS");
    rights.control([ControlKind::Stop, ControlKind::Result, ControlKind::Timer]);
    rights.publish(["own.>", "fn.>", "call.>", "gen.run.>"]);
    rights.subscribe(["own.>"]);
    for stream in ["TURNS", "CONTROL"] {
        rights.look(stream);
        rights.remove(stream);
        rights.publish([
            format!("$JS.API.CONSUMER.CREATE.{stream}.bell"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.bell.>"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.bell"),
            format!("$JS.API.CONSUMER.INFO.{stream}.bell"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.bell"),
            format!("$JS.ACK.{stream}.bell.>"),
        ]);
    }
    // What one server holds alone is read there: see `direct`.
    rights
        .publish(["TURNS", "CONTROL", "SNAP"].map(|stream| format!("$JS.API.DIRECT.GET.{stream}")));
    rights.read_logs();
    // Messages in a log that are no commits, which the fence counts, and the commits before a deletion, one by one. The broker
    // does not look at what a purge asks for: with that right a wrong filter would empty a whole stream.
    for k in 0..limits::LOG_STREAMS {
        rights.publish([format!("$JS.API.STREAM.MSG.DELETE.LOG_{k}")]);
    }
    rights.read("SNAP");
    rights.look("KV_heads");
    rights.look("GENERATIONS");
    rights.remove("GENERATIONS");
    rights.read(REGISTRY);
}

/// Keeps completions and publishes deltas. Routers ask each other who runs a request, under one user: it answers into inboxes, so
/// that asking opens nothing. It writes what GENERATIONS holds, so it reads it in the wrapped form only.
fn router(rights: &mut Permissions) {
    rights.publish(["gen.*.*.*", "gen.run.*.*.*", "live.*"]);
    rights.subscribe(["gen.run.*.*.*"]);
    rights.look("GENERATIONS");
}

/// Alone: decisions. Folds open requests from the log.
fn approval_gate(rights: &mut Permissions) {
    rights.control([ControlKind::Decide]);
    rights.read_logs();
    rights.read(REGISTRY);
}

/// Alone: administration and notices. Projects the log; keeps the second copy of heads; stores what forks begin with, and removes
/// values that no session names and notices of deleted sessions.
fn session(rights: &mut Permissions) {
    rights.control([ControlKind::Admin]);
    rights.publish(["evt.*.*", "blob.*", "$KV.heads.*"]);
    rights.look("BLOBS");
    rights.look("EVENTS");
    // One by one, like the harness from the logs.
    rights.publish(["BLOBS", "EVENTS"].map(|stream| format!("$JS.API.STREAM.MSG.DELETE.{stream}")));
    rights.look("KV_heads");
    rights.read_logs();
    // Which commits notices were made of. It could read them without; it chooses nothing that a log holds.
    for k in 0..limits::LOG_STREAMS {
        rights.publish([format!("$JS.ACK.LOG_{k}.events.>")]);
    }
}

/// Reads logs and stored values, asks the router about models. Writes nothing.
fn context(rights: &mut Permissions) {
    rights.publish(["fn.router.models.>"]);
    rights.look("BLOBS");
    rights.read_logs();
}

/// A person: calls, sends, stops, reads; never writes a log or a decision past the workers.
fn operator(rights: &mut Permissions) {
    rights.publish([format!("op.{OWNER}.>")]);
    rights.publish(["fn.>", "call.>", "gen.run.>", "turn.in.*.*", "$SRV.>"]);
    rights.control([ControlKind::Stop]);
    rights.subscribe(["own.beat.>", "live.>"]);
    rights.publish([
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.CONSUMER.NAMES.*",
        "$JS.API.CONSUMER.LIST.*",
    ]);
    for stream in ["TURNS", "CONTROL"] {
        rights.look(stream);
        rights.publish([format!("$JS.API.CONSUMER.INFO.{stream}.bell")]);
    }
    rights.read_logs();
    rights.look("BLOBS");
    rights.look("KV_heads");
    for stream in ["SNAP", "LIVE", "EVENTS", REGISTRY] {
        rights.read(stream);
    }
    rights.publish(["$KV.registry.hooks.*"]);
    rights.look(CONFIG);
    rights.publish(["$KV.config.*"]);
}

/// Creates and checks what the others use.
fn topology(rights: &mut Permissions) {
    // What may be lost is emptied where a part of it is damaged: see `topology::heal`.
    for stream in ["SNAP", "KV_heads", REGISTRY] {
        rights.read(stream);
        rights.publish([format!("$JS.API.STREAM.PURGE.{stream}")]);
    }
    rights.publish([
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.CREATE.*",
        "$JS.API.STREAM.UPDATE.*",
    ]);
    for stream in ["TURNS", "CONTROL"] {
        rights.publish([
            format!("$JS.API.CONSUMER.CREATE.{stream}.bell"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.bell.>"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.bell"),
            format!("$JS.API.CONSUMER.INFO.{stream}.bell"),
        ]);
    }
    for k in 0..limits::LOG_STREAMS {
        rights.publish([
            format!("$JS.API.CONSUMER.CREATE.LOG_{k}.events"),
            format!("$JS.API.CONSUMER.CREATE.LOG_{k}.events.>"),
            format!("$JS.API.CONSUMER.INFO.LOG_{k}.events"),
        ]);
    }
}

impl Permissions {
    fn publish<S: Into<String>>(&mut self, subjects: impl IntoIterator<Item = S>) {
        self.publish.extend(subjects.into_iter().map(Into::into));
    }

    fn subscribe<S: Into<String>>(&mut self, subjects: impl IntoIterator<Item = S>) {
        self.subscribe.extend(subjects.into_iter().map(Into::into));
    }

    /// Serving: the own namespaces, the discovery of services, the own registration.
    fn serve(&mut self, name: &str, namespaces: &[&str], answers: Answers) {
        for namespace in namespaces {
            self.subscribe([
                format!("fn.{namespace}.>"),
                format!("op.*.{namespace}.>"),
                format!("call.{namespace}.*"),
            ]);
        }
        for verb in ["PING", "INFO", "STATS"] {
            self.subscribe([
                format!("$SRV.{verb}"),
                format!("$SRV.{verb}.{name}"),
                format!("$SRV.{verb}.{name}.*"),
            ]);
        }
        self.publish([
            format!("$KV.registry.worker.{name}.*"),
            format!("$JS.API.STREAM.INFO.{REGISTRY}"),
        ]);
        let Answers::Asked(within) = answers else {
            self.publish([format!("{INBOX}.>")]);
            return;
        };
        // A sign of life each second, and room for the answer and for repetitions of it.
        // The server remembers each request for that long (about 150 bytes), which is why it is no longer than needed.
        let lives = within.as_secs() / limits::CALL_PROGRESS_EVERY.as_secs().max(1);
        self.answers = Some((lives + 64, within + Duration::from_mins(1)));
    }

    /// Storing control inputs of these kinds.
    fn control(&mut self, kinds: impl IntoIterator<Item = ControlKind>) {
        self.publish(
            kinds
                .into_iter()
                .map(|kind| format!("turn.ctl.*.*.{}", kind.as_str())),
        );
    }

    /// Reading single messages of a stream.
    fn look(&mut self, stream: &str) {
        self.publish([
            format!("$JS.API.STREAM.INFO.{stream}"),
            format!("$JS.API.STREAM.MSG.GET.{stream}"),
        ]);
    }

    /// Reading a stream, also through consumers that live as long as their reader.
    fn read(&mut self, stream: &str) {
        self.look(stream);
        self.publish([
            format!("$JS.API.CONSUMER.CREATE.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.>"),
            format!("$JS.API.CONSUMER.INFO.{stream}.*"),
            format!("$JS.API.CONSUMER.DELETE.{stream}.*"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.*"),
            format!("$JS.FC.{stream}.>"),
        ]);
    }

    /// Reading all sessions' logs, many commits a request.
    fn read_logs(&mut self) {
        for k in 0..limits::LOG_STREAMS {
            let stream = format!("LOG_{k}");
            self.read(&stream);
            self.publish([
                format!("$JS.API.DIRECT.GET.{stream}"),
                format!("$JS.API.DIRECT.GET.{stream}.>"),
            ]);
        }
    }

    /// Removing messages that are dealt with.
    fn remove(&mut self, stream: &str) {
        self.publish([
            format!("$JS.API.STREAM.MSG.DELETE.{stream}"),
            format!("$JS.API.STREAM.PURGE.{stream}"),
        ]);
    }

    /// Whether publishing to a literal subject is among the rights.
    pub fn may_publish(&self, subject: &str) -> bool {
        self.publish.iter().any(|pattern| matches(pattern, subject))
    }

    /// Whether subscribing to a subject or pattern is among the rights: all that it matches must be allowed.
    pub fn may_subscribe(&self, subject: &str) -> bool {
        self.subscribe
            .iter()
            .any(|pattern| matches(pattern, subject))
    }
}

/// Whether a pattern covers a subject, which may be a narrower pattern.
fn matches(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    let mut pattern = pattern.split('.');
    loop {
        match (pattern.next(), subject.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(wanted), Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;
