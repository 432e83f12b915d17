//! How much room each model leaves, as the context worker said last, so that small requests need not ask again.
//!
//! A plan depends on the history and the window alone. The history is here; what is remembered is the window.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use teamster_protocol::{function::context::Plan, limits};
use tokio::time::Instant;

/// How long a context worker that gave no answer in time is not asked again.
const DEAF: Duration = Duration::from_secs(10);

/// What is remembered about all models.
#[derive(Default)]
pub(super) struct Rooms(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    deaf_until: Option<Instant>,
    rooms: HashMap<(String, u64), (Instant, Room)>,
}

/// The room that a model leaves for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// The window: request and answer together.
    pub(super) window: u64,
    /// Tokens that a request may take.
    pub(super) usable: u64,
    /// Bytes at which each single result is cut.
    pub(super) result_bytes_max: usize,
}

impl Rooms {
    /// What is remembered about a model for answers of `output` tokens.
    pub(super) fn of(&self, model: &str, output: u64) -> Option<Room> {
        let inner = self.inner();
        let (at, room) = inner.rooms.get(&(model.to_owned(), output))?;
        (at.elapsed() < limits::CONTEXT_MODEL_TTL).then_some(*room)
    }

    /// Remembers what a plan shows that had nothing to do.
    pub(super) fn note(&self, model: &str, output: u64, plan: &Plan) {
        if !plan.mask.is_empty() || plan.tokens_before > plan.usable {
            return;
        }
        let room = Room {
            window: plan.window,
            usable: plan.usable,
            result_bytes_max: usize::try_from(plan.result_bytes_max).unwrap_or(usize::MAX),
        };
        let mut inner = self.inner();
        if inner.rooms.len() >= limits::CONTEXT_MODELS_MAX {
            inner.rooms.clear();
        }
        inner
            .rooms
            .insert((model.to_owned(), output), (Instant::now(), room));
    }

    /// Whether the context worker was silent just now.
    pub(super) fn is_deaf(&self) -> bool {
        self.inner()
            .deaf_until
            .is_some_and(|until| Instant::now() < until)
    }

    /// Remembers that the context worker was silent, or that it has answered.
    pub(super) fn heard(&self, is_silent: bool) {
        self.inner().deaf_until = is_silent.then(|| Instant::now() + DEAF);
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plan_without_work_says_what_the_window_is() {
        let rooms = Rooms::default();
        let plan = Plan {
            window: 200,
            result_bytes_max: 9,
            usable: 100,
            tokens_before: 90,
            tokens_after: 90,
            ..Plan::default()
        };
        let tight = Plan {
            tokens_before: 101,
            ..plan.clone()
        };
        rooms.note("p/m", 5, &tight);
        assert_eq!(rooms.of("p/m", 5), None);
        rooms.note("p/m", 5, &plan);
        let room = Room {
            window: 200,
            usable: 100,
            result_bytes_max: 9,
        };
        assert_eq!(rooms.of("p/m", 5), Some(room));
        assert_eq!((rooms.of("p/m", 6), rooms.of("p/n", 5)), (None, None));
    }
}
