//! Administration at any point of a session's life: it disturbs nothing, loses nothing, and a deletion leaves nothing.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use teamster_protocol::{
    BlobRef, CallId, Commit, Digest, Event, Lane, Message, MessageId, Phase, SessionId,
    commit::Outbox,
    event::{DropReason, EndReason, Settled},
    input::{Admin, AdminAction, Appended, Control, Fork, SessionOptions, TurnOptions},
    limits,
    message::{ResultKind, StopReason},
    usage::Budget,
};

use super::super::{
    Action, Draft, Fold, Incoming, Input, Outcome, State, fold::counting, fork::taken,
    state::CallState,
};

use super::{
    call_part,
    desk::Desk,
    message, principal, text_part,
    world::{World, check_transcript},
};

fn is_tombstone(commit: &Commit) -> bool {
    commit
        .events
        .iter()
        .any(|event| matches!(event, Event::SessionDeleted { .. }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// DUR-1, DUR-9: whatever an administrator does in mid-turn, while a person is asked and between crashes, calls and results
    /// stay paired, what was appended joins once, turns are numbered from one since the last deletion, and nothing takes effect twice.
    #[test]
    fn dur_1_administration_at_any_point_loses_and_doubles_nothing(seed in any::<u64>()) {
        let mut world = World::administered(seed);
        let state = world.run();
        let rests = state.head.as_ref().map(|head| head.phase);
        prop_assert!(matches!(rests, Some(Phase::Idle | Phase::Deleted)), "{rests:?}");
        prop_assert_eq!(rests == Some(Phase::Deleted), state.is_deleted());
        prop_assert!(state.waiting.is_empty());
        check_transcript(&state.transcript);
        for id in &world.fragile {
            prop_assert!(world.effects.get(id).copied().unwrap_or(0) <= 1, "{} took effect twice", id);
        }
        let mut turns_so_far = 0;
        let mut since = 0;
        let mut joined = Vec::new();
        let mut waiting: Vec<MessageId> = Vec::new();
        let mut open_turns = 0;
        for (_, commit) in &world.log {
            for event in &commit.events {
                match event {
                    Event::TurnStarted { number, .. } => {
                        turns_so_far += 1;
                        since += 1;
                        prop_assert_eq!(*number, since, "turns are numbered on");
                        open_turns += 1;
                    }
                    Event::TurnEnded { .. } => open_turns -= 1,
                    Event::AppendWaits { messages, .. } => waiting.extend(messages.iter().filter_map(id_of)),
                    Event::MessageAdded { message, appended: true, .. } => {
                        let id = id_of(message).expect("it has one");
                        if let Some(first) = waiting.first() {
                            prop_assert_eq!(first, &id, "what waited joins in order");
                            waiting.remove(0);
                        }
                        joined.push(id);
                    }
                    Event::SessionDeleted { turns, .. } => {
                        prop_assert_eq!(open_turns, 0, "the turn ends first");
                        prop_assert_eq!(*turns, turns_so_far, "all turns are counted");
                        since = 0;
                        waiting.clear();
                    }
                    _ => {}
                }
            }
        }
        prop_assert_eq!(open_turns, 0);
        prop_assert!(waiting.is_empty(), "nothing waits for ever");
        let once: BTreeSet<_> = joined.iter().collect();
        prop_assert_eq!(once.len(), joined.len(), "what was appended joins once");
        for (index, (_, commit)) in world.log.iter().enumerate() {
            prop_assert_eq!(commit.n, index as u64 + 1, "commits are numbered on");
        }
    }

    /// DUR-9: a deletion is a commit of its own without any content, and from it on the log folds to the same state whatever is
    /// left of what lay before.
    #[test]
    fn a_log_folds_from_its_deletion_on_whatever_is_left_before(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let mut world = World::administered(seed);
        let whole = world.run();
        let log = &world.log;
        let Some(last) = log.iter().rposition(|(_, commit)| is_tombstone(commit)) else { return Ok(()) };
        for (bytes, _) in log.iter().filter(|(_, commit)| is_tombstone(commit)) {
            let text = String::from_utf8_lossy(bytes);
            prop_assert!(!text.contains("secret") && !text.contains(r#""text":"message"#), "{text}");
        }
        let from = cut.index(last + 1);
        let mut fold = Fold::new(State::new(world.session.clone()));
        for (index, (bytes, _)) in log.iter().enumerate().skip(from) {
            fold.take(bytes, index as u64 + 1);
        }
        let mut state = fold.finish().expect("it folds");
        if state.missing().is_some() {
            state.supply(World::base());
        }
        prop_assert_eq!(state, whole);
        let stored: Vec<(u64, &[u8])> = log.iter().enumerate().skip(from)
            .map(|(index, (bytes, _))| (index as u64 + 1, bytes.as_slice())).collect();
        let counted = counting(&world.session, &stored).expect("readable");
        prop_assert_eq!(counted.len(), log.len() - last);
        prop_assert!(counted.first().is_some_and(|(_, commit)| is_tombstone(commit)));
    }
}

fn id_of(message: &Message) -> Option<MessageId> {
    match message {
        Message::User { id, .. } | Message::Custom { id, .. } => Some(id.clone()),
        _ => None,
    }
}

/// An administrator's input by its key.
fn admin(key: &str, action: AdminAction) -> Input {
    let session = SessionId::parse("s").expect("valid");
    Input::Control(Control::Admin(Box::new(Admin {
        id: MessageId::of_input(&session, "admin", key),
        by: principal(),
        action,
    })))
}

fn append(text: &str) -> AdminAction {
    AdminAction::Append {
        messages: vec![
            Appended::User {
                text: text.to_owned(),
            },
            Appended::Custom {
                kind: "note".to_owned(),
                text: text.to_owned(),
            },
        ],
    }
}

fn control(desk: &mut Desk, seq: u64, input: Input) {
    desk.take(&Outcome::Input(Incoming {
        lane: Lane::Ctl,
        seq,
        input,
    }));
}

fn texts(state: &State) -> Vec<&str> {
    let texts = state
        .transcript
        .iter()
        .filter_map(|message| match message.as_ref() {
            Message::User { text, .. }
            | Message::Custom { text, .. }
            | Message::FunctionResult { text, .. } => Some(text.as_str()),
            _ => None,
        });
    texts.collect()
}

/// DUR-9: what is appended while a call waits joins behind its result, and begins or prolongs no turn.
#[test]
fn what_is_appended_in_mid_step_joins_behind_the_results_and_begins_no_turn() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.generate(vec![call_part("t__read", "{}")], StopReason::Call);
    control(&mut desk, 1, admin("a", append("more")));
    control(&mut desk, 2, admin("b", append("most")));
    assert_eq!(texts(desk.state()), ["message first"]);
    desk.read("result");
    let joined = ["message first", "result", "more", "more", "most", "most"];
    assert_eq!(texts(desk.state()), joined);
    let action = desk.generate(vec![text_part("done")], StopReason::End);
    assert_eq!(
        (action, desk.reason()),
        (Action::Idle, Some(EndReason::Completed))
    );
    control(&mut desk, 3, admin("c", append("late")));
    assert_eq!(desk.action(), Action::Idle);
    assert_eq!(desk.state().turns, 1);
    assert_eq!(texts(desk.state()).last(), Some(&"late"));
    check_transcript(&desk.state().transcript);
}

/// An appended message that came while the model gave its last answer does not make it answer again.
#[test]
fn what_is_appended_in_mid_answer_does_not_prolong_the_turn() {
    let mut desk = Desk::new(TurnOptions::default());
    assert!(matches!(desk.action(), Action::Generate(_)));
    control(&mut desk, 1, admin("a", append("more")));
    assert_eq!(
        desk.generate(vec![text_part("done")], StopReason::End),
        Action::Idle
    );
    assert_eq!(desk.reason(), Some(EndReason::Completed));
    assert_eq!(desk.state().turn, None);
    assert!(matches!(
        desk.state().transcript.last().map(AsRef::as_ref),
        Some(Message::Custom { .. })
    ));
}

/// APPR-2: title and metadata change while a person is asked, and the request stands as it stood.
#[test]
fn appr_2_a_change_of_metadata_leaves_a_pending_request_alone() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.hold("t__ask", "{}");
    let before = desk.action();
    let held: Vec<_> = desk
        .state()
        .held()
        .map(|(call, held)| (call.clone(), held.clone()))
        .collect();
    assert!(matches!(before, Action::Await { .. }), "{before:?}");
    let change = AdminAction::SetMeta {
        title: Some("new".to_owned()),
        metadata: [("ticket".to_owned(), Some("7".to_owned()))].into(),
    };
    control(&mut desk, 1, admin("a", change));
    assert_eq!(desk.action(), before);
    let after: Vec<_> = desk
        .state()
        .held()
        .map(|(call, held)| (call.clone(), held.clone()))
        .collect();
    assert_eq!(after, held);
    let origin = desk.state().origin.as_ref().expect("it exists");
    assert_eq!(origin.title.as_deref(), Some("new"));
    assert_eq!(origin.metadata.get("ticket").map(String::as_str), Some("7"));
}

#[test]
fn bounds_of_administration_are_named() {
    let long = "x".repeat(limits::METADATA_BYTES_MAX + 1);
    let note = |name: &str, value: &str| AdminAction::SetMeta {
        title: None,
        metadata: [(name.to_owned(), Some(value.to_owned()))].into(),
    };
    let many = AdminAction::SetMeta {
        title: None,
        metadata: (0..=limits::METADATA_MAX)
            .map(|index| (index.to_string(), Some(String::new())))
            .collect(),
    };
    let title = AdminAction::SetMeta {
        title: Some("x".repeat(limits::TITLE_BYTES_MAX + 1)),
        metadata: [].into(),
    };
    let nothing = AdminAction::Append {
        messages: Vec::new(),
    };
    let huge = AdminAction::Append {
        messages: vec![
            Appended::User {
                text: "x".repeat(limits::MESSAGE_BYTES_MAX),
            };
            3
        ],
    };
    let cases = [
        (note(&long, "v"), "a name of metadata"),
        (note("", "v"), "a name of metadata"),
        (note("n", &long), "a value of metadata"),
        (many, "at most 32"),
        (title, "the title has"),
        (nothing, "1 to 64 messages"),
        (append(" "), "is empty"),
        (huge, "together"),
    ];
    for (index, (action, want)) in cases.into_iter().enumerate() {
        let mut desk = Desk::new(TurnOptions::default());
        let before = desk.state().clone();
        let key = index.to_string();
        control(&mut desk, 1, admin(&key, action));
        let Some(DropReason::Malformed { message }) = desk.dropped() else {
            panic!("{want}: it was taken")
        };
        assert!(message.contains(want), "{message}");
        assert_eq!(desk.state().origin, before.origin);
        assert_eq!(desk.state().transcript, before.transcript);
    }
}

/// DUR-2: a fork is the first commit of its session and of no other; what it begins with is supplied once.
#[test]
fn dur_2_a_fork_begins_a_session_and_never_one_that_exists() {
    let session = SessionId::parse("s").expect("valid");
    let messages = World::base();
    let bytes = serde_json::to_vec(&messages).expect("encodes");
    let fork = Fork {
        source: SessionId::parse("source").expect("valid"),
        at: 3,
        hash: Digest::of("x"),
        transcript: BlobRef::of(&bytes),
        messages: 1,
        options: TurnOptions {
            model: Some("a/b".to_owned()),
            ..TurnOptions::default()
        },
        masked: Vec::new(),
        stored: BTreeMap::new(),
        session: SessionOptions {
            workspace: Some("/tmp".to_owned()),
            ..SessionOptions::default()
        },
    };
    let begin = AdminAction::Fork {
        fork: Box::new(fork),
    };
    let mut desk = Desk::new(TurnOptions::default());
    control(&mut desk, 1, admin("f", begin.clone()));
    assert_eq!(desk.dropped(), Some(DropReason::SessionExists));
    assert_eq!(desk.state().base, None);
    let mut draft = Draft::new(State::new(session.clone()));
    let incoming = |lane, seq, input| Outcome::Input(Incoming { lane, seq, input });
    assert!(draft.take(&incoming(Lane::Ctl, 1, admin("f", begin)), 1));
    let base = *draft.state().missing().expect("a fold cannot know it");
    let read = super::super::admin::read_base(&bytes, base.messages).expect("readable");
    assert!(super::super::admin::read_base(&bytes, 2).is_err());
    assert!(draft.take(&incoming(Lane::In, 1, message(&session, "go on")), 1));
    draft.supply(read);
    assert_eq!(draft.state().transcript.len(), 2);
    assert_eq!(
        draft.state().transcript.first().map(AsRef::as_ref),
        messages.first()
    );
    assert_eq!(draft.state().missing(), None);
    assert_eq!(draft.state().options.model.as_deref(), Some("a/b"));
    assert_eq!(
        draft.state().wanted.model.as_deref(),
        Some("a/b"),
        "later turns, too"
    );
}

/// DUR-2, DUR-9: what a fork takes over has no open call, no budget and no approval; the source stays as it is.
#[test]
fn dur_2_open_calls_are_cancelled_in_the_fork_and_go_on_in_the_source() {
    let budget = Budget {
        calls: Some(9),
        ..Budget::default()
    };
    let mut desk = Desk::new(TurnOptions {
        budget,
        ..TurnOptions::default()
    });
    desk.hold("t__ask", "{}");
    let source = desk.state().clone();
    let fork = taken(&source);
    assert_eq!(desk.state(), &source);
    assert!(source.held().next().is_some());
    check_transcript(&fork.messages);
    let results: Vec<_> = fork
        .messages
        .iter()
        .filter_map(|message| match message.as_ref() {
            Message::FunctionResult { outcome, text, .. } => {
                Some((*outcome, text.contains("cancelled by fork")))
            }
            _ => None,
        })
        .collect();
    assert_eq!(results, [(ResultKind::Cancelled, true)]);
    assert!(fork.options.budget.is_empty());
    let mut desk = Desk::new(TurnOptions::default());
    desk.generate(vec![call_part("t__write", "{}")], StopReason::Call);
    desk.allow();
    assert!(matches!(desk.action(), Action::Invoke(_)));
    let fork = taken(desk.state());
    check_transcript(&fork.messages);
    assert!(matches!(
        fork.messages.last().map(AsRef::as_ref),
        Some(Message::FunctionResult { outcome: ResultKind::OutcomeUnknown, text, .. }) if text.starts_with("cancelled by fork")
    ));
    assert!(matches!(
        desk.state().turn.as_ref().expect("runs").calls[0].state,
        CallState::Started { .. }
    ));
}

/// DUR-9: a deletion ends the turn as a stop does and withdraws what is asked; what comes later begins a new session whose
/// commits are numbered on and whose turns begin at one, and neither a repeated deletion nor a repeated message touches it.
#[test]
fn dur_9_a_deletion_ends_the_turn_and_a_later_message_begins_anew() {
    let session = SessionId::parse("s").expect("valid");
    let mut desk = Desk::new(TurnOptions::default());
    desk.hold("t__ask", "{}");
    let asked: Vec<_> = desk
        .state()
        .held()
        .map(|(_, held)| held.approval.clone())
        .collect();
    desk.commit();
    let delete = || admin("d", AdminAction::Delete);
    control(&mut desk, 1, delete());
    assert!(
        !desk.fits(Lane::In, 2, message(&session, "second")),
        "a deletion is a commit of its own"
    );
    let commit = desk.commit();
    assert_eq!(
        (commit.head.phase, &commit.outbox[0]),
        (Phase::Deleted, &Outbox::CleanUp)
    );
    let ends: Vec<_> = commit
        .events
        .iter()
        .filter(|event| {
            matches!(
                event,
                Event::TurnEnded {
                    reason: EndReason::Cancelled { .. },
                    ..
                } | Event::ApprovalExpired {
                    withdrawn: true,
                    ..
                }
            )
        })
        .collect();
    assert_eq!(ends.len(), 2);
    let Some(Event::SessionDeleted {
        approvals,
        turns: 1,
        ..
    }) = commit.events.last()
    else {
        panic!("{:?}", commit.events)
    };
    assert_eq!(approvals[0].approval, asked[0]);
    assert!(matches!(
        approvals[0].settled,
        Some(Settled::Withdrawn { .. })
    ));
    assert_eq!(desk.action(), Action::Idle);
    control(&mut desk, 2, delete());
    assert_eq!(desk.dropped(), Some(DropReason::Duplicate));
    desk.commit();
    assert!(
        desk.fits(Lane::In, 2, message(&session, "first")),
        "it is read"
    );
    assert_eq!(desk.dropped(), Some(DropReason::Duplicate));
    control(&mut desk, 3, admin("m", append("x")));
    assert_eq!(desk.dropped(), Some(DropReason::NoSession));
    let commit = desk.commit();
    assert_eq!(
        (commit.head.phase, &commit.outbox[..]),
        (Phase::Deleted, &[Outbox::CleanUp][..])
    );
    assert!(
        desk.fits(Lane::In, 3, message(&session, "second")),
        "it is read"
    );
    desk.action();
    let commit = desk.commit();
    assert_eq!(commit.n, 5);
    assert_eq!(
        commit.outbox,
        [Outbox::CleanUp],
        "the deletion may be half done"
    );
    let state = desk.state();
    assert_eq!((state.turns, texts(state)), (1, vec!["message second"]));
    assert_eq!(state.turn.as_ref().map(|turn| turn.number), Some(1));
    assert_eq!((state.commits(), state.usage.total()), (3, 0));
    assert_eq!(state.approvals.len(), 1);
    desk.generate(vec![text_part("done")], StopReason::End);
    assert_eq!(desk.commit().outbox, []);
    control(&mut desk, 4, admin("e", AdminAction::Delete));
    let commit = desk.commit();
    let Some(Event::SessionDeleted { turns: 2, .. }) = commit.events.last() else {
        panic!("a tombstone counts the turns of both: {:?}", commit.events)
    };
}

#[test]
fn a_deleted_session_is_none_for_administration_and_may_be_created_again() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.commit();
    let ask = |desk: &mut Desk, seq: u64, action: AdminAction| {
        control(desk, seq, admin(&seq.to_string(), action));
        let dropped = desk.dropped();
        desk.commit();
        dropped
    };
    let create = || AdminAction::Create {
        session: SessionOptions::default(),
    };
    assert_eq!(ask(&mut desk, 1, create()), Some(DropReason::SessionExists));
    assert_eq!(ask(&mut desk, 2, AdminAction::Delete), None);
    assert_eq!(
        ask(&mut desk, 3, AdminAction::Delete),
        Some(DropReason::NoSession)
    );
    assert_eq!(ask(&mut desk, 4, create()), None);
    assert!(desk.state().exists());
    assert_eq!(desk.action(), Action::Idle, "nothing waits in it");
}

/// What is asked for at once is larger than one commit may be: it joins in parts.
#[test]
fn what_waits_joins_in_as_many_commits_as_it_takes() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.generate(vec![call_part("t__read", "{}")], StopReason::Call);
    desk.commit();
    let text = "x".repeat(limits::MESSAGE_BYTES_MAX);
    for seq in 1..=4 {
        let messages = vec![Appended::User { text: text.clone() }; 2];
        control(
            &mut desk,
            seq,
            admin(&seq.to_string(), AdminAction::Append { messages }),
        );
        let dropped = desk.dropped();
        assert_eq!(dropped.is_some(), seq == 4, "{seq}: {dropped:?}");
        desk.commit();
    }
    desk.read("result");
    assert_eq!(desk.state().waiting.len(), 0);
    let users = desk
        .state()
        .transcript
        .iter()
        .filter(|message| matches!(message.as_ref(), Message::User { .. }));
    assert_eq!(users.count(), 7);
}

/// Calls that are masked stay masked in a fork, as far as it knows them.
#[test]
fn a_fork_keeps_the_masks_of_calls_that_it_knows() {
    let mut desk = Desk::new(TurnOptions::default());
    desk.generate(vec![call_part("t__read", "{}")], StopReason::Call);
    let known = desk.state().turn.as_ref().expect("runs").calls[0]
        .id
        .clone();
    desk.read("result");
    let mut state = desk.state().clone();
    state.masked = [
        known.clone(),
        CallId::parse("call_00000000000000000000000000000000").unwrap_or_else(|_| known.clone()),
    ]
    .into();
    assert_eq!(taken(&state).masked, [known]);
}
