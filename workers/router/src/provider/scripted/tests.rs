//! What the scripted provider answers, by the messages alone.

use std::sync::Arc;

use teamster_protocol::{CallId, MessageId, Principal, RequestId, function::router::Tool};

use super::*;

fn user(text: &str) -> Message {
    Message::User {
        id: MessageId::parse("msg_1").expect("valid"),
        from: Principal::parse("owner").expect("valid"),
        text: text.to_owned(),
    }
}

fn result(text: &str, outcome: ResultKind) -> Message {
    Message::FunctionResult {
        call: CallId::parse("call_1").expect("valid"),
        function: FunctionId::parse("fs::read").ok(),
        text: text.to_owned(),
        outcome,
    }
}

fn notice() -> Message {
    Message::Notice {
        id: MessageId::parse("msg_2").expect("valid"),
        text: "the stream was cut".to_owned(),
    }
}

fn request(attempt: u32, messages: Vec<Message>, tools: &[&str]) -> ChatRequest {
    let tool = |name: &&str| Tool {
        name: (*name).to_owned(),
        description: String::new(),
        parameters: json!({}),
    };
    ChatRequest {
        request_id: RequestId::parse(format!("s.3.{attempt}")).expect("valid"),
        session_id: None,
        model: "scripted/guided".to_owned(),
        system_prompt: None,
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: tools.iter().map(tool).collect(),
        max_output_tokens: None,
        is_first: false,
    }
}

fn guided(attempt: u32, messages: Vec<Message>) -> Answer {
    let script = Script::guided().expect("valid");
    script
        .answer(&request(attempt, messages, &["fs__read", "fs__write"]))
        .expect("a rule matches")
}

#[test]
fn the_guided_script_reads_asks_to_write_and_ends_slowly() {
    let hello = guided(1, vec![user("hi there")]);
    assert!(hello.say.contains("hi there") && hello.say.contains("no model"));
    assert_eq!(hello.calls[0].name.as_deref(), Some("fs__read"));
    assert_eq!(hello.calls[0].arguments, "{\"path\":\"notes.md\"}");

    let notes = result(
        "{\"kind\":\"text\",\"content\":\"Buy milk\"}",
        ResultKind::Ok,
    );
    let ask = guided(1, vec![user("hi"), notes.clone()]);
    assert!(ask.say.contains("Buy milk") && !ask.say.contains("\"kind\""));
    assert_eq!(ask.calls[0].name.as_deref(), Some("fs__write"));
    let arguments: Value = serde_json::from_str(&ask.calls[0].arguments).expect("JSON");
    assert_eq!(arguments["path"], "summary.md");

    let written = vec![user("hi"), notes.clone(), result("{}", ResultKind::Ok)];
    let slow = guided(1, written.clone());
    let words = u32::try_from(slow.say.split_whitespace().count()).expect("few");
    assert!(slow.calls.is_empty());
    assert!((15_000..40_000).contains(&(slow.pace * words).as_millis()));
    let again = guided(2, written.clone());
    assert_eq!((again.pace, again.say), (Duration::ZERO, slow.say));
    assert_eq!(
        guided(1, [written, vec![notice()]].concat()).pace,
        Duration::ZERO
    );
}

#[test]
fn the_guided_script_ends_when_something_is_refused() {
    for outcome in [
        ResultKind::DeniedByOwner,
        ResultKind::Expired,
        ResultKind::GateUnavailable,
    ] {
        let end = guided(
            1,
            vec![
                user("hi"),
                result("{}", ResultKind::Ok),
                result("no", outcome),
            ],
        );
        assert!(
            end.calls.is_empty() && end.say.contains("You said no"),
            "{outcome:?}"
        );
    }
    let unread = guided(1, vec![user("hi"), result("not found", ResultKind::Error)]);
    assert!(unread.calls.is_empty() && unread.say.contains("not found"));
    // A new message begins anew.
    let again = guided(
        1,
        vec![user("hi"), result("{}", ResultKind::Ok), user("again")],
    );
    assert_eq!(again.calls.len(), 1);
}

#[test]
fn every_guided_answer_says_that_it_is_scripted() {
    for rule in Script::guided().expect("valid").rules {
        assert!(rule.say.to_lowercase().contains("script"), "{}", rule.say);
    }
}

