//! Notices of what happened in sessions, by their sequence in EVENTS: for consumers that were away.
//!
//! At least once: the same notice may stand there twice, and is recognised by its id.

mod hole;

use std::{collections::VecDeque, time::Duration};

use async_nats::{HeaderMap, header::NATS_MESSAGE_ID};
use serde::Deserialize;
use teamster_protocol::{
    SessionId,
    notice::{Notice, NoticeKind},
    subject,
};

use crate::{
    Error,
    connection::Mesh,
    reader::{Read, Reader, Reads, Spec, Start, channel},
    topology::EVENTS,
    wire::{Failure, Get, StoredMessage, Wire},
};

use hole::Removed;
pub use hole::{Hole, Holes};

/// Pause before it is asked again where notices end.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The stream EVENTS, through one worker's connection.
#[derive(Clone)]
pub struct Notices {
    mesh: Mesh,
}

/// Which notices are wanted. Empty means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only this session's.
    pub session: Option<SessionId>,
    /// Only of these kinds.
    pub kinds: Vec<NoticeKind>,
}

impl Wanted {
    /// Whether all notices are wanted.
    pub fn is_all(&self) -> bool {
        self.session.is_none() && self.kinds.is_empty()
    }
}

/// The sequences that EVENTS holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The oldest that is kept; one above `last` if none is.
    pub first: u64,
    /// The newest there ever was; 0 before the first.
    pub last: u64,
}

impl Window {
    /// Whether a reader that has seen everything up to `after` has missed something that is not kept any more, or was ahead of
    /// a stream that began anew.
    pub fn has_missed(self, after: u64) -> bool {
        after > self.last || after.saturating_add(1) < self.first
    }
}

/// What a reader of notices tells.
#[derive(Debug)]
pub enum Told {
    /// A notice.
    Notice {
        /// Its sequence in EVENTS.
        seq: u64,
        /// Its kind.
        kind: NoticeKind,
        /// The notice.
        notice: Box<Notice>,
    },
    /// One that this build cannot read; `seq` is where it stands.
    Unreadable {
        /// Its sequence in EVENTS.
        seq: u64,
        /// Why.
        message: String,
    },
    /// Notices that the server holds and cannot hand out. A reader of single sessions or kinds is told of none: what cannot be
    /// read may be of any.
    Hole(Hole),
    /// What stood at the wanted sequence is not kept any more, or the stream began anew: the reader begins elsewhere.
    Jumped {
        /// The sequence that was wanted.
        wanted: u64,
        /// The sequence at which it begins instead.
        begun: u64,
    },
    /// Everything that was there when the reader began is read.
    CaughtUp,
    /// Nothing can be read at the moment; the reader keeps trying.
    Interrupted(Error),
}

/// A reader of notices.
pub struct Reading {
    reads: Reads<()>,
    reader: Reader,
    wanted: Wanted,
    /// The sequence at which the reader begins, until it is certain that the stream reaches so far.
    unproven: Option<u64>,
    /// Every sequence up to this one was handed out, removed, or told as a hole.
    passed: u64,
    /// The last sequence that there was when the reader began.
    end: u64,
    /// What was passed by and is still to be explained.
    gap: Option<Hole>,
    /// What is told next, behind the gap.
    told: VecDeque<Told>,
    removed: Removed,
    is_headers_only: bool,
    mesh: Mesh,
}

impl Notices {
    pub(crate) fn new(mesh: Mesh) -> Self {
        Self { mesh }
    }

    /// The sequences that are kept now.
    pub async fn window(&self) -> Result<Window, Error> {
        #[derive(Deserialize)]
        struct Info {
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            first_seq: u64,
            last_seq: u64,
        }
        let asked = self
            .mesh
            .wire()
            .api::<Info>(&format!("STREAM.INFO.{EVENTS}"), &serde_json::Value::Null)
            .await;
        let state = asked
            .map_err(|failure| failure.during("asking for the notices"))?
            .state;
        Ok(Window {
            first: state.first_seq.max(1),
            last: state.last_seq,
        })
    }

    /// Reads notices behind sequence `after`, oldest first, and goes on with new ones.
    pub async fn follow(&self, wanted: &Wanted, after: u64) -> Result<Reading, Error> {
        let end = self.window().await?.last;
        let mut reading = Reading::open(&self.mesh, wanted, after, end, false);
        let opened = reading.reader.opened().await;
        opened.map_err(|failure| failure.during("reading notices"))?;
        Ok(reading)
    }

