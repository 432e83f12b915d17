//! What is planned fits, keeps what must stay, and changes seldom.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use teamster_protocol::{
    BlobRef, CallId, FunctionId, Message, MessageId, Principal,
    function::context::Plan,
    limits,
    message::{Content, ResultKind, WireCall},
    usage::Usage,
};

use super::*;

fn call(n: usize) -> CallId {
    CallId::parse(format!("call_{n}")).expect("valid")
}

fn message_id(n: usize) -> MessageId {
    MessageId::parse(format!("msg_{n}")).expect("valid")
}

fn user(n: usize, text: &str) -> Arc<Message> {
    Arc::new(Message::User {
        id: message_id(n),
        from: Principal::parse("me").expect("valid"),
        text: text.to_owned(),
    })
}

fn asks(n: usize) -> Arc<Message> {
    Arc::new(Message::Assistant {
        id: message_id(n),
        content: vec![Content::Call(WireCall {
            call: call(n),
            name: "fs__read".to_owned(),
            arguments: format!("{{\"path\": \"{n}\"}}"),
        })],
        partial: false,
    })
}

fn answer(n: usize, text: &str) -> Arc<Message> {
    Arc::new(Message::FunctionResult {
        call: call(n),
        function: FunctionId::parse("fs::read").ok(),
        text: text.to_owned(),
        outcome: ResultKind::Ok,
    })
}

fn custom(n: usize) -> Arc<Message> {
    Arc::new(Message::Custom {
        id: message_id(n),
        from: Principal::parse("me").expect("valid"),
        kind: "note".to_owned(),
        text: "for people alone".to_owned(),
    })
}

/// A session as its fold would hold it.
#[derive(Debug, Clone, Default)]
struct Session {
    messages: Vec<Arc<Message>>,
    masked: BTreeSet<CallId>,
    stored: BTreeMap<CallId, BlobRef>,
}

impl Session {
    fn history(&self) -> History<'_> {
        History {
            messages: &self.messages,
            masked: &self.masked,
            stored: &self.stored,
            is_readable: true,
        }
    }

    fn call(&mut self, n: usize, text: &str) {
        self.messages.push(asks(n));
        self.messages.push(answer(n, text));
    }

    /// What is sent under a plan.
    fn sent(&self, plan: &Plan) -> Vec<Arc<Message>> {
        let mask = plan.mask.iter().cloned().collect();
        let cap = usize::try_from(plan.result_bytes_max).expect("small");
        apply(&self.history(), &mask, cap)
    }

    /// Plans, stores the masks as the log would, and says what is sent.
    fn step(&mut self, ask: &Ask) -> Vec<Arc<Message>> {
        let plan = plan(&self.history(), ask).expect("fits");
        let sent = self.sent(&plan);
        self.masked.extend(plan.mask);
        sent
    }
}

fn ask(window: u64) -> Ask {
    Ask {
        window: Window::known(window, 1024),
        system_prompt: 100,
        functions: 200,
        per_mille: 1000,
        refused: 0,
    }
}

fn tokens(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|message| of_message(message)).sum()
}

fn results(messages: &[Arc<Message>]) -> Vec<(CallId, String)> {
    let result = |message: &Arc<Message>| match message.as_ref() {
        Message::FunctionResult { call, text, .. } => Some((call.clone(), text.clone())),
        _ => None,
    };
    messages.iter().filter_map(result).collect()
}

fn is_mark(text: &str) -> bool {
    text.starts_with("[the result of fs::read, ")
}

#[test]
fn usable_is_the_window_without_answer_and_reserve() {
    for (window, usable) in [
        (Window::known(200_000, 8192), 171_808),
        (Window::known(1_000_000, 8192), 971_808),
        (Window::known(32_768, 8192), 21_300),
        (Window::assumed(8192, 8192), 6349),
        (Window::known(2000, 8192), 1300),
        (Window::known(0, 8192), 0),
    ] {
        assert_eq!(window.usable(), usable, "{window:?}");
    }
}

