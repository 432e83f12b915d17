//! What a reader makes of commits.

use teamster_protocol::{
    ApprovalId, Arguments, CallId, Commit, Digest, Event, FunctionId, Message, MessageId, Phase,
    Principal, SessionId, TurnId,
    event::EndReason,
    id::RequestId,
    input::{Decision, TurnOptions},
    message::{Content, StopReason},
    policy::Effect,
    usage::{NanoUsd, Usage},
};

use teamster_testkit::written;

use super::{Happening, Report, Session};

fn session() -> SessionId {
    SessionId::parse("s").expect("valid")
}

fn owner() -> Principal {
    Principal::parse("owner").expect("valid")
}

fn message(name: &str) -> MessageId {
    MessageId::parse(format!("msg_{name}")).expect("valid")
}

fn turn(name: &str) -> TurnId {
    TurnId::parse(format!("trn_{name}")).expect("valid")
}

fn user(name: &str) -> Event {
    Event::MessageAdded {
        message: Message::User {
            id: message(name),
            from: owner(),
            text: format!("text of {name}"),
        },
        options: TurnOptions::default(),
        appended: false,
    }
}

fn started(name: &str, number: u64) -> Event {
    Event::TurnStarted {
        turn: turn(name),
        number,
        options: (number == 1).then(|| TurnOptions {
            model: Some("scripted/guided".to_owned()),
            ..TurnOptions::default()
        }),
        config: Digest::ZERO,
        trace: None,
    }
}

fn finished(n: u64, text: &str, cost: Option<u64>) -> Event {
    Event::GenerationFinished {
        request: RequestId::of(&session(), n, 0),
        message: Some(Message::Assistant {
            id: message(&format!("a{n}")),
            content: vec![Content::Text {
                text: text.to_owned(),
            }],
            partial: false,
        }),
        stop: StopReason::End,
        usage: Usage {
            output: 10,
            ..Usage::default()
        },
        cost: cost.map(NanoUsd),
        model: "scripted/guided".to_owned(),
        attempts: 1,
        estimated: 0,
    }
}

fn ended(name: &str) -> Event {
    Event::TurnEnded {
        turn: turn(name),
        reason: EndReason::Completed,
    }
}

fn asked() -> Event {
    Event::ApprovalRequested {
        approval: ApprovalId::parse("apr_1").expect("valid"),
        call: CallId::parse("call_1").expect("valid"),
        function: FunctionId::parse("fs::write").expect("valid"),
        arguments: Arguments::parse("{\"path\":\"x\"}").expect("valid"),
        judgement: written::judgement(Effect::Ask, "x"),
        holder: FunctionId::parse("approval::judge").expect("valid"),
        rest: Vec::new(),
        expires_at_ms: 99,
    }
}

fn commit(n: u64, phase: Phase, events: Vec<Event>) -> Commit {
    written::commit(&session(), n, Digest::ZERO, phase, events)
}

fn fold(commits: &[Commit]) -> Session {
    let mut folded = Session::default();
    for commit in commits {
        folded.apply(&session(), commit);
    }
    folded
}

#[test]
fn a_message_belongs_to_the_turn_that_answers_it_whichever_comes_first() {
    for events in [
        vec![user("one"), started("t", 1)],
        vec![started("t", 1), user("one")],
    ] {
        let folded = fold(&[commit(1, Phase::Active, events)]);
        assert!(folded.answers(&message("one")));
    }
    // One that comes while a turn runs joins it; one that comes after its end waits for the next.
    let mut folded = fold(&[
        commit(1, Phase::Active, vec![user("one"), started("t", 1)]),
        commit(2, Phase::Active, vec![user("two")]),
        commit(3, Phase::Idle, vec![ended("t")]),
        commit(4, Phase::Active, vec![user("three")]),
    ]);
    assert!(folded.answers(&message("two")) && !folded.answers(&message("three")));
    folded.apply(&session(), &commit(5, Phase::Active, vec![started("u", 2)]));
    assert!(folded.answers(&message("three")) && !folded.answers(&message("one")));
    assert_eq!(
        folded.turn.expect("a turn").model.as_deref(),
        Some("scripted/guided"),
        "options are kept"
    );
}