    /// Which of the notices behind sequence `after` up to `upto`, which must have been stored, cannot be read. Reads all of them, without
    /// their bodies.
    pub async fn holes(&self, after: u64, upto: u64) -> Result<Holes, Error> {
        let mut holes = Holes::default();
        if after >= upto {
            return Ok(holes);
        }
        let mut reading = Reading::open(&self.mesh, &Wanted::default(), after, upto, true);
        loop {
            match reading.next().await {
                Some(Told::Hole(hole)) if hole.from <= upto => holes.add(Hole {
                    to: hole.to.min(upto),
                    ..hole
                }),
                Some(Told::Notice { seq, .. } | Told::Unreadable { seq, .. }) if seq < upto => {}
                Some(Told::Jumped { .. }) => {}
                Some(Told::Interrupted(error)) => return Err(error),
                _ => break,
            }
        }
        Ok(holes)
    }

    /// Overwrites and removes the notices of a session that are of commits before `n`, which deleted it, one by one. Answers how
    /// many there were. `None`: the notice of the deletion is not stored yet, so that others may still come before it.
    pub async fn erase_before(&self, session: &SessionId, n: u64) -> Result<Option<u64>, Error> {
        let erased = erase_before(self.mesh.wire(), session, n).await;
        erased.map_err(|failure| failure.during(format!("erasing the notices of {session}")))
    }

    /// Publishes a notice and waits until it is stored. An event that makes none is passed by; the same notice again is dropped by
    /// the broker for a while.
    pub async fn publish(&self, notice: &Notice) -> Result<(), Error> {
        let Some(kind) = NoticeKind::of(&notice.event) else {
            return Ok(());
        };
        let body = serde_json::to_vec(notice).map_err(|error| Error::Malformed {
            what: "a notice".to_owned(),
            source: Box::new(error),
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, notice.id().to_string());
        let subject = subject::notice(kind, &notice.session);
        let stored = self.mesh.wire().store(subject, Some(headers), body.into());
        stored
            .await
            .map(drop)
            .map_err(|failure| failure.during(format!("publishing a notice of {}", notice.session)))
    }
}

/// Where a notice stands in its session's log.
#[derive(Deserialize)]
struct Place {
    n: u64,
}

/// Whether a message is a notice of a commit before `n`. What cannot be read is of none, and goes with the old ones.
fn is_before(message: &StoredMessage, n: u64) -> bool {
    serde_json::from_slice::<Place>(&message.body).map_or(true, |place| place.n < n)
}

/// See [`Notices::erase_before`].
async fn erase_before(wire: &Wire, session: &SessionId, n: u64) -> Result<Option<u64>, Failure> {
    let deletion = subject::notice(NoticeKind::SessionDeleted, session);
    let last = Get {
        last_by_subj: Some(&deletion),
        ..Get::default()
    };
    let told = wire.get(EVENTS, &last).await?;
    if told.is_none_or(|told| is_before(&told, n)) {
        return Ok(None);
    }
    let all = format!("evt.*.{}", session.token());
    let behind = async |seq: u64| {
        let next = Get {
            seq: Some(seq + 1),
            next_by_subj: Some(&all),
            ..Get::default()
        };
        wire.get(EVENTS, &next).await
    };
    let mut erased = 0;
    let mut found = behind(0).await?;
    while let Some(message) = found {
        if !is_before(&message, n) {
            found = behind(message.seq).await?;
            continue;
        }
        let (erasing, next) = tokio::join!(wire.erase(EVENTS, message.seq), behind(message.seq));
        erasing?;
        erased += 1;
        found = next?;
    }
    Ok(Some(erased))
}

/// The subjects of what is wanted.
fn filters(wanted: &Wanted) -> Vec<String> {
    let session = wanted
        .session
        .as_ref()
        .map_or_else(|| "*".to_owned(), SessionId::token);
    if wanted.kinds.is_empty() {
        return vec![format!("evt.*.{session}")];
    }
    let mut kinds = wanted.kinds.clone();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
        .iter()
        .map(|kind| format!("evt.{}.{session}", kind.as_str()))
        .collect()
}

impl Reading {
    fn open(mesh: &Mesh, wanted: &Wanted, after: u64, end: u64, is_headers_only: bool) -> Self {
        let (sink, reads) = channel();
        let spec = Spec {
            stream: EVENTS.to_owned(),
            filters: filters(wanted),
            start: Start::At(after.saturating_add(1)),
            is_restarting: false,
            is_headers_only,
        };
        Self {
            reads,
            reader: Reader::spawn(mesh.wire(), spec, (), sink),
            wanted: wanted.clone(),
            unproven: None,
            passed: after,
            end,
            gap: None,
            told: VecDeque::new(),
            removed: Removed::default(),
            is_headers_only,
            mesh: mesh.clone(),
        }
    }

