//! A stored log as a state, or as a damage that only an operator can let a session go on from.
//!
//! A break is a commit that cannot be read or that does not follow from the one before it. Whatever lies behind a break does
//! not count, until a commit accepts the loss of exactly what lies before it. Before a deletion nothing counts, whole or not.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use teamster_protocol::{
    Commit, Digest, Event, Message, MessageId, Principal, SessionId, commit::ReadError,
    event::EndReason, input::TurnOptions, limits, text,
};

use crate::turn::{
    admin::is_tombstone,
    draft::Draft,
    on::close,
    salvage::{Salvage, gaps},
    state::{Origin, State, accepted_loss},
};

/// The code of a turn that ended because its log was damaged.
const CODE: &str = "session.log_damaged";
/// What a model is told.
const NOTICE: &str = "A part of this session's record was lost, and the owner let the session go on without it. Calls that \
                      were made in that part may have taken effect: check before you repeat any of them.";

/// A log that is being read, commit by commit. Can be stored between two of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fold {
    state: State,
    /// Digest of the stored bytes that were taken last.
    before: Digest,
    broken: Option<Broken>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Broken {
    why: String,
    is_newer: bool,
    n_max: u64,
}

/// A log that does not fold to its end, or that is not what it was known to be.
#[derive(Debug, Clone)]
pub struct Damage {
    /// What folds.
    pub state: State,
    /// Digest of the last stored bytes, folded or not; zero if there are none.
    pub before: Digest,
    /// The largest number of a commit that is known to have been, folded or not.
    pub n_max: u64,
    /// What is wrong.
    pub why: String,
    /// Whether a newer build wrote what cannot be read: then nothing is lost.
    pub is_newer: bool,
    /// What is taken over of what does not fold; nothing, unless whoever read the log says so.
    pub salvage: Salvage,
}

impl Fold {
    /// Goes on from a state; for a whole log that is the empty one.
    pub fn new(state: State) -> Self {
        Self {
            before: state.hash,
            state,
            broken: None,
        }
    }

    /// Number of the last commit that counts so far.
    pub fn n(&self) -> u64 {
        self.state.n
    }

    /// Takes the next stored commit. Returns it if it counts.
    pub fn take(&mut self, bytes: &[u8], seq: u64) -> Option<Commit> {
        let hash = Digest::of(bytes);
        let read = Commit::decode(bytes);
        let counted = match &self.broken {
            None => self.follow(read, hash, seq),
            Some(broken) => {
                let n_max = broken.n_max;
                self.mend(read, n_max, hash, seq)
            }
        };
        self.before = hash;
        counted
    }

    /// What the commits that count come to.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What is wrong, while something is.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_ref().map(|broken| broken.why.as_str())
    }

    /// Takes out the messages that have come, and forgets what no later commit needs: for readers that keep them elsewhere.
    pub fn unload(&mut self) -> Vec<Arc<Message>> {
        self.state.masked.clear();
        self.state.stored.clear();
        self.state.approvals.clear();
        self.state.spent.clear();
        self.state.consumed.clear();
        self.state.outbox.clear();
        self.state.asked = TurnOptions::default();
        self.state.options.system_prompt = None;
        std::mem::take(&mut self.state.transcript)
    }

    fn follow(
        &mut self,
        read: Result<Commit, ReadError>,
        hash: Digest,
        seq: u64,
    ) -> Option<Commit> {
        let (why, is_newer, n) = match read {
            Ok(commit) => match self.state.absorb_behind(&commit, hash, seq, self.before) {
                Ok(()) => return Some(commit),
                Err(error) => (error.to_string(), false, commit.n),
            },
            Err(error) => {
                let is_newer = matches!(error, ReadError::Version(_));
                let next = self.state.n + 1;
                (
                    format!("commit {next} cannot be read: {error}"),
                    is_newer,
                    0,
                )
            }
        };
        self.broken = Some(Broken {
            why,
            is_newer,
            n_max: n.max(self.state.n),
        });
        None
    }

    fn mend(
        &mut self,
        read: Result<Commit, ReadError>,
        n_max: u64,
        hash: Digest,
        seq: u64,
    ) -> Option<Commit> {
        let commit = read.ok()?;
        // An acceptance says what counts; behind a deletion nothing before it does.
        let may_mend = matches!(accepted_loss(&commit), Ok(Some(_))) || is_tombstone(&commit);
        if may_mend
            && commit.n > n_max
            && self
                .state
                .absorb_behind(&commit, hash, seq, self.before)
                .is_ok()
        {
            self.broken = None;
            return Some(commit);
        }
        if let Some(broken) = &mut self.broken {
            broken.n_max = broken.n_max.max(commit.n);
        }
        None
    }

    /// The state, if everything that was taken counts.
    pub fn finish(self) -> Result<State, Box<Damage>> {
        let Some(broken) = self.broken else {
            return Ok(self.state);
        };
        Err(Box::new(Damage {
            state: self.state,
            before: self.before,
            n_max: broken.n_max,
            why: broken.why,
            is_newer: broken.is_newer,
            salvage: Salvage::default(),
        }))
    }
}

