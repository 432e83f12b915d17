//! Folded sessions that a worker keeps in memory, so that the next look at one reads only what is new. Bounded in number and in bytes;
//! who was not asked for longest goes first.

use std::collections::HashMap;

use teamster_protocol::{SessionId, limits};

use super::{State, history};

/// States by session: at most [`limits::FOLDED_SESSIONS_MAX`] with [`limits::FOLDED_BYTES_MAX`] of transcripts.
#[derive(Debug, Default)]
pub struct Kept {
    clock: u64,
    bytes: usize,
    states: HashMap<SessionId, Entry>,
}

#[derive(Debug)]
struct Entry {
    used: u64,
    bytes: usize,
    state: State,
}

impl Kept {
    /// Takes a session's state out.
    pub fn take(&mut self, session: &SessionId) -> Option<State> {
        let entry = self.states.remove(session)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry.state)
    }

    /// A session's state, which stays and does not count as used.
    pub fn peek(&self, session: &SessionId) -> Option<&State> {
        self.states.get(session).map(|entry| &entry.state)
    }

    /// Keeps a state, unless a newer one of the session is there.
    pub fn put(&mut self, state: State) {
        if self
            .peek(&state.session)
            .is_some_and(|known| known.n > state.n)
        {
            return;
        }
        self.take(&state.session);
        self.clock += 1;
        let bytes = state
            .transcript
            .iter()
            .map(|message| history::bytes_of(message))
            .sum();
        self.bytes += bytes;
        let entry = Entry {
            used: self.clock,
            bytes,
            state,
        };
        self.states.insert(entry.state.session.clone(), entry);
        while self.states.len() > limits::FOLDED_SESSIONS_MAX
            || self.bytes > limits::FOLDED_BYTES_MAX
        {
            let oldest = self.states.iter().min_by_key(|(_, entry)| entry.used);
            let Some(session) = oldest.map(|(session, _)| session.clone()) else {
                return;
            };
            self.take(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use teamster_protocol::{Message, id::MessageId};

    use super::*;

    fn state(name: &str, n: u64) -> State {
        let mut state = State::new(SessionId::parse(name).expect("valid"));
        state.n = n;
        state
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut kept = Kept::default();
        let first = state("0", 1).session;
        for n in 0..limits::FOLDED_SESSIONS_MAX {
            kept.put(state(&n.to_string(), 1));
        }
        let used = kept.take(&first).expect("is kept");
        kept.put(used);
        kept.put(state("one more", 1));
        assert!(kept.peek(&first).is_some());
        assert!(kept.take(&state("1", 1).session).is_none());
    }

    #[test]
    fn an_older_state_takes_no_newer_ones_place() {
        let mut kept = Kept::default();
        kept.put(state("s", 5));
        kept.put(state("s", 3));
        assert_eq!(kept.take(&state("s", 0).session).map(|one| one.n), Some(5));
    }

    #[test]
    fn long_sessions_are_bounded_by_their_bytes() {
        let long = |name: &str| {
            let mut state = state(name, 1);
            let text = "x".repeat(limits::FOLDED_BYTES_MAX / 3);
            state.transcript = vec![Arc::new(Message::Notice {
                id: MessageId::of_commit(&state.session, 1, 0),
                text,
            })];
            state
        };
        let mut kept = Kept::default();
        for name in ["a", "b", "c"] {
            kept.put(long(name));
        }
        assert!(kept.peek(&state("a", 0).session).is_none());
        assert!(kept.peek(&state("c", 0).session).is_some());
        assert!(kept.bytes <= limits::FOLDED_BYTES_MAX);
    }
}
