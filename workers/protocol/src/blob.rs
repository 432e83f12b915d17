//! References to values that are too large for a commit: stored by their digest before the commit that names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{digest::Digest, event::Event};

/// A stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// SHA-256 of its bytes: its name.
    pub sha256: Digest,
    /// Its length, in bytes; at most `BLOB_BYTES_MAX`.
    pub bytes: u64,
}

impl BlobRef {
    /// The reference of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            sha256: Digest::of(bytes),
            bytes: bytes.len() as u64,
        }
    }

    /// The values that an event names: what a session needs for as long as it is there.
    pub fn named_by(event: &Event) -> Vec<Self> {
        match event {
            Event::CallFinished {
                whole: Some(whole), ..
            } => vec![*whole],
            Event::SessionForked { fork, .. } => std::iter::once(fork.transcript)
                .chain(fork.stored.values().copied())
                .collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallId, Principal, SessionId, input::Fork, message::ResultKind};

    /// Whoever copies or keeps what a session needs must not forget the results that a fork takes over.
    #[test]
    fn all_values_of_an_event_are_named() {
        let [transcript, one, two] = [b"a", b"b", b"c"].map(|bytes| BlobRef::of(bytes));
        let call = |id: &str| CallId::parse(id).expect("valid");
        let forked = Event::SessionForked {
            by: Principal::parse("owner").expect("valid"),
            fork: Box::new(Fork {
                source: SessionId::parse("s").expect("valid"),
                at: 1,
                hash: Digest::ZERO,
                transcript,
                messages: 0,
                options: crate::input::TurnOptions::default(),
                masked: Vec::new(),
                stored: [(call("call_1"), one), (call("call_2"), two)].into(),
                session: crate::input::SessionOptions::default(),
            }),
        };
        assert_eq!(BlobRef::named_by(&forked), [transcript, one, two]);
        let finished = |whole| Event::CallFinished {
            call: call("call_1"),
            outcome: ResultKind::Ok,
            text: String::new(),
            whole,
            duration_ms: 0,
        };
        assert_eq!(BlobRef::named_by(&finished(Some(one))), [one]);
        assert_eq!(BlobRef::named_by(&finished(None)), []);
    }
}
