//! `context::assemble`.

use std::{collections::BTreeMap, time::Duration};

use teamster_context::Config;
use teamster_protocol::{
    Event,
    fault::FaultClass,
    function::context::{AssembleRequest, History},
};

use crate::rig::{KNOWN, Rig, Writer, call, of_session, results, user};

/// A worker reads the log by itself, and later only what is new; a plan that is made again is equal, by another worker too.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_read_from_its_log_and_planned_alike_by_each_worker() {
    let mut rig = Rig::start(&Config::default()).await;
    let mut writer = Writer::new(&rig, "s", "go").await;
    for n in 1..=30 {
        writer.step(n, &"x".repeat(4000)).await;
    }
    let first = rig.assemble(&of_session("s", None)).await.expect("a plan");
    let plan = &first.plan;
    assert!(
        !plan.mask.is_empty() && plan.mask.contains(&call(1)),
        "{plan:?}"
    );
    assert!(
        plan.tokens_before > plan.usable && plan.tokens_after <= plan.usable,
        "{plan:?}"
    );
    let messages = first.messages.as_deref().expect("messages");
    assert_eq!(messages.len(), 61);
    assert!(
        results(messages)[0].starts_with("[the result of fs::read, 4000 bytes, is left out here")
    );

    // With the masks in the log the next plan has none, and says the same of an older commit as before.
    let masked = Event::ContextMasked {
        calls: plan.mask.clone(),
        tokens_before: plan.tokens_before,
        tokens_after: plan.tokens_after,
    };
    writer.commit(vec![masked]).await;
    let next = rig.assemble(&of_session("s", None)).await.expect("a plan");
    assert!(next.plan.mask.is_empty());
    assert_eq!(next.messages, first.messages);
    let older = of_session("s", Some(31));
    assert_eq!(rig.assemble(&older).await.expect("a plan"), first);
    rig.start_context(&Config::default()).await;
    assert_eq!(rig.assemble(&older).await.expect("a plan"), first);
    assert_eq!(
        rig.assemble(&of_session("s", None)).await.expect("a plan"),
        next
    );
}

/// The answer waits for a commit that is not there yet, and says so when it does not come.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_waits_for_the_commit_that_counts() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = Writer::new(&rig, "s", "go").await;
    let short = Duration::from_millis(700);
    let early: Result<serde_json::Value, _> = rig
        .call("context::assemble", None, &of_session("s", Some(3)), short)
        .await;
    let fault = early.expect_err("is not there");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("context.not_yet", FaultClass::Busy)
    );
    let request = of_session("s", Some(3));
    let (reply, ()) = tokio::join!(rig.assemble(&request), async {
        writer.step(1, "one").await;
        writer.step(2, "two").await;
        writer.step(3, "three").await;
    });
    let messages = reply.expect("a plan").messages.expect("messages");
    assert_eq!(results(&messages), ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_not_there_is_said() {
    let rig = Rig::start(&Config::default()).await;
    let fault = rig
        .assemble(&of_session("nobody", None))
        .await
        .expect_err("is not there");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("context.no_session", FaultClass::Gone)
    );
}

/// CTX-1: what cannot fit is a named fault with the parts that fill the window.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_1_an_overflow_is_a_fault_with_a_list() {
    let config = Config {
        windows: BTreeMap::from([("test/tiny".to_owned(), 2000)]),
        ..Config::default()
    };
    let rig = Rig::start(&config).await;
    let request = AssembleRequest {
        history: History::Inline {
            messages: vec![user("hello").into()],
        },
        model: "test/tiny".to_owned(),
        system_prompt: Some("p".repeat(7600)),
        functions_bytes: 400,
        max_output_tokens: 500,
        plan_only: false,
    };
    let fault = rig.assemble(&request).await.expect_err("does not fit");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("context.overflow", FaultClass::Caller)
    );
    for part in [
        "window 2000",
        "system prompt 1900",
        "function schemas 100",
        "user messages 8",
    ] {
        assert!(fault.message.contains(part), "{}", fault.message);
    }
    let hint = fault.hint.expect("a hint");
    for way in [
        "shorten the system prompt",
        "teamster config set 'context.windows.\"test/tiny\"' TOKENS",
        "--model PROVIDER/NAME",
    ] {
        assert!(hint.contains(way), "{hint}");
    }
    assert_eq!(rig.asked(), 0, "the configuration knows the window");
}

/// Standalone: messages that came along are fitted, and nothing promises that a result can be read again.
#[tokio::test(flavor = "multi_thread")]
async fn inline_messages_are_fitted_into_an_assumed_window() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = Writer::new(&rig, "s", "go").await;
    for n in 1..=12 {
        writer.step(n, &"y".repeat(5000)).await;
    }
    let held = AssembleRequest {
        max_output_tokens: 0,
        ..of_session("s", None)
    };
    let messages = rig
        .assemble(&held)
        .await
        .expect("fits")
        .messages
        .expect("messages");
    let request = AssembleRequest {
        history: History::Inline { messages },
        model: "test/unheard-of".to_owned(),
        max_output_tokens: 8192,
        ..held
    };
    let reply = rig.assemble(&request).await.expect("fits");
    assert_eq!((reply.plan.window, reply.plan.usable), (8192, 6349));
    assert!(!reply.plan.mask.is_empty());
    let sent = reply.messages.expect("messages");
    assert!(
        results(&sent)
            .iter()
            .all(|text| !text.contains("context::read"))
    );
    // What the router said, or that it knows nothing, is not asked for each time.
    let before = rig.asked();
    rig.assemble(&request).await.expect("fits");
    rig.assemble(&of_session("s", None)).await.expect("fits");
    assert_eq!(rig.asked(), before);
}

/// A plan alone is small, however long the history is.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_alone_carries_no_messages() {
    let rig = Rig::start(&Config::default()).await;
    Writer::new(&rig, "s", "go").await;
    let request = AssembleRequest {
        plan_only: true,
        ..of_session("s", None)
    };
    let reply = rig.assemble(&request).await.expect("a plan");
    assert_eq!(reply.messages, None);
    assert_eq!((reply.plan.window, request.model.as_str()), (32_768, KNOWN));
}

/// CTX-1: a window that nobody knows is said to be assumed, and how to state it.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_1_an_assumed_window_is_named_with_the_way_to_state_it() {
    let rig = Rig::start(&Config::default()).await;
    let request = AssembleRequest {
        history: History::Inline {
            messages: vec![user(&"u".repeat(40_000)).into()],
        },
        model: "test/unheard-of".to_owned(),
        max_output_tokens: 500,
        ..of_session("s", None)
    };
    let fault = rig.assemble(&request).await.expect_err("does not fit");
    assert!(
        fault
            .message
            .contains("(window 8192, which is assumed because nobody says how large it is)"),
        "{}",
        fault.message
    );
    let hint = fault.hint.expect("a hint");
    assert!(
        hint.contains("teamster config set 'context.windows.\"test/unheard-of\"' TOKENS"),
        "{hint}"
    );
}
