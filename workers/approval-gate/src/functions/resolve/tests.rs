//! What is checked before a decision is stored.

use teamster_protocol::{
    FunctionId, Phase,
    contract::{Data, Trust},
};

use super::*;
use crate::{
    inbox::Inbox,
    policies::Policies,
    sample::{approval, arguments, commit, created, requested, session, started},
};

fn found() -> Found {
    let inbox = Inbox::default();
    let commit = commit(
        "one",
        1,
        Phase::Parked,
        vec![created(), started("trn_1"), requested(1)],
    );
    inbox.fold(&session("one"), [(1, &commit)]);
    inbox.find(&approval(1)).expect("it waits")
}

fn request(decision: Decision) -> ResolveRequest {
    ResolveRequest {
        approval_id: approval(1),
        digest: arguments(r#"{"path":"a"}"#).digest(),
        decision,
        channel: "cli".to_owned(),
    }
}

fn contract(class: Class) -> Contract {
    let id = FunctionId::parse("fs::write").expect("valid");
    let mut contract = Contract::new::<(), ()>(id, "Writes.");
    (contract.class, contract.data, contract.trust) = (class, Data::Business, Trust::Trusted);
    contract.target = Some("/path".to_owned());
    contract.visibility = Visibility::Agent;
    contract
}

#[test]
fn a_decision_about_other_bytes_or_after_the_end_is_refused() {
    let pending = found().entry.request;
    let code = |request: &ResolveRequest, now_ms| {
        check_pending(&pending, request, now_ms).map_err(|fault| fault.code)
    };
    let good = request(Decision::Approve);
    assert_eq!(code(&good, 89_999), Ok(()));
    assert_eq!(code(&good, 90_000), Err("approval.expired".to_owned()));
    let mut stale = good;
    stale.digest = Digest::of("other");
    assert_eq!(code(&stale, 0), Err("approval.stale_digest".to_owned()));
}

/// SEC-28: a function that became stricter, and a policy that now denies, void the approval.
#[test]
fn sec_28_an_approval_does_not_outlive_what_it_was_asked_under() {
    let found = found();
    let pending = &found.entry.request;
    assert!(check_labels(pending, &contract(Class::Write)).is_ok());
    assert!(check_labels(pending, &contract(Class::Read)).is_ok());
    let fault = check_labels(pending, &contract(Class::Egress)).expect_err("void");
    assert_eq!(fault.code, "approval.void");

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(
        file.path(),
        "{version: 1, layers: [{name: mine, rules: [{effect: deny, target: 'a'}]}]}",
    )
    .expect("written");
    let gate = Gate {
        policies: Policies::load(teamster_mesh::config::Live::new(crate::Config {
            policy_file: Some(file.path().to_owned()),
        }))
        .expect("valid policy"),
        inbox: Inbox::default(),
        burst: std::sync::Mutex::default(),
    };
    let again = |text: &str| {
        judge_again(&gate, &found, &contract(Class::Write), &arguments(text))
            .map_err(|fault| fault.code)
    };
    assert_eq!(again(r#"{"path":"a"}"#), Err("approval.void".to_owned()));
    assert_eq!(
        again(r#"{"path":"/w/a"}"#),
        Err("approval.edit_denied".to_owned())
    );
    assert_eq!(
        again(r#"{"path":".env"}"#),
        Err("approval.edit_denied".to_owned())
    );
    assert_eq!(again(r#"{"path":"b"}"#), Ok(()));
}

#[test]
fn the_answer_says_whose_decision_counts() {
    let by = |name: &str| Principal::parse(name).expect("valid");
    let resolution = Resolution::Decided {
        by: by("anna"),
        channel: "cli".to_owned(),
        decision: Decision::Approve,
        at_ms: 5,
        outcome: None,
    };
    for (who, decision, won) in [
        ("anna", Decision::Approve, true),
        ("bert", Decision::Approve, false),
        ("anna", Decision::Deny { reason: None }, false),
    ] {
        let answer = answer(&by(who), &request(decision), resolution.clone());
        assert_eq!(
            (answer.won, &answer.resolution),
            (won, &resolution),
            "{who}"
        );
    }
    assert!(
        !answer(
            &by("anna"),
            &request(Decision::Approve),
            Resolution::Expired { at_ms: 5 }
        )
        .won
    );
}

#[test]
fn a_decision_of_another_form_is_refused() {
    let mut request = request(Decision::Approve);
    assert!(check_form(&request).is_ok());
    for channel in ["", "a b", "\u{1b}[2J", &"x".repeat(65)] {
        channel.clone_into(&mut request.channel);
        assert!(check_form(&request).is_err(), "{channel:?}");
    }
    request.channel = "cli".to_owned();
    request.decision = Decision::Deny {
        reason: Some("x".repeat(limits::FAULT_TEXT_BYTES_MAX + 1)),
    };
    assert!(check_form(&request).is_err());
}
