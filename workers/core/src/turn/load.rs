//! What the holder of a doorbell does with a session, by the head of its last commit.

use teamster_protocol::{Head, Phase, commit::Bell, id::Incarnation};

/// What is known when a doorbell has come and the log's tail and both lanes were read.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The last commit's head; `None` for a session without commits.
    pub head: Option<&'a Head>,
    /// Who asks.
    pub me: &'a Incarnation,
    /// The doorbell.
    pub bell: Bell,
    /// Whether it is a kick, which proves no input.
    pub is_kick: bool,
    /// Whether a control input lies beyond its cursor.
    pub has_control: bool,
    /// Whether a user message lies beyond its cursor.
    pub has_message: bool,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// What to do with the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read the lanes and claim.
    Claim,
    /// Claim the running turn.
    TakeOver,
    /// Ask the owner whether it will look.
    Ask(Incarnation),
    /// Nothing is left to do: let go and ack.
    Close,
    /// A reading is stale: the doorbell proves an input that was not found. Read again.
    ReadAgain,
}

/// What to do with the session.
pub fn decide(seen: &Seen<'_>) -> Step {
    let is_proven = |head: Option<&Head>| {
        seen.is_kick || head.is_some_and(|head| seen.bell.seq <= head.cursor.of(seen.bell.lane))
    };
    let Some(head) = seen.head else {
        return match (seen.has_control || seen.has_message, seen.is_kick) {
            (true, _) => Step::Claim,
            (false, true) => Step::Close,
            (false, false) => Step::ReadAgain,
        };
    };
    match head.phase {
        Phase::Idle | Phase::Deleted => {
            if seen.has_control || seen.has_message {
                Step::Claim
            } else if is_proven(Some(head)) {
                Step::Close
            } else {
                Step::ReadAgain
            }
        }
        Phase::Parked => {
            let is_due = head
                .deadline
                .is_some_and(|deadline| deadline <= seen.now_ms);
            let is_message_bell = seen.bell.lane == teamster_protocol::Lane::In && !seen.is_kick;
            if seen.has_control || is_due {
                Step::Claim
            } else if is_proven(Some(head)) || (is_message_bell && seen.has_message) {
                // A user message waits until the person has decided; it stays in its lane and is read when the turn goes on.
                Step::Close
            } else {
                Step::ReadAgain
            }
        }
        Phase::Active if head.owner == *seen.me => Step::TakeOver,
        Phase::Active => Step::Ask(head.owner.clone()),
    }
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{Cursor, Lane};

    use super::*;

    fn incarnation(text: &str) -> Incarnation {
        Incarnation::parse(text).expect("valid")
    }

    fn head(phase: Phase, owner: &str) -> Head {
        Head {
            phase,
            owner: incarnation(owner),
            bell: Bell {
                lane: Lane::In,
                seq: 1,
            },
            epoch: 1,
            attempt: 0,
            cursor: Cursor { input: 5, ctl: 5 },
            deadline: (phase == Phase::Parked).then_some(1000),
        }
    }

    #[test]
    fn the_load_table_holds_row_by_row() {
        let me = incarnation("me");
        let check = |head: Option<Head>,
                     seq: u64,
                     is_kick: bool,
                     control: bool,
                     message: bool,
                     want: Step| {
            let bell = Bell {
                lane: if is_kick { Lane::Ctl } else { Lane::In },
                seq,
            };
            let seen = Seen {
                head: head.as_ref(),
                me: &me,
                bell,
                is_kick,
                has_control: control,
                has_message: message,
                now_ms: 10,
            };
            assert_eq!(
                decide(&seen),
                want,
                "{head:?} {seq} {is_kick} {control} {message}"
            );
        };
        let (idle, mine, other, parked) = (
            Some(head(Phase::Idle, "me")),
            Some(head(Phase::Active, "me")),
            Some(head(Phase::Active, "peer")),
            Some(head(Phase::Parked, "peer")),
        );
        check(None, 6, false, false, true, Step::Claim);
        check(None, 6, false, false, false, Step::ReadAgain);
        check(None, 6, true, false, false, Step::Close);
        check(idle.clone(), 6, false, false, true, Step::Claim);
        check(idle.clone(), 6, false, true, false, Step::Claim);
        check(idle.clone(), 5, false, false, false, Step::Close);
        check(idle.clone(), 6, true, false, false, Step::Close);
        check(idle, 6, false, false, false, Step::ReadAgain);
        check(mine, 6, false, false, true, Step::TakeOver);
        check(other, 6, false, false, true, Step::Ask(incarnation("peer")));
        check(parked.clone(), 6, false, false, true, Step::Close);
        check(parked.clone(), 6, false, false, false, Step::ReadAgain);
        check(parked.clone(), 6, false, true, true, Step::Claim);
        check(parked, 9, true, false, true, Step::Close);
    }

    #[test]
    fn a_parked_session_past_its_deadline_is_claimed_by_any_doorbell() {
        let me = incarnation("me");
        let parked = head(Phase::Parked, "peer");
        let bell = Bell {
            lane: Lane::Ctl,
            seq: 9,
        };
        let seen = Seen {
            head: Some(&parked),
            me: &me,
            bell,
            is_kick: true,
            has_control: false,
            has_message: false,
            now_ms: 1000,
        };
        assert_eq!(decide(&seen), Step::Claim);
    }
}
