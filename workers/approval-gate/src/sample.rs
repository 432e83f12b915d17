//! Samples for the unit tests: commits as a harness writes them.

use teamster_protocol::{
    ApprovalId, Arguments, CallId, Commit, Digest, Event, FunctionId, Phase, Principal, SessionId,
    TurnId, input::Decision, message::ResultKind, policy::Effect,
};
use teamster_testkit::written;

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::parse(name).expect("valid")
}

pub(crate) fn approval(n: u64) -> ApprovalId {
    ApprovalId::parse(format!("apr_{n:04}")).expect("valid")
}

pub(crate) fn call(n: u64) -> CallId {
    CallId::parse(format!("call_{n}")).expect("valid")
}

pub(crate) fn arguments(text: &str) -> Arguments {
    Arguments::parse(text).expect("valid")
}

pub(crate) fn created() -> Event {
    Event::SessionCreated {
        metadata: std::collections::BTreeMap::new(),
        by: Principal::parse("owner").expect("valid"),
        title: None,
        workspace: Some("/w".to_owned()),
    }
}

pub(crate) fn started(turn: &str) -> Event {
    Event::TurnStarted {
        turn: TurnId::parse(turn).expect("valid"),
        number: 1,
        options: None,
        config: Digest::ZERO,
        trace: None,
    }
}

pub(crate) fn requested(n: u64) -> Event {
    Event::ApprovalRequested {
        approval: approval(n),
        call: call(n),
        function: FunctionId::parse("fs::write").expect("valid"),
        arguments: arguments(r#"{"path":"a"}"#),
        judgement: written::judgement(Effect::Ask, "a"),
        holder: FunctionId::parse("approval::gate").expect("valid"),
        rest: Vec::new(),
        expires_at_ms: 90_000,
    }
}

pub(crate) fn resolved(n: u64, by: &str, decision: Decision) -> Event {
    Event::ApprovalResolved {
        approval: approval(n),
        call: call(n),
        by: Principal::parse(by).expect("valid"),
        channel: "cli".to_owned(),
        digest: arguments(r#"{"path":"a"}"#).digest(),
        decision,
    }
}

pub(crate) fn expired(n: u64, withdrawn: bool) -> Event {
    Event::ApprovalExpired {
        approval: approval(n),
        call: call(n),
        withdrawn,
    }
}

pub(crate) fn finished(n: u64, outcome: ResultKind) -> Event {
    Event::CallFinished {
        whole: None,
        call: call(n),
        outcome,
        text: String::new(),
        duration_ms: 1,
    }
}

pub(crate) fn commit(name: &str, n: u64, phase: Phase, events: Vec<Event>) -> Commit {
    written::commit(&session(name), n, Digest::ZERO, phase, events)
}
