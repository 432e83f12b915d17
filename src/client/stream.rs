//! Turns live deltas and committed texts into what is written to a terminal: each character once, gaps repaired. Pure.
//!
//! Deltas may be lost, come late or begin again after a crash; the committed text is right. What is written is always a
//! beginning of the text that will be committed, or a fresh line says that the answer began again.

use std::collections::VecDeque;

use teamster_protocol::{
    function::router::{Delta, DeltaKind},
    id::RequestId,
};

/// Frames that are kept for a request which the log has not named yet.
const EARLY_MAX: usize = 1024;

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// More of the text.
    Text(String),
    /// What was written of this answer does not count; it follows again from its beginning.
    Again,
    /// The answer is complete.
    End,
    /// The provider failed before anything was visible and is asked again.
    Retry {
        /// Which attempt comes next.
        attempt: u32,
        /// How long the router waits first, in milliseconds.
        wait_ms: u64,
        /// Why.
        reason: String,
    },
}

/// The text of one answer after another.
#[derive(Debug, Default)]
pub struct Stream {
    current: Option<RequestId>,
    last: Option<RequestId>,
    next: u64,
    has_gap: bool,
    seen: String,
    shown: String,
    early: VecDeque<Delta>,
}

impl Stream {
    /// The log says that a request begins.
    pub fn started(&mut self, request: &RequestId) -> Vec<Piece> {
        self.current = Some(request.clone());
        self.next = 0;
        self.has_gap = false;
        self.seen.clear();
        let mine: Vec<Delta> = self
            .early
            .drain(..)
            .filter(|delta| delta.request == *request)
            .collect();
        mine.iter().filter_map(|delta| self.delta(delta)).collect()
    }

    /// A frame came.
    pub fn delta(&mut self, delta: &Delta) -> Option<Piece> {
        if self
            .current
            .as_ref()
            .is_some_and(|current| is_later_try(current, &delta.request))
        {
            self.current = Some(delta.request.clone());
            self.next = 0;
            self.has_gap = false;
            self.seen.clear();
        }
        if self.current.as_ref() != Some(&delta.request) {
            // The log may be a moment behind; frames of finished requests are dropped when the next one is named.
            if self.last.as_ref() != Some(&delta.request) && self.early.len() < EARLY_MAX {
                self.early.push_back(delta.clone());
            }
            return None;
        }
        if delta.index < self.next {
            return None;
        }
        self.has_gap |= delta.index > self.next;
        self.next = delta.index + 1;
        if self.has_gap {
            return None;
        }
        match &delta.delta {
            DeltaKind::Text { text } => {
                self.seen.push_str(text);
                self.grow()
            }
            DeltaKind::Retry {
                attempt,
                wait_ms,
                reason,
            } => Some(Piece::Retry {
                attempt: *attempt,
                wait_ms: *wait_ms,
                reason: reason.clone(),
            }),
            DeltaKind::Thinking { .. } | DeltaKind::Call { .. } | DeltaKind::Done => None,
        }
    }

    /// What has been seen beyond what is shown. An answer that began again and agrees with what is shown goes on silently;
    /// one that differs is left to its commit.
    fn grow(&mut self) -> Option<Piece> {
        let more = self.seen.strip_prefix(self.shown.as_str())?.to_owned();
        if more.is_empty() {
            return None;
        }
        self.shown.push_str(&more);
        Some(Piece::Text(more))
    }

    /// The log says what a request came to.
    pub fn said(&mut self, request: &RequestId, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        match text.strip_prefix(self.shown.as_str()) {
            Some("") => {}
            Some(more) => pieces.push(Piece::Text(more.to_owned())),
            None => {
                pieces.push(Piece::Again);
                if !text.is_empty() {
                    pieces.push(Piece::Text(text.to_owned()));
                }
            }
        }
        if !text.is_empty() {
            pieces.push(Piece::End);
        }
        self.last = Some(request.clone());
        self.current = None;
        self.seen.clear();
        self.shown.clear();
        pieces
    }

    /// Whether a text has begun and not ended.
    pub fn is_open(&self) -> bool {
        !self.shown.is_empty()
    }
}

/// Whether `other` is a later try of the same generation; it may run before the log says so.
fn is_later_try(current: &RequestId, other: &RequestId) -> bool {
    let split = |id: &RequestId| {
        let (generation, attempt) = id.as_str().rsplit_once('.')?;
        Some((generation.to_owned(), attempt.parse::<u32>().ok()?))
    };
    match (split(current), split(other)) {
        (Some((generation, attempt)), Some((other_generation, other_attempt))) => {
            generation == other_generation && other_attempt > attempt
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
