//! What the projection keeps of one session beside its rows: the fold without what rows hold, and what lists show. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use teamster_core::turn::{Fold, State, admin::is_tombstone};
use teamster_mesh::head::Head;
use teamster_protocol::{
    Commit, Event, Message, Phase, SessionId, TurnId, function::session::SessionInfo,
};

use crate::message::{Split, preview, split};

/// The status of a session whose log does not fold.
pub(crate) const DAMAGED: &str = "damaged";
/// The status of a session whose turn runs, as far as its log says.
pub(crate) const RUNNING: &str = "running";
/// The status of a session that is not there: it was deleted, or never made. It is in no list.
pub(crate) const DELETED: &str = "deleted";

/// One session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Account {
    fold: Fold,
    commits: u64,
    messages: u64,
    preview: Option<String>,
    model: Option<String>,
    forked_from: Option<(SessionId, u64)>,
    /// When the newest commit was made that can be read, whether or not it counts.
    #[serde(default)]
    seen_ms: u64,
    /// Why the log does not end where it seems to, if it does not.
    #[serde(default)]
    doubt: Option<String>,
    /// The turn and the model of the part behind a break, as far as they can be read.
    #[serde(default)]
    behind: (Option<TurnId>, Option<String>),
}

/// What a stored commit means.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It counts.
    Counts(Box<Counted>),
    /// It does not follow from what was read of this session, which was whole until now. What it says was spent and asked is told
    /// all the same, if it can be read.
    Breaks(Option<Box<Counted>>),
    /// It lies behind a break; the same.
    Lost(Option<Box<Counted>>),
}

/// A commit that counts.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) commit: Commit,
    /// The number of the first message that it adds.
    pub(crate) first: u64,
    /// The messages that it adds.
    pub(crate) messages: Vec<Split>,
    /// The model that turns ran with before it.
    pub(crate) asked_model: Option<String>,
    /// The turn that ran before it.
    pub(crate) turn: Option<teamster_protocol::TurnId>,
    /// Whether it deletes the session: nothing of what came before it is left.
    pub(crate) is_deletion: bool,
}

impl Account {
    /// A session of which nothing was read.
    pub(crate) fn new(session: SessionId) -> Self {
        Self::begin(Fold::new(State::new(session)))
    }

    fn begin(fold: Fold) -> Self {
        Self {
            fold,
            commits: 0,
            messages: 0,
            preview: None,
            model: None,
            forked_from: None,
            seen_ms: 0,
            doubt: None,
            behind: (None, None),
        }
    }

    /// Notes that the log does not end where it seems to, or that it does. Says whether that is new.
    pub(crate) fn doubt(&mut self, why: Option<&String>) -> bool {
        let is_new = self.doubt.as_ref() != why;
        self.doubt = why.cloned();
        is_new
    }

    /// Whether the log ends before where it is known to have stood, though nobody has given up what is missing.
    pub(crate) fn is_behind(&self, head: &Head) -> bool {
        let state = self.fold.state();
        let is_given_up = state
            .loss
            .is_some_and(|loss| head.n >= loss.from && head.at_ms <= loss.at_ms);
        let is_erased = state
            .deleted
            .is_some_and(|tombstone| head.n < tombstone.n && head.seq < tombstone.seq);
        state.n < head.n && !is_given_up && !is_erased
    }

    /// Takes the next stored commit of the session's log; `forked` are the messages of the transcript that it names, if it
    /// begins a fork.
    pub(crate) fn take(&mut self, bytes: &[u8], seq: u64, forked: Option<Vec<Message>>) -> Taken {
        let was_broken = self.fold.broken().is_some();
        let asked_model = self.fold.state().options.model.clone();
        let turn = self.fold.state().turn.as_ref().map(|turn| turn.id.clone());
        // What comes now is behind what was in doubt: it follows, or is a break.
        self.doubt = None;
        let Some(commit) = self.fold.take(bytes, seq) else {
            let lost = Commit::decode(bytes).ok();
            let lost = lost.map(|commit| Box::new(self.lose(commit, (turn, asked_model))));
            return if was_broken {
                Taken::Lost(lost)
            } else {
                Taken::Breaks(lost)
            };
        };
        self.behind = (None, None);
        let mut added = self.fold.unload();
        let is_deletion = is_tombstone(&commit);
        if is_deletion {
            *self = Self::begin(self.fold.clone());
            added.clear();
        }
        if !is_deletion {
            self.commits += 1;
        }
        self.note(&commit);
        let messages: Vec<Split> = forked
            .into_iter()
            .flatten()
            .chain(added.into_iter().map(Arc::unwrap_or_clone))
            .map(split)
            .collect();
        let first = self.messages;
        self.messages += messages.len() as u64;
        if let Some(words) = messages.iter().rev().find_map(|one| preview(&one.text)) {
            self.preview = Some(words);
        }
        Taken::Counts(Box::new(Counted {
            commit,
            first,
            messages,
            asked_model,
            turn,
            is_deletion,
        }))
    }

