//! Notices that the server holds and cannot hand out, because their stored bytes are damaged: it passes them by without a word, and
//! answers a question for one of them as if it were not there. Only that they were not removed tells them from those that were.
//!
//! Pure, but for the question what was removed.

use std::fmt;

use serde::Deserialize;

use crate::{
    topology::EVENTS,
    wire::{Failure, Wire},
};

/// Removed notices that are asked for. Where more were removed, it is not known what else is missing.
const REMOVED_MAX: u64 = 1_000_000;
/// Holes that are listed.
const LISTED_MAX: usize = 1000;
/// Holes that are shown in one line.
const SHOWN_MAX: usize = 5;

/// Notices in a row that are stored and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The sequence of the first.
    pub from: u64,
    /// The sequence of the last.
    pub to: u64,
}

impl Hole {
    /// How many they are.
    pub fn count(self) -> u64 {
        self.to.saturating_sub(self.from).saturating_add(1)
    }
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            write!(f, "{}", self.from)
        } else {
            write!(f, "{} to {}", self.from, self.to)
        }
    }
}

/// All holes of a stretch of EVENTS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holes {
    /// The first ones, in order; at most 1000.
    pub listed: Vec<Hole>,
    /// Notices in those that are not listed.
    pub further: u64,
}

impl Holes {
    /// How many notices cannot be read.
    pub fn count(&self) -> u64 {
        let listed = self.listed.iter().map(|hole| hole.count());
        listed.sum::<u64>().saturating_add(self.further)
    }

    pub(super) fn add(&mut self, hole: Hole) {
        if self.listed.len() < LISTED_MAX {
            self.listed.push(hole);
        } else {
            self.further = self.further.saturating_add(hole.count());
        }
    }
}

impl fmt::Display for Holes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self
            .listed
            .iter()
            .take(SHOWN_MAX)
            .map(Hole::to_string)
            .collect();
        f.write_str(&shown.join(", "))?;
        let rest = self.listed.iter().skip(SHOWN_MAX);
        let rest = rest.fold(self.further, |sum, hole| sum.saturating_add(hole.count()));
        if rest > 0 {
            write!(f, " and {rest} further ones")?;
        }
        Ok(())
    }
}

/// What was removed of EVENTS.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    /// Everything before this sequence.
    first: u64,
    /// And these, in order.
    single: Vec<u64>,
}

impl Removed {
    /// Asks the server; `None` where too much was removed to be listed.
    pub(super) async fn ask(wire: &Wire) -> Result<Option<Self>, Failure> {
        #[derive(Deserialize)]
        struct Info {
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            first_seq: u64,
            #[serde(default)]
            num_deleted: u64,
            #[serde(default)]
            deleted: Option<Vec<u64>>,
        }
        let subject = format!("STREAM.INFO.{EVENTS}");
        let known = wire
            .api::<Info>(&subject, &serde_json::Value::Null)
            .await?
            .state;
        if known.num_deleted > REMOVED_MAX {
            return Ok(None);
        }
        let wanted = serde_json::json!({ "deleted_details": true });
        let state = wire.api::<Info>(&subject, &wanted).await?.state;
        let mut single = state.deleted.unwrap_or_default();
        single.sort_unstable();
        Ok(Some(Self {
            first: state.first_seq,
            single,
        }))
    }

    /// What of a gap was not removed.
    pub(super) fn leaves(&self, gap: Hole) -> Vec<Hole> {
        let mut left = Vec::new();
        let mut from = gap.from.max(self.first);
        let begin = self.single.partition_point(|seq| *seq < from);
        let single = self.single.get(begin..).unwrap_or_default();
        for seq in single.iter().take_while(|seq| **seq <= gap.to) {
            if *seq > from {
                left.push(Hole { from, to: seq - 1 });
            }
            from = seq + 1;
        }
        if from <= gap.to {
            left.push(Hole { from, to: gap.to });
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(from: u64, to: u64) -> Hole {
        Hole { from, to }
    }

    #[test]
    fn what_was_removed_is_no_hole() {
        let removed = Removed {
            first: 4,
            single: vec![6, 7, 10],
        };
        for (gap, left) in [
            (hole(1, 3), vec![]),
            (hole(1, 5), vec![hole(4, 5)]),
            (hole(6, 7), vec![]),
            (hole(5, 12), vec![hole(5, 5), hole(8, 9), hole(11, 12)]),
            (hole(7, 10), vec![hole(8, 9)]),
            (hole(11, 20), vec![hole(11, 20)]),
        ] {
            assert_eq!(removed.leaves(gap), left, "{gap}");
        }
    }

    #[test]
    fn holes_are_counted_and_named() {
        let mut holes = Holes::default();
        for from in [3, 10, 20, 30, 40, 50] {
            holes.add(hole(from, from + u64::from(from == 3)));
        }
        assert_eq!(holes.count(), 7);
        assert_eq!(
            holes.to_string(),
            "3 to 4, 10, 20, 30, 40 and 1 further ones"
        );
        for from in 100..100 + LISTED_MAX as u64 {
            holes.add(hole(from * 2, from * 2));
        }
        assert_eq!((holes.listed.len(), holes.further), (LISTED_MAX, 6));
        assert_eq!(holes.count(), 7 + LISTED_MAX as u64);
    }
}
