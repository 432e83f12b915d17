//! The inbox in memory.

use teamster_protocol::{Event, Phase, input::Decision};

use super::*;
use crate::sample::{approval, commit, requested, resolved, session, started};

fn fold(inbox: &Inbox, name: &str, seq: u64, events: Vec<Event>) {
    let commit = commit(name, seq, Phase::Parked, events);
    inbox.fold(&session(name), [(seq, &commit)]);
}

fn listed(inbox: &Inbox) -> Vec<ApprovalId> {
    inbox
        .list(None, 0)
        .into_iter()
        .map(|pending| pending.approval_id)
        .collect()
}

#[test]
fn what_waits_is_listed_oldest_first() {
    let inbox = Inbox::default();
    fold(&inbox, "b", 9, vec![started("trn_1"), requested(1)]);
    fold(
        &inbox,
        "a",
        3,
        vec![started("trn_1"), requested(2), requested(3)],
    );
    assert_eq!(listed(&inbox), [approval(2), approval(3), approval(1)]);
    assert_eq!(inbox.list(Some(&session("b")), 0).len(), 1);
    assert!(inbox.list(Some(&session("c")), 0).is_empty());
    assert!(inbox.is_waiting(&session("a")) && !inbox.is_waiting(&session("c")));
}

/// APPR-1: a request whose time is over is not listed.
#[test]
fn appr_1_a_request_whose_time_is_over_is_not_listed() {
    let inbox = Inbox::default();
    fold(&inbox, "a", 3, vec![started("trn_1"), requested(1)]);
    assert_eq!(inbox.list(None, 89_999).len(), 1);
    assert!(inbox.list(None, 90_000).is_empty());
}

#[test]
fn a_commit_that_is_seen_twice_changes_nothing() {
    let inbox = Inbox::default();
    fold(&inbox, "a", 3, vec![started("trn_1"), requested(1)]);
    fold(&inbox, "a", 4, vec![resolved(1, "anna", Decision::Approve)]);
    fold(&inbox, "a", 3, vec![started("trn_1"), requested(1)]);
    assert!(listed(&inbox).is_empty());
    assert_eq!(inbox.seq(&session("a")), 4);
    let found = inbox.find(&approval(1)).expect("it is remembered");
    assert!(found.entry.resolution.is_some());
    inbox.forget(&session("a"));
    assert!(inbox.find(&approval(1)).is_none());
}

#[test]
fn a_change_is_announced() {
    let inbox = Inbox::default();
    let changes = inbox.changes();
    assert!(!changes.has_changed().expect("open"));
    fold(&inbox, "a", 3, vec![started("trn_1"), requested(1)]);
    assert!(changes.has_changed().expect("open"));
}

#[test]
fn sessions_without_open_requests_make_room_first() {
    let inbox = Inbox::default();
    fold(&inbox, "open", 1, vec![started("trn_1"), requested(1)]);
    fold(&inbox, "done", 1, vec![started("trn_1")]);
    for n in 0..limits::INBOX_SESSIONS_MAX as u64 - 1 {
        fold(
            &inbox,
            &format!("more-{n}"),
            1,
            vec![started("trn_1"), requested(n + 10)],
        );
    }
    assert!(
        inbox.find(&approval(1)).is_some(),
        "an open request outlives a session without one"
    );
    assert_eq!(inbox.seq(&session("done")), 0);
    fold(&inbox, "last", 1, vec![started("trn_1"), requested(2)]);
    assert!(inbox.find(&approval(1)).is_none(), "then the oldest goes");
    assert!(inbox.find(&approval(2)).is_some());
    assert_eq!(inbox.list(None, 0).len(), limits::APPROVALS_LISTED_MAX);
}
