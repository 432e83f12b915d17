//! Bodies for a provider, from whole and from damaged histories.

use std::sync::Arc;

use proptest::prelude::*;
use teamster_protocol::{FunctionId, MessageId, Principal, RequestId, message::ResultKind};

use super::*;

fn call_id(n: u8) -> CallId {
    CallId::parse(format!("call_{n}")).expect("valid")
}

fn user(text: &str) -> Message {
    Message::User {
        id: MessageId::parse("msg_1").expect("valid"),
        from: Principal::parse("owner").expect("valid"),
        text: text.to_owned(),
    }
}

fn assistant(content: Vec<Content>) -> Message {
    Message::Assistant {
        id: MessageId::parse("msg_2").expect("valid"),
        content,
        partial: false,
    }
}

fn said(text: &str) -> Content {
    Content::Text {
        text: text.to_owned(),
    }
}

fn called(n: u8, arguments: &str) -> Content {
    Content::Call(WireCall {
        call: call_id(n),
        name: "fs__read".to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn result(n: u8, text: &str) -> Message {
    Message::FunctionResult {
        call: call_id(n),
        function: FunctionId::parse("fs::read").ok(),
        text: text.to_owned(),
        outcome: ResultKind::Ok,
    }
}

fn request(messages: Vec<Message>) -> ChatRequest {
    ChatRequest {
        request_id: RequestId::parse("s.1.1").expect("valid"),
        session_id: None,
        model: "openai/m".to_owned(),
        system_prompt: Some("Be brief.".to_owned()),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: Vec::new(),
        max_output_tokens: None,
        is_first: false,
    }
}

fn wire(messages: Vec<Message>) -> Vec<Value> {
    let body = body(
        &request(messages),
        "m",
        OutputLimit::MaxTokens,
        None,
        |_| false,
    )
    .expect("serialises");
    let mut value: Value = serde_json::from_slice(&body.json).expect("JSON");
    match value["messages"].take() {
        Value::Array(mut messages) => messages.split_off(1),
        other => panic!("{other}"),
    }
}

/// What strict servers demand of a history.
fn assert_valid(messages: &[Value]) {
    let mut open: Vec<String> = Vec::new();
    let mut ids = std::collections::BTreeSet::new();
    for message in messages {
        let role = message["role"].as_str().expect("a role");
        if role == "tool" {
            assert!(!open.is_empty(), "a result without a call");
            assert_eq!(open.remove(0), message["tool_call_id"]);
            assert!(!message["content"].as_str().expect("text").trim().is_empty());
            continue;
        }
        assert!(open.is_empty(), "a call without a result");
        let content = message["content"].as_str();
        assert!(
            content.is_none_or(|text| !text.trim().is_empty()),
            "an empty text"
        );
        let calls = message["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert!(content.is_some() || !calls.is_empty(), "an empty message");
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().expect("text");
            serde_json::from_str::<serde_json::Map<String, Value>>(arguments).expect("an object");
            let id = call["id"].as_str().expect("an id").to_owned();
            assert!(ids.insert(id.clone()), "an id twice");
            assert!(
                !call["function"]["name"]
                    .as_str()
                    .expect("a name")
                    .is_empty()
            );
            open.push(id);
        }
    }
    assert!(open.is_empty(), "a call without a result at the end");
}

#[test]
fn a_whole_exchange_is_projected_as_it_is() {
    let messages = wire(vec![
        user("read"),
        assistant(vec![said("I read."), called(1, "{\"path\": \"a\"}")]),
        result(1, "text"),
        assistant(vec![said("Done.")]),
    ]);
    assert_eq!(
        messages,
        [
            json!({"role": "user", "content": "read"}),
            json!({"role": "assistant", "content": "I read.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "fs__read", "arguments": "{\"path\": \"a\"}"}}]}),
            json!({"role": "tool", "tool_call_id": "call_1", "content": "text"}),
            json!({"role": "assistant", "content": "Done."}),
        ]
    );
}

#[test]
fn hist_2_a_call_without_result_gets_one() {
    let messages = wire(vec![
        user("read"),
        assistant(vec![called(1, "{}"), called(2, "{}")]),
        result(2, "two"),
        user("hi"),
    ]);
    assert_valid(&messages);
    assert_eq!(
        messages[2],
        json!({"role": "tool", "tool_call_id": "call_1", "content": "interrupted, outcome unknown"})
    );
    assert_eq!(messages[3]["content"], "two");
    assert_eq!(messages[4]["content"], "hi");
}

#[test]
fn hist_2_a_message_between_call_and_result_moves_behind() {
    let messages = wire(vec![
        assistant(vec![called(1, "{}")]),
        user("steer"),
        result(1, "one"),
    ]);
    assert_valid(&messages);
    assert_eq!(messages[1]["content"], "one");
    assert_eq!(messages[2]["content"], "steer");
}

#[test]
fn hist_2_a_result_without_call_is_told_in_words() {
    let messages = wire(vec![result(1, "one"), user("hi")]);
    assert_valid(&messages);
    assert_eq!(
        messages,
        [json!({"role": "user", "content": "[earlier result of fs::read]\none\n\nhi"})]
    );
}

#[test]
fn hist_3_an_id_used_twice_is_unique_on_the_wire() {
    let turn = |text| vec![assistant(vec![called(1, "{}")]), result(1, text)];
    let messages = wire([turn("one"), turn("two")].concat());
    assert_valid(&messages);
    assert_eq!(messages[2]["tool_calls"][0]["id"], "call_1_2");
    assert_eq!(
        messages[3],
        json!({"role": "tool", "tool_call_id": "call_1_2", "content": "two"})
    );
    let one_answer = wire(vec![
        assistant(vec![called(1, "{}"), called(1, "{}")]),
        result(1, "one"),
        result(1, "two"),
    ]);
    assert_valid(&one_answer);
}

#[test]
fn hist_4_malformed_arguments_are_sent_as_an_object() {
    for (raw, want) in [
        ("{\"p\": 1}", "{\"p\": 1}"),
        ("", "{}"),
        ("{\"p\":\"x", "{\"_raw\":\"{\\\"p\\\":\\\"x\"}"),
        ("[1]", "{\"_raw\":\"[1]\"}"),
        ("null", "{\"_raw\":\"null\"}"),
    ] {
        let messages = wire(vec![assistant(vec![called(1, raw)]), result(1, "no")]);
        assert_valid(&messages);
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], want);
    }
    let long = wire(vec![assistant(vec![called(1, &"{".repeat(5_000_000))])]);
    assert!(long[0].to_string().len() < 2 * RAW_BYTES_MAX);
}