impl Damage {
    /// The damage of a log that folds, but is not what it was known to be: commit `n` was known.
    pub fn of(state: State, n: u64, why: String) -> Self {
        Self {
            before: state.hash,
            n_max: n.max(state.n),
            state,
            why,
            is_newer: false,
            salvage: Salvage::default(),
        }
    }

    /// The commit by which an operator lets the session go on from what folds. The open turn ends, and the model is told.
    pub fn accept(self, by: &Principal, now_ms: u64) -> Draft {
        let Self {
            mut state,
            before,
            n_max,
            why,
            mut salvage,
            ..
        } = self;
        let accepted = Event::LossAccepted {
            by: by.clone(),
            lost_from: state.n + 1,
            kept: state.hash,
            message: text::cut(&why, limits::FAULT_TEXT_BYTES_MAX),
            turns: salvage.turns,
            spent: salvage.spent.rows().to_vec(),
            unknown: salvage.unknown,
        };
        state.n = n_max.saturating_add(limits::LOSS_NUMBERS_SKIPPED);
        state.hash = before;
        let mut events = vec![accepted];
        // A session whose beginning is lost is there all the same.
        if state.origin.is_none() && (!state.is_deleted() || salvage.origin.is_some()) {
            events.push(created(by, salvage.origin.clone()));
        }
        let reason = EndReason::Failed {
            code: CODE.to_owned(),
            message: "a part of the session's log was lost".to_owned(),
        };
        let mut closing = close(&state, &reason);
        salvage.settle(&mut closing);
        events.extend(closing);
        events.extend(salvage.events());
        let has_said =
            !salvage.messages.is_empty() || !state.transcript.is_empty() || state.base.is_some();
        if has_said || salvage.options != TurnOptions::default() {
            events.push(Event::MessageAdded {
                message: Message::Notice {
                    id: MessageId::of_commit(
                        &state.session,
                        state.drafting(),
                        state.transcript.len(),
                    ),
                    text: NOTICE.to_owned(),
                },
                // What the session was asked for holds on.
                options: salvage.options.clone(),
                appended: false,
            });
        }
        let mut draft = Draft::new(state);
        let _fits = draft.apply(events, now_ms); // an empty draft takes what there is
        draft
    }
}

/// The beginning of a session whose own is lost: as it is known from elsewhere, or as nobody knows it.
fn created(by: &Principal, origin: Option<Origin>) -> Event {
    match origin {
        Some(origin) => Event::SessionCreated {
            by: origin.by,
            title: origin.title,
            workspace: origin.workspace,
            metadata: origin.metadata,
        },
        None => Event::SessionCreated {
            by: by.clone(),
            title: None,
            workspace: None,
            metadata: std::collections::BTreeMap::new(),
        },
    }
}

/// Why a whole stored log does not fold, and which commits are missing in it; `None` where it folds.
pub fn damage_of(session: &SessionId, stored: &[(u64, &[u8])]) -> Option<String> {
    let mut fold = Fold::new(State::new(session.clone()));
    for (seq, bytes) in stored {
        fold.take(bytes, *seq);
        drop(fold.unload());
    }
    let why = fold.broken()?.to_owned();
    let gaps = gaps(session, stored);
    Some(if gaps.is_empty() {
        why
    } else {
        format!("{why}; missing: {}", gaps.join(", "))
    })
}

/// The commits of a whole stored log that count: what lies before a deletion and, where losses were accepted, what was lost are
/// left out. A commit that cannot be read
/// and whose loss nobody accepted is an error, with its place.
pub fn counting(
    session: &SessionId,
    stored: &[(u64, &[u8])],
) -> Result<Vec<(u64, Commit)>, (u64, ReadError)> {
    let stored = behind_deletion(stored);
    if !stored
        .iter()
        .any(|(_, bytes)| holds(bytes, br#""type":"loss_accepted""#))
    {
        let read = |(seq, bytes): &(u64, &[u8])| match Commit::decode(bytes) {
            Ok(commit) => Ok((*seq, commit)),
            Err(error) => Err((*seq, error)),
        };
        return stored.iter().map(read).collect();
    }
    let mut fold = Fold::new(State::new(session.clone()));
    let counted = stored
        .iter()
        .filter_map(|(seq, bytes)| Some((*seq, fold.take(bytes, *seq)?)));
    Ok(counted.collect())
}

/// A stored log from its last deletion on: what lies before one may still be there, and is of another session.
pub fn behind_deletion<'a, 'b>(stored: &'a [(u64, &'b [u8])]) -> &'a [(u64, &'b [u8])] {
    let last = stored.iter().rposition(|(_, bytes)| {
        holds(bytes, br#""type":"session_deleted""#)
            && Commit::decode(bytes).is_ok_and(|commit| is_tombstone(&commit))
    });
    last.and_then(|index| stored.get(index..)).unwrap_or(stored)
}

/// Told from the text, because most commits need not be parsed for it.
fn holds(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark)
}
