//! One event of each kind, as a turn with a held call, a loss and a takeover would leave them.

use std::collections::BTreeMap;

use teamster_protocol::{
    ApprovalId, Arguments, BlobRef, CallId, Class, Data, Digest, Event, FunctionId, Lane, Message,
    MessageId, Principal, RequestId, SessionId, Trust, TurnId,
    event::{ApprovalDigest, DropReason, EndReason, Settled, SpentKey},
    function::router::{CompletionError, ErrorKind},
    hook::Point,
    id::Incarnation,
    input::{Decision, Fork, SessionOptions, TurnOptions},
    limits,
    message::{Content, ResultKind, StopReason, WireCall},
    policy::{Effect, FunctionPolicy, Judgement, Labels},
    trace::Trace,
    usage::{Budget, BudgetKind, NanoUsd, Spent, Usage},
};

const AT_MS: u64 = 1_796_000_000_000;

pub(super) fn session() -> SessionId {
    SessionId::parse("chat/42").expect("valid")
}

fn turn() -> TurnId {
    TurnId::of(&session(), 1, AT_MS)
}

fn request() -> RequestId {
    RequestId::of(&session(), 1, 0)
}

fn call() -> CallId {
    CallId::of(&request(), 0, AT_MS)
}

fn approval() -> ApprovalId {
    ApprovalId::of(&call(), 0, AT_MS)
}

fn function(text: &str) -> FunctionId {
    FunctionId::parse(text).expect("valid")
}

fn owner() -> Principal {
    Principal::parse("owner").expect("valid")
}

