//! What a session has spent: sums by model and time, which outlive it. Pure.
//!
//! Invariant: however little room there is, the rows add up to everything that was spent. Rows are added together, never dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use teamster_protocol::{Event, limits, text, usage::Spent};

/// The model of a generation that came to nothing before anybody knew one, and of rows of several models.
const NO_MODEL: &str = "unknown";
const DAY_MS: u64 = 24 * 3600 * 1000;

/// What an event says that a generation came to, the interrupted ones included; `None` for an event of another kind. `asked` is
/// the model of the turn, for generations that do not name theirs.
pub fn of_event(event: &Event, asked: Option<&str>, at_ms: u64) -> Option<Spent> {
    let (model, attempts, usage, cost) = match event {
        Event::GenerationFinished {
            model,
            attempts,
            usage,
            cost,
            ..
        } => (model.as_str(), attempts, usage, cost),
        Event::GenerationInterrupted {
            attempts,
            usage,
            cost,
            ..
        } => (asked.unwrap_or(NO_MODEL), attempts, usage, cost),
        _ => return None,
    };
    Some(Spent {
        at_ms,
        model: model.to_owned(),
        generations: 1,
        attempts: u64::from(*attempts),
        usage: *usage,
        cost: cost.unwrap_or_default(),
        unpriced: u64::from(cost.is_none()),
    })
}

/// What a session has spent, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger(Vec<Spent>);

impl Ledger {
    /// The rows, oldest first, at most `SPENT_ROWS_MAX`.
    pub fn rows(&self) -> &[Spent] {
        &self.0
    }

    /// Forgets everything, for readers that keep it elsewhere.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes what an event says was spent, if it does. `asked` is the model of the turn, for generations that do not name theirs.
    pub(crate) fn note(&mut self, event: &Event, asked: Option<&str>, at_ms: u64) {
        if let Some(one) = of_event(event, asked, at_ms) {
            self.add(Spent {
                at_ms: at_ms - at_ms % limits::SPENT_SLOT_MS,
                model: text::head(&one.model, limits::SPENT_MODEL_BYTES_MAX).to_owned(),
                ..one
            });
        }
    }

    /// What was spent since an earlier time of the same session.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut rows = self.0.clone();
        for row in &earlier.0 {
            let is_same = |other: &Spent| other.model == row.model && other.at_ms == row.at_ms;
            // What was added together since stands with an earlier row of its model, or with none of its model.
            let is_joined = |other: &Spent| other.model == row.model && other.generations > 0;
            let place = rows
                .iter()
                .position(is_same)
                .or_else(|| rows.iter().position(is_joined))
                .or_else(|| rows.iter().position(|other| other.model == NO_MODEL));
            if let Some(own) = place.and_then(|place| rows.get_mut(place)) {
                own.subtract(row);
            }
        }
        rows.retain(|row| row.generations > 0);
        Self(rows)
    }

    /// Adds what is known to have been spent elsewhere.
    pub(crate) fn extend(&mut self, rows: &[Spent]) {
        rows.iter().cloned().for_each(|row| self.add(row));
    }

    fn add(&mut self, one: Spent) {
        let same = |row: &&mut Spent| row.at_ms == one.at_ms && row.model == one.model;
        match self.0.iter_mut().rev().find(same) {
            Some(row) => row.add(&one),
            None => self.0.push(one),
        }
        while self.0.len() > limits::SPENT_ROWS_MAX {
            self.join_two();
        }
    }

    /// Adds two rows together: the oldest two of one model and day, else of one model, else the oldest two.
    fn join_two(&mut self) {
        let pair = self
            .pair(|row| (row.model.as_str(), row.at_ms / DAY_MS))
            .or_else(|| self.pair(|row| (row.model.as_str(), 0)));
        let (first, second) = pair.unwrap_or((0, 1));
        if second >= self.0.len() {
            return;
        }
        let later = self.0.remove(second);
        if let Some(row) = self.0.get_mut(first) {
            if row.model != later.model {
                NO_MODEL.clone_into(&mut row.model);
            }
            row.add(&later);
        }
    }

    /// The first two rows that are alike.
    fn pair<'a>(&'a self, alike: impl Fn(&'a Spent) -> (&'a str, u64)) -> Option<(usize, usize)> {
        let mut seen = BTreeMap::new();
        self.0.iter().enumerate().find_map(|(index, row)| {
            let earlier = seen.insert(alike(row), index)?;
            Some((earlier, index))
        })
    }
}

impl From<&[Spent]> for Ledger {
    fn from(rows: &[Spent]) -> Self {
        let mut ledger = Self::default();
        rows.iter().cloned().for_each(|row| ledger.add(row));
        ledger
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use teamster_protocol::usage::{NanoUsd, Usage};

    use super::*;

    fn one(at_ms: u64, model: &str, cost: u64) -> Spent {
        Spent {
            at_ms,
            model: model.to_owned(),
            generations: 1,
            attempts: 2,
            usage: Usage {
                output: cost,
                ..Usage::default()
            },
            cost: NanoUsd(cost),
            unpriced: cost % 2,
        }
    }

    fn total<'a>(rows: impl IntoIterator<Item = &'a Spent>) -> Spent {
        rows.into_iter().fold(
            Spent {
                generations: 0,
                attempts: 0,
                ..one(0, "", 0)
            },
            |mut sum, row| {
                sum.add(row);
                sum
            },
        )
    }

    /// Days stay apart for as long as there is room for them.
    #[test]
    fn rows_of_one_day_are_joined_first() {
        let slots = limits::SPENT_ROWS_MAX as u64 + 10;
        let rows: Vec<Spent> = (0..slots)
            .map(|slot| one(slot * limits::SPENT_SLOT_MS, "p/a", 1))
            .collect();
        let ledger = Ledger::from(rows.as_slice());
        assert_eq!(ledger.rows().len(), limits::SPENT_ROWS_MAX);
        let by_day = |rows: &[Spent]| {
            let mut days = BTreeMap::new();
            for row in rows {
                *days.entry(row.at_ms / DAY_MS).or_insert(0) += row.cost.0;
            }
            days
        };
        assert_eq!(by_day(ledger.rows()), by_day(&rows));
    }

    proptest! {
        /// COST: however many rows there are and of whatever models, nothing is lost of the sum, and there are few.
        #[test]
        fn nothing_spent_is_lost(
            rows in proptest::collection::vec((0_u64..1_000, 0_u64..400, 0_u64..9), 0..900)
        ) {
            let rows: Vec<Spent> = rows
                .into_iter()
                .map(|(slot, model, cost)| one(slot * limits::SPENT_SLOT_MS, &format!("p/{model}"), cost))
                .collect();
            let ledger = Ledger::from(rows.as_slice());
            prop_assert!(ledger.rows().len() <= limits::SPENT_ROWS_MAX);
            prop_assert_eq!(total(ledger.rows()), total(&rows));
        }
    }
}