#[test]
fn hist_5_invented_names_keep_the_allowed_alphabet() {
    for (name, want) in [
        ("fs__read", "fs__read"),
        ("", "unnamed"),
        ("a b.c/é", "a_b_c__"),
        (&"x".repeat(80), &"x".repeat(64)),
    ] {
        assert_eq!(wire_name(name), want);
    }
}

#[test]
fn hist_6_a_tool_that_cannot_be_offered_does_not_hide_the_others() {
    let tool = |name: &str, parameters: Value| Tool {
        name: name.to_owned(),
        description: String::new(),
        parameters,
    };
    let mut request = request(vec![user("x")]);
    request.tools = vec![
        tool("good", json!({"type": "object"})),
        tool("bad", json!({"type": "string"})),
        tool("good", json!({})),
        tool("refused", json!({})),
    ];
    let body = body(&request, "m", OutputLimit::MaxTokens, None, |tool| {
        tool.name == "refused"
    })
    .expect("serialises");
    assert_eq!(body.tools, ["good"]);
    assert_eq!(
        body.left_out
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        ["bad", "good", "refused"]
    );
    let value: Value = serde_json::from_slice(&body.json).expect("JSON");
    assert_eq!(value["tools"].as_array().map(Vec::len), Some(1));
}

#[test]
fn hist_7_nothing_empty_is_sent() {
    let thinking = Content::Thinking {
        text: "hm".to_owned(),
        signature: None,
    };
    let messages = wire(vec![
        user("x"),
        assistant(vec![said(""), called(1, "{}")]),
        result(1, ""),
        assistant(vec![thinking]),
        user(""),
        Message::Notice {
            id: MessageId::parse("msg_3").expect("valid"),
            text: "the stream was cut".to_owned(),
        },
    ]);
    assert_valid(&messages);
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[1]["content"], Value::Null);
    assert_eq!(messages[2]["content"], "(no output)");
    assert_eq!(
        messages[3],
        json!({"role": "user", "content": "the stream was cut"})
    );
}

#[test]
fn the_output_limit_goes_into_the_field_that_the_provider_knows() {
    let mut request = request(vec![user("x")]);
    request.max_output_tokens = Some(500);
    let field = |limit, max| {
        let body = body(&request, "m", limit, max, |_| false).expect("serialises");
        let value: Value = serde_json::from_slice(&body.json).expect("JSON");
        (
            value.get("max_tokens").cloned(),
            value.get("max_completion_tokens").cloned(),
        )
    };
    assert_eq!(
        field(OutputLimit::MaxTokens, None),
        (Some(json!(500)), None)
    );
    assert_eq!(
        field(OutputLimit::MaxCompletionTokens, Some(100)),
        (None, Some(json!(100)))
    );
}

fn any_message() -> impl Strategy<Value = Message> {
    let content = prop_oneof![
        "[a ]{0,2}".prop_map(|text| said(&text)),
        (0_u8..4, "(\\{\\}|\\{|x)?").prop_map(|(n, arguments)| called(n, &arguments)),
        Just(Content::Thinking {
            text: "t".to_owned(),
            signature: None
        }),
    ];
    prop_oneof![
        "[a ]{0,2}".prop_map(|text| user(&text)),
        prop::collection::vec(content, 0..4).prop_map(assistant),
        (0_u8..4, "[a ]{0,2}").prop_map(|(n, text)| result(n, &text)),
    ]
}

proptest! {
    /// HIST-2, HIST-3, HIST-7: whatever was cut out of a history, what is sent is valid.
    #[test]
    fn hist_2_any_history_is_projected_validly(messages in prop::collection::vec(any_message(), 0..14)) {
        assert_valid(&wire(messages));
    }
}