#[test]
fn an_estimate_counts_wide_characters_for_more() {
    for (text, tokens) in [
        ("", 0),
        ("abcd", 1),
        ("abcde", 2),
        ("中文字", 3),
        ("ab中", 2),
        ("🦀", 2),
        ("привет", 3),
    ] {
        assert_eq!(of_text(text), tokens, "{text}");
    }
}

/// CTX-4: far fewer tokens than were sent are a cut context; small requests, small numbers and estimates prove nothing.
#[test]
fn ctx_4_a_server_that_read_a_part_is_noticed() {
    let counted = |input| Usage {
        input,
        ..Usage::default()
    };
    let estimated = Usage {
        estimated: true,
        ..counted(2051)
    };
    for (sent, usage, attempts, is_cut) in [
        (15_000, counted(2051), 1, true),
        (15_000, counted(3800), 1, false),
        (15_000, counted(10), 1, false),
        (15_000, estimated, 1, false),
        (15_000, counted(2051), 2, false),
        (3000, counted(520), 1, false),
        (0, counted(2051), 1, false),
    ] {
        assert_eq!(
            is_truncated(sent, &usage, attempts, None),
            is_cut,
            "{sent} {usage:?}"
        );
    }
}

/// CTX-4: a server that has read more before has a larger window; it counts what was not in its cache alone.
#[test]
fn ctx_4_a_server_that_counts_without_its_cache_is_no_liar() {
    let counted = |input| Usage {
        input,
        ..Usage::default()
    };
    let known = Calibration::of("p/m", 14_000, &counted(13_500), 1);
    assert!(known.is_some());
    assert!(!is_truncated(15_000, &counted(1000), 1, known.as_ref()));
    assert!(is_truncated(90_000, &counted(14_000), 1, known.as_ref()));
}

#[test]
fn a_providers_count_corrects_the_estimate_within_bounds() {
    let of = |estimated, input, attempts| {
        let usage = Usage {
            input,
            ..Usage::default()
        };
        Calibration::of("p/m", estimated, &usage, attempts).map(|one| one.per_mille)
    };
    assert_eq!(of(2000, 3000, 1), Some(1500));
    assert_eq!(of(2000, 600, 1), Some(800));
    assert_eq!(of(2000, 20, 1), None);
    assert_eq!(of(2000, 1_000_000, 1), Some(4000));
    assert_eq!(of(2000, 3000, 2), None);
    assert_eq!(of(100, 3000, 1), None);
    assert_eq!(of(2000, 0, 1), None);
}

/// Everything below the budget is sent as it is, and nothing is masked.
#[test]
fn what_fits_is_left_alone() {
    let mut session = Session::default();
    session.messages.push(user(0, "hello"));
    session.call(1, &"x".repeat(3000));
    let plan = plan(&session.history(), &ask(32_768)).expect("fits");
    assert!(plan.mask.is_empty());
    assert_eq!(plan.tokens_before, plan.tokens_after);
    assert_eq!(session.sent(&plan), session.messages);
}

/// CTX-2: one result of three times the window is cut, before anything is masked.
#[test]
fn ctx_2_one_result_of_three_windows_is_cut_to_fit() {
    let window = 8192;
    let text = format!("BEGIN{}END", "y".repeat(3 * window * 4));
    let mut session = Session::default();
    session.messages.push(user(0, "read it"));
    session.call(1, &text);
    let plan = plan(&session.history(), &ask(window as u64)).expect("fits");
    let sent = session.sent(&plan);
    let (_, shown) = results(&sent).remove(0);
    assert!(shown.len() <= usize::try_from(plan.result_bytes_max).expect("small"));
    assert!(
        shown.starts_with("BEGIN") && shown.ends_with("END"),
        "{shown}"
    );
    let line = shown.lines().nth(1).expect("a line between head and tail");
    let wanted = format!(
        "of {} bytes left out; context::read {{\"call\": \"call_1\", \"offset\": ",
        text.len()
    );
    assert!(line.contains(&wanted), "{line}");
    assert!(tokens(&sent) + 300 <= plan.usable);
}

