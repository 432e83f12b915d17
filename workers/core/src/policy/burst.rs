//! The bound on questions: a session that asks too often in a minute is refused instead of wearing its owner out.

use std::collections::VecDeque;

use teamster_protocol::{CallId, SessionId, limits};

/// Questions of the last minute over all sessions. Bounded; when it is full, further questions are refused.
#[derive(Debug, Default)]
pub struct Burst {
    asked: VecDeque<(u64, SessionId, CallId)>,
}

/// How long a question counts, in milliseconds.
const WINDOW_MS: u64 = 60_000;

impl Burst {
    /// Whether `session` may ask about `call` at `now_ms` (milliseconds since 1970). Asking again about one call within
    /// the minute counts once. A clock that goes back only makes questions count longer.
    pub fn admit(&mut self, session: &SessionId, call: &CallId, now_ms: u64) -> bool {
        while self
            .asked
            .front()
            .is_some_and(|(at_ms, _, _)| at_ms.saturating_add(WINDOW_MS) <= now_ms)
        {
            self.asked.pop_front();
        }
        let mut count = 0;
        for (_, asking, about) in &self.asked {
            if asking == session {
                if about == call {
                    return true;
                }
                count += 1;
            }
        }
        if count >= limits::QUESTIONS_PER_MINUTE_MAX
            || self.asked.len() >= limits::QUESTIONS_REMEMBERED_MAX
        {
            return false;
        }
        self.asked
            .push_back((now_ms, session.clone(), call.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(n: usize) -> CallId {
        CallId::parse(format!("call_{n}")).expect("valid")
    }

    /// SEC-33: a hundred questions in a minute are not all asked, and none of them becomes a yes.
    #[test]
    fn sec_33_a_hundred_questions_in_a_minute_are_bounded() {
        let session = SessionId::parse("one").expect("valid");
        let other = SessionId::parse("two").expect("valid");
        let mut burst = Burst::default();
        let admitted = (0..100)
            .filter(|n| burst.admit(&session, &call(*n), 1000 + *n as u64))
            .count();
        assert_eq!(admitted, limits::QUESTIONS_PER_MINUTE_MAX);
        assert!(
            burst.admit(&other, &call(0), 1100),
            "another session is not concerned"
        );
        assert!(
            burst.admit(&session, &call(0), 1200),
            "the same question again is no new one"
        );
        assert!(!burst.admit(&session, &call(100), 60_999));
        assert!(
            burst.admit(&session, &call(100), 61_000),
            "the first minute is over"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut burst = Burst::default();
        for n in 0..limits::QUESTIONS_REMEMBERED_MAX {
            let session = SessionId::parse(format!("ses_{}", n / 10)).expect("valid");
            assert!(burst.admit(&session, &call(n), 5));
        }
        let session = SessionId::parse("late").expect("valid");
        assert!(!burst.admit(&session, &call(0), 5));
        assert!(burst.admit(&session, &call(0), 60_005));
    }
}
