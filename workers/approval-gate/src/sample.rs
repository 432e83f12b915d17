//! Samples for the unit tests: commits as a harness writes them.

use teamster_protocol::{
    ApprovalId, Arguments, CallId, Class, Commit, Cursor, Data, Digest, Event, FunctionId, Head,
    Lane, Phase, Principal, SessionId, Trust, TurnId,
    commit::{Bell, VERSION},
    id::Incarnation,
    input::Decision,
    message::ResultKind,
    policy::{Effect, Judgement, Labels},
};

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

pub(crate) fn judgement(effect: Effect) -> Judgement {
    Judgement {
        effect,
        layer: "workspace".to_owned(),
        rule: "0: ask fs::write".to_owned(),
        labels: Labels {
            class: Class::Write,
            data: Data::Business,
            trust: Trust::Trusted,
        },
        target: Some("a".to_owned()),
        policy: Digest::of("policy"),
        ask_ttl_ms: None,
    }
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
        judgement: judgement(Effect::Ask),
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
    Commit {
        v: VERSION,
        session: session(name),
        n,
        prev: Digest::ZERO,
        at_ms: n * 1000,
        head: Head {
            phase,
            owner: Incarnation::parse("one").expect("valid"),
            bell: Bell {
                lane: Lane::In,
                seq: 1,
            },
            epoch: 1,
            attempt: 0,
            cursor: Cursor::default(),
            deadline: None,
        },
        consumed: Vec::new(),
        events,
        outbox: Vec::new(),
    }
}
