//! Puts the chunks of one attempt together. Pure.
//!
//! Owns: what the model has said so far, which pieces belong to which call, and what the attempt comes to when it ends for
//! whatever reason. Invariants: a call that was cut never comes out as one to run; what was said is bounded.
//!
//! Never: I/O, retries, prices.

use teamster_protocol::{
    function::router::{DeltaKind, Part},
    limits,
    message::StopReason,
    usage::Usage,
};

use crate::{
    chunk::{CallPiece, Chunk, Finish, InBand},
    halves::Joiner,
};

/// Bytes that a call counts for besides its name and arguments, so that empty calls are bounded too.
const CALL_BYTES: usize = 64;

/// What one attempt has brought so far.
#[derive(Debug, Default)]
pub struct Accumulator {
    parts: Vec<Piece>,
    bytes: usize,
    is_full: bool,
    is_refusal: bool,
    is_done: bool,
    usage: Option<Usage>,
    finish: Option<Finish>,
    error: Option<InBand>,
    misfit: Option<String>,
    stray: Option<String>,
    halves: Halves,
}

/// First halves of characters that wait for their others, one a kind of text.
#[derive(Debug, Default)]
struct Halves {
    text: Joiner,
    thinking: Joiner,
    arguments: Joiner,
}

impl Halves {
    fn join(&mut self, chunk: &mut Chunk) {
        let is_marked = chunk.has_halves;
        self.text.join(&mut chunk.text, is_marked);
        self.thinking.join(&mut chunk.thinking, is_marked);
        for piece in &mut chunk.calls {
            self.arguments.join(&mut piece.arguments, is_marked);
        }
    }
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Thinking(String),
    Call(Call),
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
}

/// How the stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With a terminal signal.
    Stop(StopReason),
    /// The provider paused the answer; it wants to be asked again.
    Paused,
    /// The provider reported an error.
    Failed(InBand),
    /// It cannot be read: the field and what was found there.
    Malformed(String),
    /// Without a terminal signal.
    Cut,
}

impl Accumulator {
    /// Takes a chunk; returns what became visible by it.
    pub fn push(&mut self, mut chunk: Chunk) -> Vec<DeltaKind> {
        let mut deltas = Vec::new();
        self.halves.join(&mut chunk);
        if let Some(usage) = chunk.usage.filter(|usage| usage.total() > 0) {
            self.usage = Some(usage);
        }
        if let Some(error) = chunk.error {
            self.error.get_or_insert(error);
        }
        // Behind the end of the answer nothing of it can be lost.
        if let Some(misfit) = chunk.misfit
            && self.finish.is_none()
        {
            self.misfit.get_or_insert(misfit);
            return deltas;
        }
        self.is_refusal |= chunk.is_refusal;
        if let Some(thinking) = self.fitting(chunk.thinking) {
            match self.parts.last_mut() {
                Some(Piece::Thinking(text)) => text.push_str(&thinking),
                _ => self.parts.push(Piece::Thinking(thinking.clone())),
            }
            deltas.push(DeltaKind::Thinking { text: thinking });
        }
        if let Some(more) = self.fitting(chunk.text) {
            match self.parts.last_mut() {
                Some(Piece::Text(text)) => text.push_str(&more),
                _ => self.parts.push(Piece::Text(more.clone())),
            }
            deltas.push(DeltaKind::Text { text: more });
        }
        for piece in chunk.calls {
            deltas.extend(self.push_call(piece));
        }
        if chunk.finish.is_some() {
            self.finish = chunk.finish;
        }
        deltas
    }

    /// Notes an event that is none of the wire. Some servers send such ones beside an answer; they count where there is none.
    pub fn stray(&mut self, event: String) {
        self.stray.get_or_insert(event);
    }

    /// Notes the `[DONE]` of the stream.
    pub fn done(&mut self) {
        self.is_done = true;
    }

    /// Whether nothing more needs to be read: an error or what cannot be read came, the bound is met, or the stream said that
    /// it is done.
    pub fn is_over(&self) -> bool {
        self.is_done || self.is_full || self.error.is_some() || self.misfit.is_some()
    }