    /// Takes a commit that does not count; `last` are turn and model where the log broke.
    fn lose(&mut self, commit: Commit, last: (Option<TurnId>, Option<String>)) -> Counted {
        self.seen_ms = self.seen_ms.max(commit.at_ms);
        let before = (
            self.behind.0.clone().or(last.0),
            self.behind.1.clone().or(last.1),
        );
        for event in &commit.events {
            if let Event::TurnStarted { turn, options, .. } = event {
                self.behind.0 = Some(turn.clone());
                let model = options.as_ref().and_then(|options| options.model.clone());
                self.behind.1 = model.or(self.behind.1.take());
            }
        }
        Counted {
            commit,
            first: 0,
            messages: Vec::new(),
            asked_model: before.1,
            turn: before.0,
            is_deletion: false,
        }
    }

    fn note(&mut self, commit: &Commit) {
        for event in &commit.events {
            match event {
                Event::GenerationFinished { model, .. } => self.model = Some(model.clone()),
                Event::SessionForked { fork, .. } => {
                    self.forked_from = Some((fork.source.clone(), fork.at));
                }
                _ => {}
            }
        }
    }

    /// The session in a word.
    pub(crate) fn status(&self) -> &'static str {
        if self.fold.broken().is_some() || self.doubt.is_some() {
            return DAMAGED;
        }
        let state = self.fold.state();
        // What was asked of a session that is not there is in its log all the same.
        if !state.exists() {
            return DELETED;
        }
        match state.head.as_ref().map(|head| head.phase) {
            Some(Phase::Active) => RUNNING,
            Some(Phase::Parked) => "awaiting_approval",
            Some(Phase::Deleted) => DELETED,
            Some(Phase::Idle) | None => "idle",
        }
    }

    /// Where the session's log stands; `None` while that is not certain.
    pub(crate) fn head(&self) -> Option<(SessionId, Head)> {
        let state = self.fold.state();
        let head = Head {
            n: state.n,
            seq: state.seq,
            hash: state.hash,
            at_ms: state.at_ms,
        };
        (self.fold.broken().is_none() && self.doubt.is_none() && state.n > 0)
            .then(|| (state.session.clone(), head))
    }

    /// The session in short.
    pub(crate) fn info(&self) -> SessionInfo {
        let state = self.fold.state();
        let origin = state.origin.clone();
        let created_at_ms = origin.as_ref().map_or(0, |origin| origin.at_ms);
        let (title, workspace, metadata) = origin.map_or_else(Default::default, |origin| {
            (origin.title, origin.workspace, origin.metadata)
        });
        SessionInfo {
            session_id: state.session.clone(),
            status: self.status().to_owned(),
            owner: state
                .head
                .as_ref()
                .filter(|_| self.status() == RUNNING)
                .map(|head| head.owner.clone()),
            title,
            workspace,
            metadata,
            forked_from: self.forked_from.clone(),
            created_at_ms,
            updated_at_ms: state.at_ms.max(self.seen_ms),
            commits: self.commits,
            turns: state.turns,
            messages: self.messages,
            last: state.last.as_ref().map(|ended| ended.reason.clone()),
            preview: self.preview.clone(),
            model: self.model.clone(),
            approvals: state.held().count() as u64,
            usage: state.usage,
            cost: state.cost,
            cost_is_partial: state.is_cost_partial,
        }
    }
}