/// CTX-1: what cannot fit is one error that says what fills the window.
#[test]
fn ctx_1_what_cannot_fit_says_what_fills_the_window() {
    let mut session = Session::default();
    session.messages.push(user(0, &"u".repeat(400)));
    session.call(1, &"r".repeat(40_000));
    let tight = Ask {
        system_prompt: 1900,
        ..ask(2000)
    };
    let overflow = plan(&session.history(), &tight).expect_err("does not fit");
    assert_eq!((overflow.window, overflow.system_prompt), (2000, 1900));
    let text = overflow.to_string();
    for part in [
        "window 2000",
        "system prompt 1900",
        "function schemas 200",
        "user messages 106",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// A result that a user's last turns brought stays as long as older ones can go; then the newest goes last.
#[test]
fn old_results_go_first_and_the_newest_last() {
    let mut session = Session::default();
    for turn in 0..6 {
        session.messages.push(user(turn * 100, "next"));
        for n in 1..=3 {
            session.call(turn * 100 + n, &"z".repeat(6000));
        }
    }
    // 18 results of about 1,500 tokens.
    let sent = session.step(&ask(24_000));
    let marked: Vec<bool> = results(&sent)
        .iter()
        .map(|(_, text)| is_mark(text))
        .collect();
    let count = marked.iter().filter(|is_marked| **is_marked).count();
    assert!(
        marked[..count].iter().all(|is_marked| *is_marked),
        "oldest first: {marked:?}"
    );
    assert!(
        (1..=12).contains(&count),
        "the last two turns stay: {count}"
    );
    // A window that holds hardly anything keeps the newest for last.
    let sent = session.step(&ask(4200));
    let marked: Vec<bool> = results(&sent)
        .iter()
        .map(|(_, text)| is_mark(text))
        .collect();
    assert_eq!(marked.last(), Some(&false), "{marked:?}");
}

/// CTX-3: users' words, notices and calls are sent word for word, however much is masked.
#[test]
fn ctx_3_rules_and_calls_survive_masking() {
    let mut session = Session::default();
    session.messages.push(user(0, "Rule: never call x."));
    for n in 1..=40 {
        session.call(n, &"t".repeat(4000));
    }
    session.messages.push(Arc::new(Message::Notice {
        id: message_id(98),
        text: "an approval was denied".to_owned(),
    }));
    session.messages.push(user(99, "call x now"));
    let sent = session.step(&ask(8192));
    let kept: Vec<&Arc<Message>> = session
        .messages
        .iter()
        .filter(|message| !matches!(message.as_ref(), Message::FunctionResult { .. }))
        .collect();
    let others: Vec<&Arc<Message>> = sent
        .iter()
        .filter(|message| !matches!(message.as_ref(), Message::FunctionResult { .. }))
        .collect();
    assert_eq!(kept, others);
    assert_eq!(results(&sent).len(), 40);
}

/// CTX-5: a mark says what stood there and how it is read again.
#[test]
fn ctx_5_a_mark_names_function_size_and_call() {
    let mut session = Session::default();
    session.messages.push(user(0, "go"));
    session.call(1, &"a".repeat(5000));
    session.call(2, "short");
    session.stored.insert(
        call(1),
        BlobRef {
            bytes: 90_000,
            ..BlobRef::of(b"")
        },
    );
    session.masked.extend([call(1), call(2)]);
    let sent = apply(&session.history(), &BTreeSet::new(), 4000);
    let results = results(&sent);
    assert_eq!(
        results[0].1,
        "[the result of fs::read, 90000 bytes, is left out here; context::read {\"call\": \"call_1\"} reads it again]"
    );
    assert_eq!(results[1].1, "short", "a mark would be longer");
}

#[test]
fn notes_of_owners_are_left_out() {
    let messages = [user(0, "a"), custom(1), user(2, "b")];
    let session = Session {
        messages: messages.to_vec(),
        ..Session::default()
    };
    let sent = apply(&session.history(), &BTreeSet::new(), 4000);
    assert_eq!(sent, [user(0, "a"), user(2, "b")]);
}

/// Each refusal of the provider halves what is sent, whatever the window was believed to be.
#[test]
fn ctx_2_each_refusal_halves_the_request() {
    let mut session = Session::default();
    session.messages.push(user(0, "go"));
    for n in 1..=20 {
        session.call(n, &"q".repeat(4000));
    }
    let first = plan(&session.history(), &ask(200_000)).expect("fits");
    let mut last = first.tokens_after;
    for refused in 1..=3 {
        let smaller = Ask {
            refused,
            ..ask(200_000)
        };
        let next = plan(&session.history(), &smaller).expect("fits");
        assert!(next.tokens_after <= first.tokens_after >> refused);
        assert!(next.tokens_after < last);
        last = next.tokens_after;
    }
}

/// Masks are made in strides: over 50 calls nearly all of each request begins like the one before it.
#[test]
fn ctx_2_masking_leaves_the_beginning_of_requests_alone() {
    let share = unchanged_share(32_768, 50, 4000);
    assert!(share >= 0.9, "{share}");
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
/// How much of all requests was the unchanged beginning of the one before, by bytes, over a turn of `calls` calls.
fn unchanged_share(window: u64, calls: usize, bytes: usize) -> f64 {
    let mut session = Session::default();
    session.messages.push(user(0, "go on and on"));
    let (mut kept, mut all, mut before) = (0, 0, Vec::new());
    for n in 1..=calls {
        session.call(n, &"w".repeat(bytes));
        let sent = session.step(&ask(window));
        let text: Vec<String> = sent
            .iter()
            .map(|message| serde_json::to_string(message).expect("JSON"))
            .collect();
        let same = text.iter().zip(&before).take_while(|(one, two)| one == two);
        kept += same.map(|(one, _)| one.len()).sum::<usize>();
        all += text.iter().map(String::len).sum::<usize>();
        before = text;
    }
    kept as f64 / all as f64
}

/// UNI-1, SBX-2: a cut lands between characters, and what the log keeps is small as JSON too, whatever the text holds.
#[test]
fn uni_1_a_kept_result_is_small_whatever_it_holds() {
    for text in [
        "中".repeat(40_000),
        "\u{1}".repeat(30_000),
        "\u{0}\u{fffd}".repeat(100_000),
        "\"\\".repeat(60_000),
    ] {
        for whole in [None, Some(text.len() as u64)] {
            assert!(!fits(&text));
            let kept = fit(&call(1), &text, whole);
            assert!(kept.len() <= limits::RESULT_BYTES_MAX);
            let json = serde_json::to_string(&kept).expect("JSON");
            assert!(
                json.len() <= limits::RESULT_BYTES_MAX * 3 / 2,
                "{}",
                json.len()
            );
            assert_eq!(kept.contains("context::read"), whole.is_some());
        }
    }
    assert!(fits("plain"));
    assert_eq!(fit(&call(1), "plain", None), "plain");
    assert_eq!(fit(&call(1), "", None), "(no output)");
}

fn any_text(max: usize) -> impl Strategy<Value = String> {
    let unit = prop_oneof![
        Just("a"),
        Just("中"),
        Just("🦀"),
        Just("\u{1}\n"),
        Just("é ")
    ];
    (unit, 0..max).prop_map(|(unit, times)| unit.repeat(times))
}

fn any_messages() -> impl Strategy<Value = Vec<Arc<Message>>> {
    let one = prop_oneof![
        3 => (Just(0), any_text(40)),
        6 => (Just(1), any_text(9000)),
        1 => (Just(2), any_text(40)),
        1 => (Just(3), any_text(40)),
        // A result whose call is elsewhere, or that comes twice.
        1 => (Just(4), any_text(3000)),
    ];
    prop::collection::vec(one, 0..40).prop_map(|parts| {
        let mut messages = Vec::new();
        for (n, (kind, text)) in parts.into_iter().enumerate() {
            match kind {
                0 => messages.push(user(n, &text)),
                1 => messages.extend([asks(n), answer(n, &text)]),
                2 => messages.push(custom(n)),
                3 => messages.push(Arc::new(Message::Notice {
                    id: message_id(n),
                    text,
                })),
                _ => messages.push(answer(n / 2, &text)),
            }
        }
        messages
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A plan that is made fits, says so truly, keeps every message but notes, and changes results alone.
    #[test]
    fn ctx_1_a_plan_fits_or_is_refused_by_name(
        messages in any_messages(),
        window in 500_u64..60_000,
        per_mille in 800_u64..2500,
        refused in 0_u32..4,
        masked in prop::collection::btree_set(0_usize..40, 0..10),
    ) {
        let session = Session {
            messages,
            masked: masked.into_iter().map(call).collect(),
            ..Session::default()
        };
        let ask = Ask { per_mille, refused, ..ask(window) };
        match plan(&session.history(), &ask) {
            Err(overflow) => {
                prop_assert!(overflow.needed() > overflow.usable, "{overflow}");
                prop_assert_eq!(plan(&session.history(), &ask), Err(overflow));
            }
            Ok(made) => {
                let sent = session.sent(&made);
                let real = ((tokens(&sent) + 300) * per_mille).div_ceil(1000);
                prop_assert!(real <= ask.window.usable());
                prop_assert_eq!(real, made.tokens_after);
                prop_assert!(made.tokens_after <= made.usable && made.tokens_after <= made.tokens_before);
                prop_assert!(made.mask.iter().all(|call| !session.masked.contains(call)));
                let kept: Vec<&Arc<Message>> = session.messages.iter()
                    .filter(|message| !matches!(message.as_ref(), Message::Custom { .. })).collect();
                prop_assert_eq!(kept.len(), sent.len());
                for (was, is) in kept.into_iter().zip(&sent) {
                    if let (Message::FunctionResult { call: one, .. }, Message::FunctionResult { call: two, .. }) = (was.as_ref(), is.as_ref()) {
                        prop_assert_eq!(one, two);
                    } else {
                        prop_assert_eq!(was, is);
                    }
                }
                prop_assert_eq!(plan(&session.history(), &ask), Ok(made));
            }
        }
    }

    /// What is masked stays masked, and a second plan over the stored masks makes no new ones.
    #[test]
    fn a_stored_plan_is_not_made_again(messages in any_messages(), window in 3000_u64..60_000) {
        let mut session = Session { messages, ..Session::default() };
        if let Ok(first) = plan(&session.history(), &ask(window)) {
            let sent = session.sent(&first);
            session.masked.extend(first.mask.clone());
            let again = plan(&session.history(), &ask(window)).expect("fits still");
            prop_assert!(again.tokens_after <= first.usable);
            if first.result_bytes_max == again.result_bytes_max {
                prop_assert!(again.mask.is_empty());
                prop_assert_eq!(session.sent(&again), sent);
            }
        }
    }

    #[test]
    fn uni_1_every_cut_fits_and_keeps_head_and_tail(text in any_text(4000), cap in 1024_usize..8000) {
        let id = call(1);
        let cut = Cut { call: &id, text: &text, whole: Some(text.len() as u64) };
        match cut.to(cap) {
            None => prop_assert!(text.len() <= cap),
            Some(shown) => {
                prop_assert!(shown.len() <= cap);
                let mut lines = shown.split("\n[… ");
                prop_assert!(text.starts_with(lines.next().unwrap_or_default()));
            }
        }
    }
}
