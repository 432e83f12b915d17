//! Logs as a harness writes them, by hand: for tests of whoever reads logs.
//!
//! Never: what a harness would decide. Which events a commit holds, and whether they make sense, is the test's business.

use teamster_mesh::Mesh;
use teamster_protocol::{
    Class, Commit, Cursor, Data, Digest, Event, Head, Lane, Phase, SessionId, Trust,
    commit::{Bell, VERSION},
    id::Incarnation,
    policy::{Effect, Judgement, Labels},
};

/// Commit `n` behind bytes of this digest, made `n` seconds after 1970.
///
/// # Panics
/// Never: the owner's name is a constant.
pub fn commit(
    session: &SessionId,
    n: u64,
    prev: Digest,
    phase: Phase,
    events: Vec<Event>,
) -> Commit {
    Commit {
        v: VERSION,
        session: session.clone(),
        n,
        prev,
        at_ms: n * 1000,
        head: Head {
            phase,
            owner: Incarnation::parse("one").expect("an incarnation"),
            bell: Bell {
                lane: Lane::In,
                seq: 1,
            },
            epoch: 1,
            attempt: 0,
            cursor: Cursor::default(),
            deadline: None,
        },
        consumed: Vec::new(),
        events,
        outbox: Vec::new(),
    }
}

/// What the shipped layer `workspace` says of a call that writes to `target`.
pub fn judgement(effect: Effect, target: &str) -> Judgement {
    Judgement {
        effect,
        layer: "workspace".to_owned(),
        rule: "0: ask fs::write".to_owned(),
        labels: Labels {
            class: Class::Write,
            data: Data::Business,
            trust: Trust::Trusted,
        },
        target: Some(target.to_owned()),
        policy: Digest::of("policy"),
        ask_ttl_ms: None,
    }
}

/// The log of one session that is being written.
pub struct Writer {
    /// Who writes; where the broker knows users, the harness.
    pub mesh: Mesh,
    /// The session.
    pub session: SessionId,
    /// Commits so far.
    pub n: u64,
    /// Stream sequence of the last one.
    pub seq: u64,
    /// Digest of its bytes.
    pub prev: Digest,
    /// When commits are made, in milliseconds since 1970; their number in seconds if not said.
    pub at_ms: Option<u64>,
}

impl Writer {
    /// A session that was never written.
    ///
    /// # Panics
    /// When no session can have this name.
    pub fn new(mesh: &Mesh, name: &str) -> Self {
        Self {
            mesh: mesh.clone(),
            session: SessionId::parse(name).expect("a session"),
            n: 0,
            seq: 0,
            prev: Digest::ZERO,
            at_ms: None,
        }
    }

    /// Adds a commit.
    ///
    /// # Panics
    /// When it is not stored.
    pub async fn commit(&mut self, phase: Phase, events: Vec<Event>) {
        let body = self.body(phase, events);
        self.store(body).await;
    }

    /// Adds bytes, whatever they are.
    ///
    /// # Panics
    /// When they are not stored.
    pub async fn store(&mut self, body: Vec<u8>) {
        self.prev = Digest::of(&body);
        let log = self.mesh.log();
        let stored = log.commit(&self.session, body.into(), self.seq).await;
        self.seq = stored.expect("stored");
    }

    /// The bytes of the next commit.
    ///
    /// # Panics
    /// When it cannot be encoded.
    pub fn body(&mut self, phase: Phase, events: Vec<Event>) -> Vec<u8> {
        self.n += 1;
        let mut commit = commit(&self.session, self.n, self.prev, phase, events);
        if let Some(at_ms) = self.at_ms {
            commit.at_ms = at_ms;
        }
        commit.encode().expect("a body")
    }
}
