//! Which frames a reader has had. Pure.

use std::collections::VecDeque;

use teamster_protocol::{RequestId, function::router::Delta};

/// Requests whose last frame is remembered: a session streams one, for a moment two where a router was lost.
const REQUESTS_MAX: usize = 8;

/// Where a frame stands among those that a reader has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It, or one behind it, was there before.
    Known,
    /// It is the next one of its request.
    Next,
    /// Some before it are missing.
    Gap,
}

/// The last frame of each request of late.
#[derive(Debug, Default)]
pub(super) struct Order(VecDeque<(RequestId, u64)>);

impl Order {
    /// Where a frame stands.
    pub(super) fn place(&self, delta: &Delta) -> Place {
        let had = self.0.iter().find(|(request, _)| *request == delta.request);
        match had.map(|(_, index)| *index) {
            Some(index) if delta.index <= index => Place::Known,
            Some(index) if delta.index > index.saturating_add(1) => Place::Gap,
            None if delta.index > 0 => Place::Gap,
            Some(_) | None => Place::Next,
        }
    }

    /// The reader has had this frame.
    pub(super) fn note(&mut self, delta: &Delta) {
        if let Some((_, index)) = self
            .0
            .iter_mut()
            .find(|(request, _)| *request == delta.request)
        {
            *index = delta.index;
            return;
        }
        if self.0.len() == REQUESTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((delta.request.clone(), delta.index));
    }
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{SessionId, function::router::DeltaKind};

    use super::*;

    fn frame(attempt: u32, index: u64) -> Delta {
        let session = SessionId::parse("s").expect("an id");
        Delta {
            request: RequestId::of(&session, 1, attempt),
            index,
            delta: DeltaKind::Done,
        }
    }

    #[test]
    fn frames_are_told_apart_by_request_and_number() {
        let mut order = Order::default();
        assert_eq!(order.place(&frame(1, 0)), Place::Next);
        assert_eq!(order.place(&frame(1, 4)), Place::Gap);
        order.note(&frame(1, 0));
        assert_eq!(order.place(&frame(1, 0)), Place::Known);
        assert_eq!(order.place(&frame(1, 1)), Place::Next);
        assert_eq!(order.place(&frame(1, 2)), Place::Gap);
        order.note(&frame(1, 5));
        assert_eq!(order.place(&frame(1, 4)), Place::Known);
        // Another request between them changes nothing.
        order.note(&frame(2, 0));
        assert_eq!(order.place(&frame(1, 5)), Place::Known);
        assert_eq!(order.place(&frame(1, 6)), Place::Next);
        assert_eq!(order.place(&frame(2, 1)), Place::Next);
    }

    #[test]
    fn old_requests_are_forgotten() {
        let mut order = Order::default();
        for attempt in 1..=20 {
            order.note(&frame(attempt, 0));
        }
        assert_eq!(order.0.len(), REQUESTS_MAX);
        assert_eq!(order.place(&frame(20, 0)), Place::Known);
        assert_eq!(order.place(&frame(1, 0)), Place::Next);
    }
}
