//! The sessions' logs: the truth, and the fence.

mod batch;
mod commit;
mod erase;
mod follow;
mod last;
mod noise;
mod scan;
mod survey;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use teamster_protocol::{Digest, SessionId, limits, subject};
use tokio::time::timeout;

use crate::{
    Error,
    connection::Mesh,
    permission,
    topology::{self, log_stream},
    wire::{Failure, Get, StoredMessage},
};

pub use follow::Follow;
pub(crate) use noise::{Reported, is_commit};
pub use scan::{End, Scan, Scanned};
pub use survey::Survey;

/// How long the last commit is looked for behind messages that are none.
const TAIL_PATIENCE: Duration = Duration::from_secs(20);

/// A stored commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its stream sequence.
    pub seq: u64,
    /// The stored bytes.
    pub body: Bytes,
}

/// Why a commit was not stored.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Another owner committed: let the session go. `tail` is the session's last sequence.
    #[error("another owner has committed (tail {tail})")]
    Fenced {
        /// The session's last sequence.
        tail: u64,
    },
    /// The log is behind what its owner knew: the broker went back in time. An alarm.
    #[error("the log went back to sequence {tail}")]
    WentBack {
        /// The session's last sequence.
        tail: u64,
    },
    /// The server holds the end of the log and cannot read it: nothing may be stored behind what nobody knows. An alarm.
    #[error("the end of the log cannot be read")]
    Unreadable,
    /// The broker could not be reached in time; whether the commit is stored is unknown.
    #[error("the commit could not be confirmed")]
    Unknown(#[source] Error),
}

/// Where a reader of many sessions begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// At the first commit that is kept.
    Start,
    /// At the last commit of each session.
    LastOfEach,
    /// At what comes next.
    New,
}

/// The logs of all sessions, through one worker's connection.
#[derive(Clone)]
pub struct Log {
    mesh: Mesh,
}

impl Log {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// Stores a commit if the session's last sequence is still `expected` (0: the session has none). Retries by itself
    /// where nothing can have been stored or where the log shows whether it was; returns the commit's sequence.
    pub async fn commit(
        &self,
        session: &SessionId,
        body: Bytes,
        expected: u64,
    ) -> Result<u64, CommitError> {
        let place = commit::Place {
            fence: expected,
            after: expected,
            is_end_unreadable: false,
        };
        commit::commit(self.mesh.wire(), session, body, place).await
    }

    /// Stores a commit behind everything that a survey read, also where the log ends with messages that the server cannot read.
    /// Refused if the log has moved since.
    pub async fn commit_behind(
        &self,
        session: &SessionId,
        body: Bytes,
        survey: &Survey,
    ) -> Result<u64, CommitError> {
        let place = commit::Place {
            // A server that cannot read the last message of a subject takes it for one without messages.
            fence: if survey.is_end_unreadable {
                0
            } else {
                survey.last
            },
            after: survey.last,
            is_end_unreadable: survey.is_end_unreadable,
        };
        commit::commit(self.mesh.wire(), session, body, place).await
    }

    /// The session's last commit, read at the stream's leader. Messages behind it that are no commits are passed by, and taken
    /// out by a worker that may do so. `None` means that the server holds no message of this log; where it holds some and cannot
    /// read the last, that is [`Error::Unreadable`], with the place.
    pub async fn tail(&self, session: &SessionId) -> Result<Option<Stored>, Error> {
        let tail = timeout(TAIL_PATIENCE, self.tail_behind_noise(session)).await;
        match tail.unwrap_or_else(|_| Err(Failure::Unknown("the log is full of noise".to_owned())))
        {
            // Boxed: it is rare, and who reads a tail carries no room for it.
            Err(Failure::Unreadable { .. }) => {
                Err(Box::pin(self.survey(session)).await?.error(session))
            }
            tail => tail
                .map_err(|failure| failure.during(format!("reading the last commit of {session}"))),
        }
    }

    /// A session's whole log as far as the server can read it, and how much it cannot.
    pub async fn survey(&self, session: &SessionId) -> Result<Survey, Error> {
        survey::survey(self.mesh.wire(), session)
            .await
            .map_err(|failure| failure.during(format!("reading the log of {session}")))
    }

    /// What the session's log holds at a sequence; `None` if that is no commit of it, is not there, or cannot be read.
    pub async fn at(&self, session: &SessionId, seq: u64) -> Result<Option<Stored>, Error> {
        let get = Get {
            seq: Some(seq),
            ..Get::default()
        };
        let found = self.mesh.wire().get(&log_stream(session), &get).await;
        let found = found.map_err(|failure| {
            failure.during(format!("reading sequence {seq} of the log of {session}"))
        })?;
        let is_own = |message: &StoredMessage| {
            message.subject == subject::log(session)
                && noise::is_commit(Some(&message.headers), session)
        };
        Ok(found.filter(is_own).map(Stored::from_message))
    }