#[test]
fn a_call_takes_the_name_by_which_it_was_offered() {
    let script = Script::parse(
        "s",
        "rules: [{say: x, calls: [{function: 'fs::read', arguments: {path: '{message}'}}]}]",
    )
    .expect("valid");
    let call = |tools: &[&str]| {
        script
            .answer(&request(1, vec![user("a.md")], tools))
            .expect("matches")
            .calls[0]
            .clone()
    };
    assert_eq!(call(&["fs__read"]).arguments, "{\"path\":\"a.md\"}");
    let hidden = call(&["agent_trigger"]);
    assert_eq!(hidden.name.as_deref(), Some("agent_trigger"));
    assert_eq!(
        hidden.arguments,
        "{\"function\":\"fs::read\",\"payload\":{\"path\":\"a.md\"}}"
    );
    assert_eq!(call(&[]).name.as_deref(), Some("fs__read"));
}

#[test]
fn rules_match_on_the_messages_alone_and_the_first_one_wins() {
    let yaml = "rules:
  - {when: {last_role: user, contains: MILK}, say: milk}
  - {when: {last_role: result, results: 2}, say: two}
  - {when: {last_role: result, outcome: failed}, say: failed}
  - {when: {last_role: user}, say: 'other {message} {unknown} {result:/a/0}'}";
    let script = Script::parse("s", yaml).expect("valid");
    let say = |messages| {
        script
            .answer(&request(1, messages, &[]))
            .map(|answer| answer.say)
    };
    let ok = |text| result(text, ResultKind::Ok);
    assert_eq!(say(vec![user("buy milk")]).as_deref(), Some("milk"));
    assert_eq!(
        say(vec![user("x"), ok("1"), ok("2")]).as_deref(),
        Some("two")
    );
    assert_eq!(
        say(vec![user("x"), result("1", ResultKind::OutcomeUnknown)]).as_deref(),
        Some("failed")
    );
    assert_eq!(say(vec![user("x"), ok("1")]), None);
    assert_eq!(
        say(vec![ok("{\"a\":[7]}"), user("y")]).as_deref(),
        Some("other y {unknown} 7")
    );
    assert_eq!(say(vec![]), None);
}

#[test]
fn a_script_that_cannot_be_played_is_refused() {
    for bad in [
        "",
        "rules: [{say: ''}]",
        "rules: [{say: x, pace_ms: 100000}]",
        "rules: [{say: x, calls: [{function: 'fs::read', arguments: [1]}]}]",
        "rules: [{say: x, calls: [{function: 'read'}]}]",
        "rules: [{say: x, when: {role: user}}]",
    ] {
        assert!(Script::parse("s", bad).is_err(), "{bad}");
    }
    let long = format!("rules: [{{say: '{}'}}]", "x".repeat(limits::YAML_BYTES_MAX));
    assert!(matches!(
        Script::parse("s", &long),
        Err(Error::YamlTooLarge { .. })
    ));
}

proptest::proptest! {
    #[test]
    fn no_template_panics(template in ".{0,40}", text in ".{0,20}") {
        let request = request(1, vec![user(&text), result(&text, ResultKind::Ok)], &[]);
        let _ = Scene::of(&request).expand(&template);
    }
}

/// A script is a file of its own: what is wrong in it names that file, the place and what was expected.
#[test]
fn what_is_wrong_in_a_script_names_its_file_and_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.yaml");
    for (text, says) in [
        ("5", "expected a mapping"),
        (
            "rules: 5",
            "rules: invalid type: integer `5`, expected a list",
        ),
        ("rules: [{say: {}}]", "rules[0].say: "),
        ("rules: [{say: x, pace_ms: fast}]", "rules[0].pace_ms: "),
        ("rules: [{say: ' '}]", "rule 0"),
    ] {
        std::fs::write(&path, text).expect("written");
        let mut config = crate::Config::default();
        let provider = config.providers.entry("scripted".to_owned()).or_default();
        provider.scripts.insert("x".to_owned(), path.clone());
        let value = serde_json::to_value(&config).expect("json");
        let problem = teamster_mesh::config::parse::<crate::Config>(&value).expect_err(text);
        assert!(
            problem.problem.contains(&path.display().to_string()),
            "{text}: {problem}"
        );
        assert!(problem.problem.contains(says), "{text}: {problem}");
        assert!(!problem.problem.contains("struct "), "{text}: {problem}");
    }
}
