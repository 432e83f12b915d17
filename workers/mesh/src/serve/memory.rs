//! What a worker remembers of its calls: those that run, and for a while those that ended. Pure but for its cancellation
//! tokens and channels; the caller says what time it is.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use teamster_protocol::{Fault, FunctionId, limits};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// What a call came to.
pub(super) type Outcome = Result<Bytes, Fault>;
/// Where a running call's outcome will appear.
pub(super) type Pending = watch::Receiver<Option<Outcome>>;

/// The calls of one worker process, by id.
#[derive(Default)]
pub(super) struct Memory {
    calls: HashMap<String, Entry>,
    /// Ended calls, oldest first.
    ended: VecDeque<(Instant, String)>,
    bytes: usize,
}

struct Entry {
    function: FunctionId,
    state: State,
}

enum State {
    Running {
        cancel: CancellationToken,
        outcome: watch::Sender<Option<Outcome>>,
    },
    Ended(Outcome),
}

/// What is known of a call that arrives.
pub(super) enum Entered {
    /// Nothing: it is now noted as running.
    New,
    /// It runs: wait for its outcome.
    Running(Pending),
    /// It ended.
    Ended(Outcome),
    /// Its id belongs to a call of another function.
    Foreign,
}

/// What is known of a call that is asked about.
pub(super) enum Known {
    /// Nothing.
    Nothing,
    /// It runs.
    Running(Pending),
    /// It ended.
    Ended(Outcome),
}

impl Memory {
    /// Notes a call that arrives, if it is not known.
    pub(super) fn enter(
        &mut self,
        call: &str,
        function: &FunctionId,
        cancel: &CancellationToken,
        now: Instant,
    ) -> Entered {
        self.forget_old(now);
        match self.calls.get(call) {
            Some(entry) if entry.function != *function => Entered::Foreign,
            Some(entry) => match &entry.state {
                State::Running { outcome, .. } => Entered::Running(outcome.subscribe()),
                State::Ended(outcome) => Entered::Ended(outcome.clone()),
            },
            None => {
                let entry = Entry {
                    function: function.clone(),
                    state: State::Running {
                        cancel: cancel.clone(),
                        outcome: watch::Sender::new(None),
                    },
                };
                self.calls.insert(call.to_owned(), entry);
                Entered::New
            }
        }
    }

    /// What is known of a call.
    pub(super) fn ask(&mut self, call: &str, now: Instant) -> Known {
        self.forget_old(now);
        match self.calls.get(call).map(|entry| &entry.state) {
            None => Known::Nothing,
            Some(State::Running { outcome, .. }) => Known::Running(outcome.subscribe()),
            Some(State::Ended(outcome)) => Known::Ended(outcome.clone()),
        }
    }

    /// Cancels a running call.
    pub(super) fn cancel(&self, call: &str) {
        if let Some(Entry {
            state: State::Running { cancel, .. },
            ..
        }) = self.calls.get(call)
        {
            cancel.cancel();
        }
    }

    /// Notes a running call's outcome and tells it to those who wait.
    pub(super) fn end(&mut self, call: &str, outcome: Outcome, now: Instant) {
        let Some(entry) = self.calls.get_mut(call) else {
            return;
        };
        let size = size(call, &outcome);
        let before = std::mem::replace(&mut entry.state, State::Ended(outcome.clone()));
        if let State::Running {
            outcome: waiting, ..
        } = before
        {
            waiting.send_replace(Some(outcome));
            self.bytes += size;
            self.ended.push_back((now, call.to_owned()));
        }
        self.forget_old(now);
    }

    /// Forgets what is too old or too much. The newest outcome stays whatever its size.
    fn forget_old(&mut self, now: Instant) {
        while let Some((at, _)) = self.ended.front() {
            let is_old = now.duration_since(*at) >= limits::CALL_MEMORY;
            let is_much = self.ended.len() > limits::CALL_MEMORY_MAX
                || (self.bytes > limits::CALL_MEMORY_BYTES_MAX && self.ended.len() > 1);
            if !is_old && !is_much {
                return;
            }
            let Some((_, call)) = self.ended.pop_front() else {
                return;
            };
            if let Some(Entry {
                state: State::Ended(outcome),
                ..
            }) = self.calls.remove(&call)
            {
                self.bytes = self.bytes.saturating_sub(size(&call, &outcome));
            }
        }
    }
}

/// Bytes that an outcome takes, about.
fn size(call: &str, outcome: &Outcome) -> usize {
    call.len()
        + match outcome {
            Ok(body) => body.len(),
            Err(fault) => fault.message.len() + fault.code.len(),
        }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn id(text: &str) -> FunctionId {
        FunctionId::parse(text).expect("a function id")
    }

    const X: Outcome = Ok(Bytes::from_static(b"x"));

    #[test]
    fn a_call_runs_once_and_is_answered_from_memory() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let cancel = CancellationToken::new();
        assert!(matches!(
            memory.enter("c", &id("a::b"), &cancel, now),
            Entered::New
        ));
        let Entered::Running(pending) = memory.enter("c", &id("a::b"), &cancel, now) else {
            panic!("the call runs");
        };
        assert!(matches!(
            memory.enter("c", &id("a::other"), &cancel, now),
            Entered::Foreign
        ));
        assert!(matches!(memory.ask("c", now), Known::Running(_)));
        memory.cancel("c");
        assert!(cancel.is_cancelled());
        memory.end("c", X, now);
        assert_eq!(*pending.borrow(), Some(X));
        assert!(matches!(
            memory.enter("c", &id("a::b"), &cancel, now),
            Entered::Ended(outcome) if outcome == X
        ));
        assert!(matches!(memory.ask("other", now), Known::Nothing));
    }

    #[test]
    fn memory_is_bounded_in_time_number_and_bytes() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let cancel = CancellationToken::new();
        let run = |memory: &mut Memory, call: &str, outcome: Outcome, now| {
            memory.enter(call, &id("a::b"), &cancel, now);
            memory.end(call, outcome, now);
        };
        for n in 0..=limits::CALL_MEMORY_MAX {
            run(&mut memory, &n.to_string(), X, now);
        }
        assert!(matches!(memory.ask("0", now), Known::Nothing));
        assert!(matches!(memory.ask("1", now), Known::Ended(_)));
        let later = now + limits::CALL_MEMORY;
        assert!(matches!(memory.ask("1", later), Known::Nothing));
        assert_eq!((memory.bytes, memory.calls.len()), (0, 0));
        let large = || Ok(Bytes::from(vec![0; limits::CALL_MEMORY_BYTES_MAX]));
        run(&mut memory, "l1", large(), later);
        run(&mut memory, "l2", large(), later + Duration::from_secs(1));
        assert!(matches!(memory.ask("l1", later), Known::Nothing));
        assert!(matches!(memory.ask("l2", later), Known::Ended(_)));
    }
}
