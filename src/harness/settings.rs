//! What of the configuration a turn keeps while it runs.
//!
//! A turn keeps the settings that were in force when it began; the next one takes those of its own beginning. What is remembered
//! is lost with the process: a turn that another process takes over goes on with what is in force there. Its model and its bounds
//! are in the log and stay.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use teamster_core::turn::Settings;
use teamster_mesh::config::{Derived, Live};
use teamster_protocol::TurnId;

use super::config::Config;

/// Turns whose settings are remembered; the oldest are forgotten first.
const PINS_MAX: usize = 4096;

/// What one turn keeps.
#[derive(Debug)]
pub(super) struct Pinned {
    /// What the turn machine reads.
    pub(super) turn: Settings,
    /// Workers whose hook must be bound before any call runs.
    pub(super) required_hooks: Vec<String>,
}

/// The settings of running turns.
pub(super) struct Pins {
    now: Derived<Config, Pinned>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_turn: HashMap<TurnId, Arc<Pinned>>,
    order: VecDeque<TurnId>,
}

impl Pins {
    /// Nothing is kept yet.
    pub(super) fn new(config: Live<Config>) -> Self {
        let now = Derived::new(config, |config| Pinned {
            turn: config.settings(),
            required_hooks: config.required_hooks.clone(),
        });
        Self {
            now,
            kept: Mutex::default(),
        }
    }

    /// What a turn that begins now takes.
    pub(super) fn now(&self) -> Arc<Pinned> {
        self.now.load()
    }

    /// What a turn keeps. One that is not known began with `began`.
    pub(super) fn pin(&self, turn: &TurnId, began: &Arc<Pinned>) -> Arc<Pinned> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pinned) = kept.by_turn.get(turn) {
            return Arc::clone(pinned);
        }
        if kept.order.len() >= PINS_MAX
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.by_turn.remove(&oldest);
        }
        kept.order.push_back(turn.clone());
        kept.by_turn.insert(turn.clone(), Arc::clone(began));
        Arc::clone(began)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use teamster_mesh::config::Take;

    use super::*;

    #[test]
    fn conf_2_a_turn_keeps_what_it_began_with() {
        let live = Live::new(Config::default());
        let pins = Pins::new(live.clone());
        let turn = |text: &str| TurnId::parse(text).expect("valid");
        let (old, new) = (turn("trn_old"), turn("trn_new"));
        let began = pins.now();
        assert_eq!(pins.pin(&old, &began).turn.output_tokens, 8192);
        live.take(&json!({"max_output_tokens": 100}))
            .expect("valid");
        assert_eq!(pins.pin(&old, &pins.now()).turn.output_tokens, 8192);
        assert_eq!(pins.pin(&new, &pins.now()).turn.output_tokens, 100);
        assert_ne!(pins.now().turn.revision, began.turn.revision);
        for number in 0..PINS_MAX {
            pins.pin(&turn(&format!("trn_{number}")), &began);
        }
        assert_eq!(pins.kept.lock().expect("free").order.len(), PINS_MAX);
        assert_eq!(pins.kept.lock().expect("free").by_turn.len(), PINS_MAX);
    }
}