fn arguments() -> Arguments {
    Arguments::parse(r#"{"city":"Oslo"}"#).expect("valid")
}

fn judgement(effect: Effect) -> Judgement {
    Judgement {
        effect,
        layer: "defaults".to_owned(),
        rule: "egress: ask".to_owned(),
        labels: Labels {
            class: Class::Egress,
            data: Data::Personal,
            trust: Trust::Untrusted,
        },
        target: None,
        policy: Digest::of("the policy"),
        ask_ttl_ms: Some(86_400_000),
    }
}

fn usage() -> Usage {
    Usage {
        input: 812,
        output: 31,
        ..Usage::default()
    }
}

fn assistant(content: Vec<Content>, partial: bool) -> Message {
    Message::Assistant {
        id: MessageId::of_commit(&session(), 2, 0),
        content,
        partial,
    }
}

fn text(text: &str) -> Content {
    Content::Text {
        text: text.to_owned(),
    }
}

/// All kinds, in the order of their declaration.
pub(super) fn events() -> Vec<Event> {
    let mut all = about_the_session();
    all.extend(about_turns());
    all.extend(about_calls());
    all.extend(about_the_rest());
    all
}

fn about_the_session() -> Vec<Event> {
    vec![
        Event::SessionCreated {
            by: owner(),
            title: Some("Weather".to_owned()),
            workspace: Some("/srv/notes".to_owned()),
            metadata: BTreeMap::from([("team".to_owned(), "north".to_owned())]),
        },
        Event::SessionForked {
            by: owner(),
            fork: Box::new(Fork {
                source: SessionId::parse("chat/41").expect("valid"),
                at: 12,
                hash: Digest::of("commit 12"),
                transcript: BlobRef::of(b"[]"),
                messages: 0,
                options: TurnOptions::default(),
                masked: Vec::new(),
                stored: BTreeMap::new(),
                session: SessionOptions::default(),
            }),
        },
        Event::MetaChanged {
            by: owner(),
            title: Some("Storms".to_owned()),
            metadata: BTreeMap::from([("team".to_owned(), None)]),
        },
        Event::SessionDeleted {
            by: owner(),
            turns: 3,
            queued: 51,
            approvals: vec![ApprovalDigest {
                approval: approval(),
                function: function("weather::alarm"),
                digest: arguments().digest(),
                settled: Some(Settled::Approved {
                    by: owner(),
                    at_ms: AT_MS,
                }),
            }],
            keys: vec![SpentKey {
                id: MessageId::of_input(&session(), "in", "key"),
                seq: 49,
                at_ms: AT_MS,
            }],
            spent: vec![spent(2)],
        },
        Event::AppendWaits {
            by: owner(),
            messages: vec![Message::Custom {
                id: MessageId::of_input(&session(), "append", "key/0"),
                from: owner(),
                kind: "note".to_owned(),
                text: "asked by phone".to_owned(),
            }],
        },
        Event::ContextMasked {
            calls: vec![call()],
            tokens_before: 9200,
            tokens_after: 4100,
        },
        Event::MessageAdded {
            message: Message::User {
                id: MessageId::of_input(&session(), "in", "key"),
                from: owner(),
                text: "warn Oslo".to_owned(),
            },
            options: TurnOptions {
                model: Some("openai/gpt-5-mini".to_owned()),
                functions: Some(FunctionPolicy {
                    allow: vec!["weather::*".to_owned()],
                    ..FunctionPolicy::default()
                }),
                budget: Budget {
                    steps: Some(8),
                    ..Budget::default()
                },
                ..TurnOptions::default()
            },
            appended: false,
        },
    ]
}

fn about_turns() -> Vec<Event> {
    vec![
        Event::TurnStarted {
            turn: turn(),
            number: 1,
            options: Some(TurnOptions {
                model: Some("openai/gpt-5-mini".to_owned()),
                ..TurnOptions::default()
            }),
            config: Digest::of("the configuration"),
            trace: Some(Trace {
                context: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
                parent: Some("00f067aa0ba902b7".to_owned()),
            }),
        },
        Event::TurnEnded {
            turn: turn(),
            reason: EndReason::Completed,
        },
        Event::GenerationStarted {
            request: request(),
            step: 0,
            reserved: 8192,
        },
        Event::GenerationFinished {
            request: request(),
            message: Some(assistant(
                vec![
                    text("I warn them."),
                    Content::Call(WireCall {
                        call: call(),
                        name: "weather__alarm".to_owned(),
                        arguments: arguments().as_str().to_owned(),
                    }),
                ],
                false,
            )),
            stop: StopReason::Call,
            usage: usage(),
            cost: Some(NanoUsd(265_000)),
            model: "openai/gpt-5-mini".to_owned(),
            attempts: 1,
            estimated: 790,
        },
        Event::GenerationInterrupted {
            request: request(),
            partial: Some(assistant(vec![text("I wa")], true)),
            error: CompletionError {
                kind: ErrorKind::Transient,
                message: "the stream was cut".to_owned(),
                hint: None,
            },
            is_cut: true,
            usage: Usage {
                estimated: true,
                ..usage()
            },
            cost: None,
            attempts: 1,
        },
    ]
}

fn about_calls() -> Vec<Event> {
    let alarm = function("weather::alarm");
    vec![
        Event::CallProposed {
            call: call(),
            function: Some(alarm.clone()),
            digest: Some(arguments().digest()),
        },
        Event::CallAllowed {
            call: call(),
            class: Class::Egress,
            repeatable: false,
            timeout_ms: 60_000,
            arguments: None,
            judgement: Some(judgement(Effect::Allow)),
        },
        Event::CallRefused {
            call: call(),
            outcome: ResultKind::DeniedByPolicy,
            text: "a rule denies this call".to_owned(),
            judgement: Some(judgement(Effect::Deny)),
        },
        Event::ApprovalRequested {
            approval: approval(),
            call: call(),
            function: alarm,
            arguments: arguments(),
            judgement: judgement(Effect::Ask),
            holder: function("approval-gate::judge"),
            rest: Vec::new(),
            expires_at_ms: AT_MS + 86_400_000,
        },
        Event::ApprovalResolved {
            approval: approval(),
            call: call(),
            by: owner(),
            channel: "cli".to_owned(),
            digest: arguments().digest(),
            decision: Decision::Approve,
        },
        Event::ApprovalExpired {
            approval: approval(),
            call: call(),
            withdrawn: false,
        },
        Event::CallStarted { call: call() },
        Event::CallFinished {
            call: call(),
            outcome: ResultKind::Ok,
            text: r#"{"warned": "Oslo"}"#.to_owned(),
            whole: None,
            duration_ms: 12,
        },
    ]
}

fn about_the_rest() -> Vec<Event> {
    vec![
        Event::BudgetExceeded {
            which: BudgetKind::Tokens,
            limit: 10_000,
            used: 10_240,
        },
        Event::HookRan {
            point: Point::PreTrigger,
            step: 0,
            function: Some(function("guard::look")),
            call: Some(call()),
            annotation: Some("seen".to_owned()),
            denied: None,
            system_prompt: None,
        },
        Event::InputDropped {
            lane: Lane::Ctl,
            seq: 17,
            why: DropReason::NothingToStop,
        },
        Event::LossAccepted {
            by: owner(),
            lost_from: 9,
            kept: Digest::of("commit 8"),
            message: "commit 9 is missing".to_owned(),
            turns: 1,
            spent: vec![spent(1)],
            unknown: 1,
        },
        Event::TookOver {
            from: Incarnation::parse("0193a1").expect("valid"),
            attempt: 1,
        },
    ]
}

fn spent(generations: u64) -> Spent {
    Spent {
        at_ms: AT_MS - AT_MS % limits::SPENT_SLOT_MS,
        model: "openai/gpt-5".to_owned(),
        generations,
        attempts: generations,
        usage: Usage {
            input: 1200 * generations,
            output: 155 * generations,
            ..Usage::default()
        },
        cost: NanoUsd(3_050_000 * generations),
        unpriced: 0,
    }
}
