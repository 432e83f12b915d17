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

fn assistant(n: u64) -> Event {
    finished(n, "a", None)
}

fn accepted(lost_from: u64) -> Event {
    Event::LossAccepted {
        by: owner(),
        lost_from,
        kept: Digest::ZERO,
        message: "a commit cannot be read".to_owned(),
        turns: 0,
        spent: Vec::new(),
        unknown: 0,
    }
}

/// SEC-55: commits that cannot be read hide how turns began and ended. A message is answered all the same by the turn that the log
/// still shows, and what waits for a person is shown.
#[test]
fn sec_55_a_reader_comes_to_the_end_of_a_turn_whose_log_has_gaps() {
    let whole = [
        commit(1, Phase::Active, vec![user("one"), started("t", 1)]),
        commit(2, Phase::Active, vec![assistant(1)]),
        commit(3, Phase::Idle, vec![ended("t")]),
        commit(4, Phase::Active, vec![user("two")]),
        commit(5, Phase::Active, vec![started("u", 2)]),
        commit(6, Phase::Parked, vec![assistant(5), asked()]),
        commit(7, Phase::Active, vec![user("three")]),
        commit(8, Phase::Idle, vec![ended("u")]),
        commit(9, Phase::Active, vec![user("four"), started("v", 3)]),
        commit(10, Phase::Idle, vec![assistant(9), ended("v")]),
    ];
    // Every pair of commits is lost, except for what the last turn needs.
    for first in 0..8 {
        for second in first..8 {
            let mut read = Session::default();
            for (index, commit) in whole.iter().enumerate() {
                if index == first || index == second {
                    continue;
                }
                read.apply(&session(), commit);
                let open = read.turn.as_ref().filter(|turn| turn.end.is_none());
                if index == 5 {
                    let waiting = open.expect("a turn waits").waiting().count();
                    assert_eq!(waiting, 1, "without {first} and {second}");
                }
                if index == 7 && first != 6 && second != 6 {
                    assert!(read.answers(&message("three")), "{first}, {second}");
                    assert!(open.is_none(), "{first}, {second}");
                }
            }
            assert!(read.has_gap());
            assert!(read.answers(&message("four")), "{first}, {second}");
            let report = Report::of(&session(), read.turn.as_ref());
            assert_eq!(report.status, "completed", "{first}, {second}");
            assert!(!read.answers(&message("two")), "{first}, {second}");
        }
    }
}

/// SEC-55: the acceptance of a loss ends the turn that it gives up, also for a reader that saw neither how it began nor an event of
/// its end, and what comes behind it is of turns of its own.
#[test]
fn sec_55_an_accepted_loss_ends_the_turn_that_a_reader_was_in() {
    for lost in [0, 1] {
        let behind = [
            commit(1, Phase::Active, vec![user("one"), started("t", 1)]),
            commit(2, Phase::Active, vec![assistant(1)]),
            commit(3, Phase::Parked, vec![assistant(2), asked()]),
        ];
        let mut read = Session::default();
        for (index, commit) in behind.iter().enumerate() {
            if index != lost {
                read.apply(&session(), commit);
            }
        }
        let phase = Phase::Idle;
        let told = read.apply(&session(), &commit(1027, phase, vec![accepted(1)]));
        let ends = matches!(told.as_slice(), [Happening::Ended(EndReason::Failed { code, .. })] if code == "session.log_damaged");
        assert!(ends, "{told:?}");
        assert!(!read.has_gap());
        let next = commit(1028, Phase::Active, vec![user("two"), started("u", 1)]);
        read.apply(&session(), &next);
        assert!(read.answers(&message("two")) && !read.answers(&message("one")));
        let told = read.apply(&session(), &commit(1029, Phase::Idle, vec![ended("u")]));
        assert_eq!(told, [Happening::Ended(EndReason::Completed)]);
    }
}
