//! Folded sessions in memory: bounded in number and in bytes, least recently used goes first. Pure.

use std::collections::HashMap;

use teamster_core::turn::{State, history};
use teamster_protocol::{SessionId, limits};

/// States by session.
#[derive(Default)]
pub(crate) struct Memory {
    clock: u64,
    bytes: usize,
    states: HashMap<SessionId, Entry>,
}

struct Entry {
    used: u64,
    bytes: usize,
    state: State,
}

impl Memory {
    /// Takes a session's state out.
    pub(crate) fn take(&mut self, session: &SessionId) -> Option<State> {
        let entry = self.states.remove(session)?;
        self.bytes -= entry.bytes;
        Some(entry.state)
    }

    /// Keeps a state, unless a newer one of the session is there.
    pub(crate) fn put(&mut self, state: State) {
        if self
            .states
            .get(&state.session)
            .is_some_and(|known| known.state.n > state.n)
        {
            return;
        }
        self.take(&state.session);
        self.clock += 1;
        let bytes = state.transcript.iter().map(history::bytes_of).sum();
        self.bytes += bytes;
        let entry = Entry {
            used: self.clock,
            bytes,
            state,
        };
        self.states.insert(entry.state.session.clone(), entry);
        while self.states.len() > limits::CONTEXT_SESSIONS_MAX
            || self.bytes > limits::CONTEXT_BYTES_MAX
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
    use super::*;

    fn state(name: &str, n: u64) -> State {
        let mut state = State::new(SessionId::parse(name).expect("valid"));
        state.n = n;
        state
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut memory = Memory::default();
        let first = state("0", 1).session;
        for n in 0..limits::CONTEXT_SESSIONS_MAX {
            memory.put(state(&n.to_string(), 1));
        }
        let used = memory.take(&first).expect("is kept");
        memory.put(used);
        memory.put(state("one more", 1));
        assert!(memory.take(&first).is_some());
        assert!(memory.take(&state("1", 1).session).is_none());
    }

    #[test]
    fn an_older_state_takes_no_newer_ones_place() {
        let mut memory = Memory::default();
        memory.put(state("s", 5));
        memory.put(state("s", 3));
        assert_eq!(
            memory.take(&state("s", 0).session).map(|one| one.n),
            Some(5)
        );
    }
}
