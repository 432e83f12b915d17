//! Readers of commits: one ordered reader a log stream, merged.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use teamster_protocol::{SessionId, limits, subject};
use tokio::time::timeout;

use super::{From, Log, Stored, noise};
use crate::{
    Error, Mesh,
    reader::{Read, Reader, Reads, Spec, Start, channel},
    topology::log_stream,
};

/// A reader that is to come to an end gives up when nothing has come for so long. Longer than the server needs to come back.
const STALLED: Duration = Duration::from_secs(30);

/// A reader of many sessions: one ordered consumer a log stream.
pub struct Follow {
    reads: Reads<u8>,
    /// The streams that are still behind what was there when the reader began.
    behind: BTreeSet<u8>,
    is_live: bool,
    /// How long nothing may come while the end is waited for.
    patience: Duration,
    /// Whether the reader began with the last message of each session, which may be no commit.
    is_of_last: bool,
    /// Sessions whose last message was none: their last commit is read apart. At most as many as there are sessions.
    hidden: VecDeque<SessionId>,
    _readers: Vec<Reader>,
    mesh: Mesh,
}

impl Follow {
    pub(super) async fn all(mesh: &Mesh, from: From, is_live: bool) -> Result<Self, Error> {
        let start = match from {
            From::Start => Start::All,
            From::LastOfEach => Start::LastOfEach,
            From::New => Start::New,
        };
        let streams = (0..limits::LOG_STREAMS)
            .map(|k| (k, crate::topology::log_stream_name(k), Vec::new(), start));
        let mut follow = Self::open(mesh, streams, is_live).await?;
        follow.is_of_last = from == From::LastOfEach;
        Ok(follow)
    }

    pub(super) async fn session(
        mesh: &Mesh,
        session: &SessionId,
        after: u64,
    ) -> Result<Self, Error> {
        let stream = log_stream(session);
        let filters = vec![subject::log(session)];
        Self::open(
            mesh,
            [(0, stream, filters, Start::At(after.saturating_add(1)))],
            true,
        )
        .await
    }

    async fn open(
        mesh: &Mesh,
        streams: impl IntoIterator<Item = (u8, String, Vec<String>, Start)>,
        is_live: bool,
    ) -> Result<Self, Error> {
        let (sink, reads) = channel();
        let mut behind = BTreeSet::new();
        let mut readers = Vec::new();
        for (tag, stream, filters, start) in streams {
            behind.insert(tag);
            let spec = Spec {
                stream,
                filters,
                start,
                is_restarting: false,
                is_headers_only: false,
            };
            readers.push(Reader::spawn(mesh.wire(), spec, tag, sink.clone()));
        }
        for reader in &mut readers {
            let opened = reader.opened().await;
            opened.map_err(|failure| failure.during("beginning to read the logs"))?;
        }
        Ok(Self {
            reads,
            behind,
            is_live,
            patience: STALLED,
            is_of_last: false,
            hidden: VecDeque::new(),
            _readers: readers,
            mesh: mesh.clone(),
        })
    }

    /// The next commit of any session, in order within a session; `None` once `caught_up` was asked for and reached. An
    /// error says that a stream cannot be read now; the reader goes on by itself. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<(SessionId, Stored), Error>> {
        loop {
            if let Some(session) = self.hidden.front() {
                let tail = Log::new(self.mesh.clone()).tail(session).await;
                // Taken only now: until here this may be cancelled.
                let session = self.hidden.pop_front()?;
                match tail {
                    Ok(Some(tail)) => return Some(Ok((session, tail))),
                    Ok(None) => continue,
                    Err(error) => {
                        self.hidden.push_back(session);
                        return Some(Err(error));
                    }
                }
            }
            if !self.is_live && self.behind.is_empty() {
                return None;
            }
            let Ok(read) = timeout(self.patience(), self.reads.recv()).await else {
                let streams: Vec<String> = self.behind.iter().map(u8::to_string).collect();
                return Some(Err(Error::Timeout {
                    action: format!(
                        "reading log stream {} to its end: the server is silent, though there is more;",
                        streams.join(", ")
                    ),
                }));
            };
            match read? {
                (tag, Read::Message(message)) => {
                    // Markers of removed subjects are no commits.
                    if message.body.is_empty() {
                        continue;
                    }
                    let Some(session) = subject::parse_log(&message.subject) else {
                        tracing::error!(subject = %message.subject, "a log holds a message of no session");
                        continue;
                    };
                    if noise::is_commit(Some(&message.headers), &session) {
                        return Some(Ok((session, Stored::from_message(message))));
                    }
                    noise::report(
                        self.mesh.wire(),
                        &session,
                        &log_stream(&session),
                        message.seq,
                    );
                    if self.is_of_last && self.behind.contains(&tag) {
                        self.hidden.push_back(session);
                    }
                }
                (tag, Read::CaughtUp) => {
                    self.behind.remove(&tag);
                }
                (_, Read::Restarted | Read::Began { .. }) => {}
                (tag, Read::Failed(failure)) => {
                    return Some(Err(failure.during(format!("reading log stream {tag}"))));
                }
            }
        }
    }

    /// How long nothing may come: for ever, unless the end is waited for.
    fn patience(&self) -> Duration {
        if self.is_live {
            Duration::MAX
        } else {
            self.patience
        }
    }

    /// Gives up after another time than usual during which nothing comes, where the reader is to come to an end.
    #[must_use]
    pub fn give_up_after(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether everything that was there when the reader began has been returned by [`Follow::next`].
    pub fn is_caught_up(&self) -> bool {
        self.behind.is_empty()
    }
}
