//! What a model's call means, and whether the turn may make it.

use teamster_protocol::{
    CallId, Contract,
    message::ResultKind,
    policy::{Exposure, FunctionPolicy},
};

use super::super::call;

use super::function;

fn contract(id: &str) -> Contract {
    let mut contract = Contract::new::<serde_json::Value, serde_json::Value>(function(id), "test");
    contract.visibility = teamster_protocol::Visibility::Agent;
    contract
}

/// LOOP-3, APPR-9: what was not offered is refused with a reason, and never taken for something else.
#[test]
fn loop_3_unknown_and_forbidden_names_are_told_apart_and_named() {
    let read = contract("fs::read");
    let offered = [&read];
    let allowed = call::Allowed::compile(Some(&FunctionPolicy {
        allow: vec!["fs::*".to_owned()],
        deny: vec!["fs::write".to_owned()],
        expose: Exposure::Native,
    }));
    let admit = |name: &str| {
        let wire = teamster_protocol::message::WireCall {
            call: CallId::parse("call_1").expect("valid"),
            name: name.to_owned(),
            arguments: "{}".to_owned(),
        };
        call::admit(&call::meaning(&wire, Exposure::Native), &allowed, &offered)
            .map(|contract| contract.id.to_string())
            .map_err(|refusal| (refusal.outcome, refusal.text))
    };
    assert_eq!(admit("fs__read"), Ok("fs::read".to_owned()));
    let (outcome, text) = admit("search_files").expect_err("unknown");
    assert_eq!(outcome, ResultKind::Invalid);
    assert!(text.contains("fs::read"), "{text}");
    assert_eq!(
        admit("fs__write").expect_err("denied").0,
        ResultKind::DeniedByPolicy
    );
    assert_eq!(
        admit("approval__resolve").expect_err("denied").0,
        ResultKind::DeniedByPolicy
    );
    assert_eq!(
        admit("fs__find").expect_err("allowed, not there").0,
        ResultKind::Invalid
    );
}

/// Without a policy nothing may be called; a glob that cannot be read denies everything.
#[test]
fn functions_are_denied_by_default() {
    assert!(!call::Allowed::compile(None).permits(&function("fs::read")));
    let policy = |allow: &str| FunctionPolicy {
        allow: vec![allow.to_owned()],
        ..FunctionPolicy::default()
    };
    assert!(!call::Allowed::compile(Some(&policy("["))).permits(&function("fs::read")));
    let allowed = call::Allowed::compile(Some(&policy("fs::*")));
    assert!(allowed.permits(&function("fs::read")));
    assert!(allowed.permits(&function("engine::functions::list")));
    assert!(!allowed.permits(&function("router::chat")));
}

/// The inner payload of `agent_trigger` is the call's exact bytes.
#[test]
fn agent_trigger_keeps_the_payload_bytes() {
    let meaning = |arguments: &str| {
        let wire = teamster_protocol::message::WireCall {
            call: CallId::parse("call_1").expect("valid"),
            name: call::AGENT_TRIGGER.to_owned(),
            arguments: arguments.to_owned(),
        };
        call::meaning(&wire, Exposure::AgentTrigger)
    };
    let meant = meaning("{\"function\": \"fs::read\", \"payload\": {\"a\" :1.0 }}").expect("valid");
    assert_eq!(meant.function, Some(function("fs::read")));
    assert_eq!(meant.arguments.as_str(), "{\"a\" :1.0 }");
    assert_eq!(
        meaning("{\"function\":\"fs::list\"}")
            .expect("valid")
            .arguments
            .as_str(),
        "{}"
    );
    for bad in [
        "{\"function\":\"fs::read\",\"payload\":\"{}\"}",
        "{\"function\":\"read\",\"payload\":{}}",
        "{\"payload\":{}}",
        "{\"function\":\"fs::read\",\"payload\":{},\"more\":1}",
        "[]",
    ] {
        assert!(meaning(bad).is_err(), "{bad}");
    }
}
