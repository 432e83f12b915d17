//! The gate's verdicts.

use teamster_protocol::{
    Arguments, Contract, Digest, FunctionId, TurnId,
    contract::{Data, Trust},
};

use super::*;
use crate::{
    Config,
    inbox::Inbox,
    policies::Policies,
    sample::{arguments, call, session},
};

fn gate() -> Gate {
    Gate {
        policies: Policies::load(teamster_mesh::config::Live::new(Config::default()))
            .expect("valid policy"),
        inbox: Inbox::default(),
        burst: std::sync::Mutex::default(),
    }
}

fn request(id: &str, class: Class, arguments: Arguments, approved: Option<Digest>) -> Request {
    let function = FunctionId::parse(id).expect("valid");
    let mut contract = Contract::new::<(), ()>(function.clone(), "A function.");
    (contract.class, contract.data, contract.trust) = (class, Data::Business, Trust::Trusted);
    contract.target = Some("/path".to_owned());
    contract.visibility = Visibility::Agent;
    Request {
        point: Point::PreTrigger,
        session: session("one"),
        turn: TurnId::parse("trn_1").expect("valid"),
        step: 0,
        workspace: Some("/w".to_owned()),
        generate: None,
        generated: None,
        call: Some(Call {
            id: call(1),
            function,
            arguments,
            contract,
            approved,
        }),
        result: None,
    }
}

#[test]
fn calls_pass_are_held_or_are_denied() {
    let gate = gate();
    let judged = |id, class, text| {
        judge(&gate, &request(id, class, arguments(text), None), 0).expect("a verdict")
    };
    assert!(matches!(
        judged("fs::read", Class::Read, r#"{"path":"a"}"#),
        Verdict::Continue { judgement: Some(judgement), mutations, .. }
            if judgement.effect == Effect::Allow && mutations.is_empty()
    ));
    assert!(matches!(
        judged("fs::write", Class::Write, r#"{"path":"a"}"#),
        Verdict::Hold { judgement } if judgement.layer == "workspace"
    ));
    let Verdict::Deny { reason, judgement } =
        judged("fs::read", Class::Read, r#"{"path":"x/.env"}"#)
    else {
        panic!("a secret was not denied");
    };
    assert!(
        reason.contains("layer `secrets`") && reason.contains("\"x/.env\""),
        "{reason}"
    );
    assert_eq!(judgement.expect("a judgement").effect, Effect::Deny);
}

/// SEC-27: only the very bytes that were approved pass; a denial is not lifted by an approval.
#[test]
fn sec_27_only_the_approved_bytes_pass() {
    let gate = gate();
    let verdict = |text: &str, approved: &str| {
        let approved = Some(arguments(approved).digest());
        judge(
            &gate,
            &request("fs::write", Class::Write, arguments(text), approved),
            0,
        )
        .expect("a verdict")
    };
    assert!(matches!(
        verdict(r#"{"path":"a"}"#, r#"{"path":"a"}"#),
        Verdict::Continue { .. }
    ));
    assert!(matches!(
        verdict(r#"{"path":"a"}"#, r#"{"path": "a"}"#),
        Verdict::Hold { .. }
    ));
    assert!(matches!(
        verdict(r#"{"path":".env"}"#, r#"{"path":".env"}"#),
        Verdict::Deny { .. }
    ));
}

/// HOOK-1: what the gate cannot judge is a fault, which the harness takes as a denial.
#[test]
fn hook_1_a_request_that_cannot_be_judged_is_a_fault() {
    let gate = gate();
    let good = request("fs::read", Class::Read, Arguments::empty(), None);
    let mut no_call = good.clone();
    no_call.call = None;
    let mut other_point = good.clone();
    other_point.point = Point::PostTrigger;
    let mut other_contract = good;
    if let Some(call) = &mut other_contract.call {
        call.function = FunctionId::parse("fs::write").expect("valid");
    }
    for bad in [no_call, other_point, other_contract] {
        let fault = judge(&gate, &bad, 0).expect_err("a fault");
        assert_eq!(fault.code, "approval.bad_request");
    }
}

/// SEC-33: too many questions are denied, with a reason, and not asked.
#[test]
fn sec_33_a_session_that_asks_too_often_is_denied() {
    let gate = gate();
    let mut asking = request(
        "fs::write",
        Class::Write,
        arguments(r#"{"path":"a"}"#),
        None,
    );
    let mut held = 0;
    for n in 0..100 {
        if let Some(asked) = &mut asking.call {
            asked.id = call(n);
        }
        match judge(&gate, &asking, 1000 + n).expect("a verdict") {
            Verdict::Hold { .. } => held += 1,
            Verdict::Deny { judgement, .. } => {
                assert_eq!(judgement.expect("a judgement").layer, LAYER_BUILT_IN);
            }
            Verdict::Continue { .. } => panic!("a question became a yes"),
        }
    }
    assert_eq!(held, limits::QUESTIONS_PER_MINUTE_MAX);
}