#[test]
fn tokens_and_money_are_added_and_what_is_unknown_stays_unknown() {
    let begin = commit(1, Phase::Active, vec![user("one"), started("t", 1)]);
    let priced = commit(2, Phase::Active, vec![finished(1, "a", Some(500))]);
    let unpriced = commit(3, Phase::Idle, vec![finished(2, "b", None), ended("t")]);

    let folded = fold(&[begin.clone(), priced.clone()]);
    let report = Report::of(&session(), folded.turn.as_ref());
    assert_eq!((report.usage.output, report.cost_usd), (10, Some(5e-7)));
    assert_eq!(report.status, "running");

    let folded = fold(&[begin, priced, unpriced]);
    let report = Report::of(&session(), folded.turn.as_ref());
    assert_eq!((report.usage.output, report.cost_usd), (20, None));
    assert_eq!(
        (report.text.as_str(), report.status.as_str()),
        ("a\nb", "completed")
    );
    assert_eq!(folded.usage.output, 20);
}

#[test]
fn an_approval_waits_until_it_is_answered_or_its_turn_ends() {
    let begin = commit(1, Phase::Active, vec![user("one"), started("t", 1)]);
    let hold = commit(2, Phase::Parked, vec![asked()]);
    let folded = fold(&[begin.clone(), hold.clone()]);
    let report = Report::of(&session(), folded.turn.as_ref());
    assert_eq!(report.status, "awaiting_approval");
    assert_eq!(report.approvals.len(), 1);
    let pending = folded
        .turn
        .expect("a turn")
        .pending
        .into_values()
        .next()
        .expect("one waits");
    assert_eq!(
        (pending.digest, pending.requested_at_ms),
        (pending.arguments.digest(), 2000)
    );

    let answer = Event::ApprovalResolved {
        approval: ApprovalId::parse("apr_1").expect("valid"),
        call: CallId::parse("call_1").expect("valid"),
        by: owner(),
        channel: "cli".to_owned(),
        digest: Digest::ZERO,
        decision: Decision::Approve,
    };
    let mut folded = fold(&[begin.clone(), hold.clone()]);
    let happenings = folded.apply(&session(), &commit(3, Phase::Active, vec![answer]));
    assert!(
        matches!(happenings.as_slice(), [Happening::Answered { how, .. }] if how == "approved by owner through cli")
    );
    assert!(folded.turn.expect("a turn").pending.is_empty());

    let folded = fold(&[begin, hold, commit(3, Phase::Idle, vec![ended("t")])]);
    assert_eq!(
        Report::of(&session(), folded.turn.as_ref()).status,
        "completed"
    );
    assert!(folded.turn.expect("a turn").pending.is_empty());
}

#[test]
fn events_outside_of_a_turn_change_nothing_that_is_shown() {
    let folded = fold(&[commit(
        1,
        Phase::Idle,
        vec![finished(1, "a", None), ended("t")],
    )]);
    assert_eq!(folded.turn, None);
    assert_eq!(Report::of(&session(), None).status, "unknown");
}

/// A session that is created anew under the name of a deleted one begins at nothing, whichever part of the old log is left; who
/// watched the old one still knows how it ended.
#[test]
fn a_session_behind_a_tombstone_begins_at_nothing() {
    let before = [
        commit(1, Phase::Active, vec![user("one"), started("t", 1)]),
        commit(2, Phase::Parked, vec![finished(1, "a", Some(500)), asked()]),
    ];
    let deletion = Event::SessionDeleted {
        by: owner(),
        turns: 1,
        queued: 0,
        approvals: Vec::new(),
        keys: Vec::new(),
        spent: Vec::new(),
    };
    let cancelled = Event::TurnEnded {
        turn: turn("t"),
        reason: EndReason::Cancelled { by: owner() },
    };
    let tombstone = commit(3, Phase::Deleted, vec![cancelled, deletion]);
    let late = commit(4, Phase::Deleted, Vec::new());
    let anew = commit(5, Phase::Active, vec![user("two"), started("u", 1)]);

    let watched = fold(&[before.as_slice(), &[tombstone.clone(), late.clone()]].concat());
    assert_eq!(
        Report::of(&session(), watched.turn.as_ref()).status,
        "cancelled"
    );
    let behind = [tombstone, late, anew];
    let folded = fold(&[before.as_slice(), &behind].concat());
    assert_eq!(folded, fold(&behind));
    assert_eq!((folded.turns, folded.commits), (1, 2));
    assert_eq!((folded.usage.total(), folded.cost), (0, None));
    assert_eq!(folded.created_at_ms, 5000);
    assert_eq!(folded.opening.as_deref(), Some("text of two"));
    assert!(folded.answers(&message("two")) && !folded.answers(&message("one")));
}
