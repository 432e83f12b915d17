//! What a reader makes of commits that are missing, and of the acceptance of their loss. Pure.
//!
//! A session may go on from a snapshot behind commits that the server cannot read. Who reads its log does not see how turns began
//! or ended that stood in them, and must come to an end all the same.

use teamster_core::turn::admin::is_tombstone;
use teamster_protocol::{
    Commit,
    commit::Phase,
    event::{EndReason, Event},
    usage::Spent,
};

use super::{Happening, Session, Turn, end};

/// The code of a turn that was given up with a part of its log.
const LOG_DAMAGED: &str = "session.log_damaged";

impl Session {
    /// Commits may be missing that the server cannot read. What stood in them is told by what follows, as far as it is.
    pub(super) fn look_for_gap(&mut self, commit: &Commit) {
        let is_ended = |event: &Event| matches!(event, Event::TurnEnded { .. });
        self.ends_turn = commit.events.iter().any(is_ended);
        let is_accepted = matches!(commit.events.first(), Some(Event::LossAccepted { .. }));
        let leaves_out = is_accepted || is_tombstone(commit);
        if leaves_out || commit.n <= self.n.saturating_add(1) {
            return;
        }
        self.gap_at = Some(commit.n);
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.end.is_none()) {
            turn.is_uncertain = true;
            if commit.head.phase != Phase::Parked {
                turn.pending.clear();
            }
        }
    }

    /// Whether commits are missing, though nobody has accepted their loss.
    pub fn has_gap(&self) -> bool {
        self.gap_at.is_some()
    }

    /// What is behind the commit that was kept does not count any more, and no turn is open now.
    pub(super) fn give_up(&mut self, event: &Event, at_ms: u64) -> Option<Happening> {
        let Event::LossAccepted {
            lost_from,
            turns,
            spent,
            ..
        } = event
        else {
            return None;
        };
        // Who has read what does not count has counted its turns and what they spent.
        if self.before < *lost_from {
            self.turns = self.turns.saturating_add(*turns);
            for row in spent {
                self.add_spent(row);
            }
        }
        self.gap_at = None;
        self.unassigned.retain(|(n, _)| n < lost_from);
        if self.ends_turn {
            return None; // it has an event of its own
        }
        let turn = self.turn.as_mut().filter(|turn| turn.end.is_none())?;
        let reason = EndReason::Failed {
            code: LOG_DAMAGED.to_owned(),
            message: "a part of the session's log was lost".to_owned(),
        };
        Some(end(turn, &reason, at_ms))
    }

    fn add_spent(&mut self, row: &Spent) {
        self.usage.add(&row.usage);
        self.cost_is_partial |= row.unpriced > 0 && row.usage.total() > 0;
        if row.generations > row.unpriced {
            self.cost = Some(self.cost.unwrap_or_default().plus(row.cost));
        }
    }

    /// The turn that an event is of, where the commit that began it is missing: nothing but a turn has such events.
    pub(super) fn find_turn(&mut self, at_ms: u64, event: &Event) {
        let is_of_turn = matches!(
            event,
            Event::TurnEnded { .. }
                | Event::GenerationStarted { .. }
                | Event::GenerationFinished { .. }
                | Event::GenerationInterrupted { .. }
                | Event::CallStarted { .. }
                | Event::CallFinished { .. }
                | Event::CallRefused { .. }
                | Event::ApprovalRequested { .. }
        );
        let is_known = match (&self.turn, event) {
            (Some(known), Event::TurnEnded { turn, .. }) => {
                known.end.is_none() && known.id.as_ref().is_none_or(|id| id == turn)
            }
            (known, _) => known.as_ref().is_some_and(|known| known.end.is_none()),
        };
        if !is_of_turn || is_known {
            return;
        }
        self.turn = Some(Turn {
            messages: self.assign(),
            model: self.model.clone(),
            started_at_ms: at_ms,
            is_uncertain: true,
            ..Turn::default()
        });
    }
}