    /// Whether the server's counts of the log stream that holds a session agree. Where they do not, nothing that it says of the logs
    /// in it can be relied on, until it has been started again.
    pub async fn is_counted(&self, session: &SessionId) -> Result<bool, Error> {
        topology::agree(self.mesh.wire(), &log_stream(session))
            .await
            .map_err(|failure| failure.during(format!("counting the stream of {session}")))
    }

    /// The sessions of whose logs the server holds anything, readable or not; `sessions_max` of a log stream or some more at most.
    pub async fn sessions(&self, sessions_max: usize) -> Result<BTreeSet<SessionId>, Error> {
        let mut sessions = BTreeSet::new();
        for k in 0..limits::LOG_STREAMS {
            let stream = crate::topology::log_stream_name(k);
            let listed = self
                .mesh
                .wire()
                .subjects(&stream, "log.>", sessions_max)
                .await
                .map_err(|failure| failure.during(format!("listing the logs in {stream}")))?;
            sessions.extend(listed.keys().filter_map(|name| subject::parse_log(name)));
        }
        Ok(sessions)
    }

    async fn tail_behind_noise(&self, session: &SessionId) -> Result<Option<Stored>, Failure> {
        let (wire, stream, subject) =
            (self.mesh.wire(), log_stream(session), subject::log(session));
        if may_take_out(wire.worker.as_str(), &stream) {
            let last = noise::clean(wire, session, &stream, &subject).await?;
            return Ok(last.map(Stored::from_message));
        }
        match last::last(wire, &stream, &subject).await? {
            Some(last) if !noise::is_commit(Some(&last.headers), session) => {
                noise::report(wire, session, &stream, last.seq);
                batch::last_before(wire, session, last.seq).await
            }
            last => Ok(last.map(Stored::from_message)),
        }
    }

    /// The session's commits after sequence `after`, oldest first, up to and including sequence `upto`. Complete, or an
    /// error.
    pub async fn read(
        &self,
        session: &SessionId,
        after: u64,
        upto: u64,
    ) -> Result<Vec<Stored>, Error> {
        batch::read(self.mesh.wire(), session, after, upto).await
    }

    /// Erases what a session's log holds before sequence `seq`, oldest first, and says how many messages that were. Their bytes
    /// are overwritten. Message by message: who may do this has no right to empty a log at once. An error where the log has no
    /// message `seq`.
    pub async fn erase_before(&self, session: &SessionId, seq: u64) -> Result<u64, Error> {
        erase::before(self.mesh.wire(), session, seq)
            .await
            .map_err(|failure| failure.during(format!("erasing the log of {session}")))
    }

    /// Reads all sessions' commits. With `then_live` the reader goes on with new commits, else it ends when it has reached
    /// what was there when it began. Nothing that is stored after the return is missed.
    pub async fn follow(&self, from: From, then_live: bool) -> Result<Follow, Error> {
        Follow::all(&self.mesh, from, then_live).await
    }

    /// Reads everything that the log streams hold, each behind the sequence that is given for it (0: from its beginning), and
    /// goes on with what comes. For a reader that keeps how far it is.
    pub async fn scan(&self, after: &[u64; limits::LOG_STREAMS as usize]) -> Result<Scan, Error> {
        Scan::open(&self.mesh, after).await
    }

    /// Where each log stream ends now, read at its leader.
    pub async fn ends(&self) -> Result<[End; limits::LOG_STREAMS as usize], Error> {
        scan::ends(&self.mesh).await
    }

    /// Where the log stream that holds a session ends now, and which it is.
    pub async fn end_of(&self, session: &SessionId) -> Result<(u8, End), Error> {
        let stream = scan::stream_of(session);
        Ok((stream, scan::end(&self.mesh, stream).await?))
    }

    /// The digest of what a log stream holds at a sequence, and whether it holds anything behind it.
    pub async fn look_at(&self, stream: u8, seq: u64) -> Result<(Option<Digest>, bool), Error> {
        scan::look_at(&self.mesh, stream, seq).await
    }

    /// Reads one session's commits after sequence `after`, and goes on with new ones.
    pub async fn follow_session(&self, session: &SessionId, after: u64) -> Result<Follow, Error> {
        Follow::session(&self.mesh, session, after).await
    }
}

/// Whether a worker's rights allow it to take messages out of a log stream.
fn may_take_out(worker: &str, stream: &str) -> bool {
    permission::of(worker)
        .is_some_and(|rights| rights.may_publish(&format!("$JS.API.STREAM.MSG.DELETE.{stream}")))
}

impl Stored {
    fn from_message(message: StoredMessage) -> Self {
        Self {
            seq: message.seq,
            body: message.body,
        }
    }
}