    /// Whether the model has stopped; only usage may still come.
    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Whether anything was visible.
    pub fn is_visible(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The tokens that the provider reported.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Bytes of what the model said.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How the attempt ended, if the stream ends now.
    pub fn ending(&self) -> Ending {
        if let Some(error) = &self.error {
            return Ending::Failed(error.clone());
        }
        if let Some(misfit) = &self.misfit {
            return Ending::Malformed(misfit.clone());
        }
        match (self.stop(), &self.stray) {
            (Ending::Stop(StopReason::End), Some(stray)) if self.parts.is_empty() => {
                Ending::Malformed(stray.clone())
            }
            (ending, _) => ending,
        }
    }

    /// How it ended by what the provider said of the end.
    fn stop(&self) -> Ending {
        if self.is_full {
            return Ending::Stop(StopReason::Length);
        }
        let has_calls = self.parts.iter().any(|part| matches!(part, Piece::Call(_)));
        let said = if has_calls {
            StopReason::Call
        } else {
            StopReason::End
        };
        match self.finish {
            Some(Finish::Error) => Ending::Failed(InBand {
                message: "the provider ended the answer with an error and gave no reason"
                    .to_owned(),
                ..InBand::default()
            }),
            Some(Finish::Refused) => Ending::Stop(StopReason::Refused),
            Some(_) if self.is_refusal => Ending::Stop(StopReason::Refused),
            None if self.is_refusal && self.is_done => Ending::Stop(StopReason::Refused),
            Some(Finish::Length) => Ending::Stop(StopReason::Length),
            Some(Finish::Pause) => Ending::Paused,
            Some(Finish::End | Finish::Call) => Ending::Stop(said),
            // An unknown word or `[DONE]` alone ends the answer; a call that is not whole was cut.
            Some(Finish::Unknown) => self.ending_of_whole_calls(said),
            None if self.is_done => self.ending_of_whole_calls(said),
            None => Ending::Cut,
        }
    }

    /// What was said, for an attempt that stopped with `stop`. Calls come out only where they may run or, for
    /// [`StopReason::Length`], where the model must be told that the last one was cut.
    pub fn into_parts(self, stop: StopReason) -> Vec<Part> {
        let with_calls = matches!(
            stop,
            StopReason::Call | StopReason::End | StopReason::Length
        );
        self.parts
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Text(text) => Some(Part::Text { text }),
                Piece::Thinking(text) => Some(Part::Thinking {
                    text,
                    signature: None,
                }),
                Piece::Call(Call {
                    name, arguments, ..
                }) => with_calls.then_some(Part::Call { name, arguments }),
            })
            .collect()
    }

    fn ending_of_whole_calls(&self, said: StopReason) -> Ending {
        let is_whole = self.parts.iter().all(|part| match part {
            Piece::Call(call) => call.arguments.is_empty() || is_object(&call.arguments),
            Piece::Text(_) | Piece::Thinking(_) => true,
        });
        if is_whole {
            Ending::Stop(said)
        } else {
            Ending::Cut
        }
    }

    /// The part of `text` that still fits; `None` if nothing is left of it.
    fn fitting(&mut self, text: String) -> Option<String> {
        let room = limits::COMPLETION_BYTES_MAX - self.bytes;
        let text = if text.len() > room {
            self.is_full = true;
            teamster_protocol::text::head(&text, room).to_owned()
        } else {
            text
        };
        self.bytes += text.len();
        (!text.is_empty()).then_some(text)
    }

    fn push_call(&mut self, piece: CallPiece) -> Option<DeltaKind> {
        let place = self.place_of(&piece);
        let is_empty = piece.id.is_none() && piece.name.is_none() && piece.arguments.is_empty();
        if place.is_none() && (is_empty || self.bytes + CALL_BYTES > limits::COMPLETION_BYTES_MAX) {
            self.is_full |= !is_empty;
            return None;
        }
        let name = piece.name.and_then(|name| self.fitting(name));
        let arguments = self.fitting(piece.arguments).unwrap_or_default();
        let place = place.unwrap_or_else(|| {
            self.bytes = (self.bytes + CALL_BYTES).min(limits::COMPLETION_BYTES_MAX);
            self.parts.push(Piece::Call(Call {
                index: piece.index,
                ..Call::default()
            }));
            self.parts.len() - 1
        });
        let Some(Piece::Call(call)) = self.parts.get_mut(place) else {
            return None;
        };
        call.id = call.id.take().or(piece.id);
        // Some servers send an empty object first and the arguments afterwards.
        if call.arguments.trim() == "{}" && arguments.trim_start().starts_with('{') {
            call.arguments.clear();
        }
        call.arguments.push_str(&arguments);
        // A server that repeats the name in each piece must not lengthen it.
        let name = name.filter(|_| call.name.is_empty())?;
        call.name.clone_from(&name);
        Some(DeltaKind::Call { name })
    }

    /// The open call that a piece continues; `None`: it opens a new one.
    fn place_of(&self, piece: &CallPiece) -> Option<usize> {
        let mut calls =
            self.parts
                .iter()
                .enumerate()
                .rev()
                .filter_map(|(place, part)| match part {
                    Piece::Call(call) => Some((place, call)),
                    Piece::Text(_) | Piece::Thinking(_) => None,
                });
        let (place, call) = match (piece.index, &piece.id) {
            (Some(index), _) => calls.find(|(_, call)| call.index == Some(index))?,
            (None, Some(id)) => calls.find(|(_, call)| call.id.as_ref() == Some(id))?,
            (None, None) => calls.next()?,
        };
        let is_other = matches!((&piece.id, &call.id), (Some(new), Some(old)) if new != old);
        // Two objects glued together are never one call: a named piece after whole arguments begins another.
        let is_next = piece.name.is_some()
            && !piece.arguments.trim().is_empty()
            && is_object(&call.arguments);
        (!is_other && !is_next).then_some(place)
    }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok()
}

#[cfg(test)]
mod tests;