    /// What comes next; `None` once the connection is closed for good. Cancel-safe.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(jumped) = self.prove().await {
                return Some(jumped);
            }
            if let Some(interrupted) = self.explain().await {
                return Some(interrupted);
            }
            if let Some(told) = self.told.pop_front() {
                return Some(told);
            }
            match self.reads.recv().await?.1 {
                Read::Message(message) => {
                    self.pass(message.seq.saturating_sub(1));
                    self.passed = self.passed.max(message.seq);
                    self.told.push_back(read(&message));
                }
                Read::CaughtUp => {
                    self.pass(self.end);
                    self.told.push_back(Told::CaughtUp);
                }
                Read::Failed(failure) => {
                    return Some(Told::Interrupted(failure.during("reading notices")));
                }
                Read::Began { wanted, begun } => {
                    self.unproven = Some(begun);
                    self.passed = begun.saturating_sub(1);
                    if wanted.max(1) != begun {
                        return Some(Told::Jumped { wanted, begun });
                    }
                }
                Read::Restarted => {}
            }
        }
    }

    /// Everything up to `seq` was passed: what was not handed out is to be explained.
    fn pass(&mut self, seq: u64) {
        if self.wanted.is_all() && self.passed < seq {
            self.gap = Some(Hole {
                from: self.passed + 1,
                to: seq,
            });
        }
        self.passed = self.passed.max(seq);
    }

    /// Finds out what of a gap is not gone but unreadable, and puts it before what is told next. What is told instead where the
    /// server cannot be asked: the gap stays until it can.
    async fn explain(&mut self) -> Option<Told> {
        let gap = self.gap?;
        // What is known to be removed may be all of it.
        if !self.removed.leaves(gap).is_empty() {
            match Removed::ask(self.mesh.wire()).await {
                Ok(Some(removed)) => self.removed = removed,
                Ok(None) => {
                    tracing::warn!(
                        seq = gap.from,
                        "too many notices were removed to tell whether these can be read"
                    );
                    self.gap = None;
                    return None;
                }
                Err(failure) => {
                    tokio::time::sleep(ASK_AGAIN).await;
                    return Some(Told::Interrupted(failure.during("asking for the notices")));
                }
            }
        }
        self.gap = None;
        for hole in self.removed.leaves(gap).into_iter().rev() {
            self.told.push_front(Told::Hole(hole));
        }
        None
    }

    /// Sees to it that the reader does not wait for a place that the stream has yet to reach because it began anew: the broker
    /// would let it wait, as if nothing had been lost.
    async fn prove(&mut self) -> Option<Told> {
        while let Some(wanted) = self.unproven {
            match self.mesh.notices().window().await {
                Ok(window) if window.last.saturating_add(1) < wanted => {
                    let (wanted_all, end) = (self.wanted.clone(), window.last);
                    *self = Self::open(&self.mesh, &wanted_all, end, end, self.is_headers_only);
                    let begun = window.last.saturating_add(1);
                    return Some(Told::Jumped { wanted, begun });
                }
                Ok(_) => self.unproven = None,
                Err(error) => {
                    tracing::debug!(%error, "whether notices go on where they were is asked again");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
        None
    }
}

/// The server stores its answers wherever a request's reply subject points: what is not about what its subject says is no notice.
fn read(message: &StoredMessage) -> Told {
    let seq = message.seq;
    let unreadable = |message: String| Told::Unreadable { seq, message };
    let Some((kind, session)) = subject::parse_notice(&message.subject) else {
        return unreadable(format!("{} is no subject of a notice", message.subject));
    };
    match serde_json::from_slice::<Notice>(&message.body) {
        Ok(notice) if notice.session != session || NoticeKind::of(&notice.event) != Some(kind) => {
            unreadable("it is not about what its subject says".to_owned())
        }
        Ok(notice) => Told::Notice {
            seq,
            kind,
            notice: Box::new(notice),
        },
        Err(error) => unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_a_subject_each() {
        let session = Some(SessionId::parse("a b").expect("valid"));
        let kinds = vec![
            NoticeKind::TurnStarted,
            NoticeKind::MetaChanged,
            NoticeKind::TurnStarted,
        ];
        for (session, kinds, want) in [
            (None, Vec::new(), vec!["evt.*.*"]),
            (session.clone(), Vec::new(), vec!["evt.*.a=20b"]),
            (
                None,
                kinds.clone(),
                vec!["evt.meta-changed.*", "evt.turn-started.*"],
            ),
            (
                session,
                kinds,
                vec!["evt.meta-changed.a=20b", "evt.turn-started.a=20b"],
            ),
        ] {
            assert_eq!(filters(&Wanted { session, kinds }), want);
        }
    }

    #[test]
    fn a_reader_that_was_away_too_long_knows_it() {
        let window = Window { first: 5, last: 9 };
        for (after, want) in [(0, true), (3, true), (4, false), (9, false), (10, true)] {
            assert_eq!(window.has_missed(after), want, "{after}");
        }
        let never = Window { first: 1, last: 0 };
        assert!(!never.has_missed(0));
        let emptied = Window { first: 10, last: 9 };
        assert!(!emptied.has_missed(9) && emptied.has_missed(0));
    }
}
