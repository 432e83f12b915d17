//! The fold over one session's log.

use teamster_protocol::{Phase, Principal, input::Decision, message::ResultKind};

use super::*;
use crate::sample::{
    approval, commit, created, expired, finished, requested, resolved, session, started,
};

fn folded(events: Vec<Vec<Event>>) -> Ledger {
    let mut ledger = Ledger::default();
    for (n, events) in (1..).zip(events) {
        ledger.apply(&session("one"), &commit("one", n, Phase::Active, events));
    }
    ledger
}

#[test]
fn a_request_holds_all_that_is_shown() {
    let ledger = folded(vec![vec![created(), started("trn_1")], vec![requested(1)]]);
    let pending = ledger.open().next().expect("it waits");
    assert_eq!(pending.turn_id.as_str(), "trn_1");
    assert_eq!(pending.digest, pending.arguments.digest());
    assert_eq!(pending.arguments_bytes, 12);
    assert_eq!(
        (pending.requested_at_ms, pending.expires_at_ms),
        (2000, 90_000)
    );
    assert_eq!(ledger.workspace(), Some("/w"));
}

/// SEC-30: of two decisions in the log the first counts, and nothing that comes later changes it.
#[test]
fn sec_30_the_first_decision_counts() {
    let ledger = folded(vec![
        vec![started("trn_1"), requested(1)],
        vec![resolved(1, "anna", Decision::Deny { reason: None })],
        vec![resolved(1, "bert", Decision::Approve), expired(1, false)],
    ]);
    assert_eq!(
        ledger.get(&approval(1)).expect("known").resolution,
        Some(Resolution::Decided {
            by: Principal::parse("anna").expect("valid"),
            channel: "cli".to_owned(),
            decision: Decision::Deny { reason: None },
            at_ms: 2000,
            outcome: None,
        })
    );
    assert_eq!(ledger.open().count(), 0);
}

/// APPR-1: a request that nobody decided leaves the open ones, and says how it ended.
#[test]
fn appr_1_expired_and_withdrawn_requests_are_told_apart() {
    let ledger = folded(vec![
        vec![started("trn_1"), requested(1), requested(2), requested(3)],
        vec![expired(1, false), expired(2, true)],
    ]);
    let of = |n| ledger.get(&approval(n)).expect("known").resolution.clone();
    assert_eq!(of(1), Some(Resolution::Expired { at_ms: 2000 }));
    assert_eq!(of(2), Some(Resolution::Withdrawn { at_ms: 2000 }));
    assert_eq!(of(3), None);
    assert_eq!(ledger.open().count(), 1);
}

#[test]
fn a_decision_keeps_what_its_call_came_to() {
    let ledger = folded(vec![
        vec![started("trn_1"), requested(1), requested(2)],
        vec![resolved(1, "anna", Decision::Approve)],
        vec![finished(1, ResultKind::Ok), finished(2, ResultKind::Error)],
    ]);
    let Some(Resolution::Decided { outcome, .. }) =
        &ledger.get(&approval(1)).expect("known").resolution
    else {
        panic!("it was decided");
    };
    assert_eq!(*outcome, Some(ResultKind::Ok));
    assert_eq!(ledger.get(&approval(2)).expect("known").resolution, None);
}

#[test]
fn only_the_newest_resolved_requests_are_kept() {
    let mut ledger = folded(vec![
        vec![
            started("trn_1"),
            requested(1),
            requested(2),
            requested(3),
            requested(4),
        ],
        vec![expired(1, false), expired(2, false), expired(4, false)],
    ]);
    ledger.forget_resolved(1);
    let kept: Vec<_> = ledger
        .entries
        .values()
        .map(|entry| entry.request.approval_id.clone())
        .collect();
    assert_eq!(kept, [approval(3), approval(4)]);
}
