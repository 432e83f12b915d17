//! Calls whose arguments their function's schema excludes: answered to the model, and nobody is asked about them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use teamster_mesh::{Function, Worker};
use teamster_protocol::{
    Arguments, Class, Contract, Digest, Event, Fault, Visibility,
    event::EndReason,
    function::{
        approval::{ExplainReply, ResolveReply},
        router::{ChatRequest, Completion},
    },
    hook::{Binding, Mutations, Point, Request, Stage, Verdict},
    input::TurnOptions,
    message::ResultKind,
    policy::FunctionPolicy,
};

use crate::scene::{
    LIMIT, Parts, Scene, calls, id, name, outcomes, raw_call, results, says, session,
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Target {
    /// What goes.
    what: String,
    /// How often.
    #[serde(default)]
    times: Option<u8>,
}

/// A worker with one function that asks, and a shaping and a judging hook that look at its calls.
struct Rig {
    scene: Scene,
    ran: Arc<AtomicU32>,
    /// The hooks that were asked, by stage and arguments.
    asked: Arc<Mutex<Vec<(Stage, String)>>>,
}

impl Rig {
    /// `shaped` is what the shaping hook makes of arguments.
    async fn new(
        model: impl Fn(&ChatRequest) -> Completion + Send + Sync + 'static,
        shaped: fn(&Arguments) -> Option<&'static str>,
    ) -> Self {
        let (ran, asked) = (Arc::new(AtomicU32::new(0)), Arc::default());
        let mut parts = Parts::new(model);
        parts.workers.push(drop_worker(&ran));
        parts.workers.push(guard(shaped, &asked));
        let scene = Scene::start(parts).await;
        let registry = scene.operator.registry().await.expect("registry");
        registry
            .wait(LIMIT, |catalog| {
                let mut hooks = catalog.hooks.iter();
                let is_bound = hooks.by_ref().filter(|(_, by)| by == "guard").count() == 2;
                is_bound && catalog.functions.contains_key(&id("d::drop"))
            })
            .await;
        Self { scene, ran, asked }
    }

    async fn send(&self) {
        let options = TurnOptions {
            functions: Some(FunctionPolicy {
                allow: vec!["d::*".to_owned()],
                ..FunctionPolicy::default()
            }),
            ..TurnOptions::default()
        };
        self.scene.send_options(&session("s"), "go", options).await;
    }

    fn asked(&self) -> Vec<(Stage, String)> {
        self.asked.lock().expect("lock").clone()
    }

    async fn refused(&self) -> Vec<String> {
        let events = self.scene.events(&session("s")).await;
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, Event::ApprovalRequested { .. })),
            "nobody is asked: {events:?}"
        );
        events
            .into_iter()
            .filter_map(|event| match event {
                Event::CallRefused {
                    outcome: ResultKind::Invalid,
                    text,
                    ..
                } => Some(text),
                _ => None,
            })
            .collect()
    }
}

fn drop_worker(ran: &Arc<AtomicU32>) -> Worker {
    let mut contract = Contract::new::<Target, Value>(id("d::drop"), "Drops something.");
    contract.class = Class::Destructive;
    contract.visibility = Visibility::Agent;
    let ran = Arc::clone(ran);
    Worker::new(name("d"), "Drops.").function(Function::new(contract, move |_, target: Target| {
        ran.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Fault>(json!({ "dropped": target.what })) }
    }))
}

fn guard(
    shaped: fn(&Arguments) -> Option<&'static str>,
    asked: &Arc<Mutex<Vec<(Stage, String)>>>,
) -> Worker {
    let stages = [
        (Stage::Shape, "guard::shape"),
        (Stage::Judge, "guard::judge"),
    ];
    stages.into_iter().fold(
        Worker::new(name("guard"), "Looks at calls."),
        |worker, (stage, function)| {
            let mut contract = Contract::new::<Request, Verdict>(id(function), "Looks.");
            contract.visibility = Visibility::Worker;
            let asked = Arc::clone(asked);
            let function = Function::new(contract, move |_, request: Request| {
                let arguments = request.call.expect("a call").arguments;
                let text = arguments.as_str().to_owned();
                asked.lock().expect("lock").push((stage, text));
                let mut mutations = Mutations::default();
                if stage == Stage::Shape {
                    let made = shaped(&arguments);
                    mutations.arguments = made.map(|text| Arguments::parse(text).expect("valid"));
                }
                let verdict = Verdict::Continue {
                    mutations,
                    annotation: None,
                    judgement: None,
                };
                async move { Ok::<_, Fault>(verdict) }
            });
            let binding = Binding {
                point: Point::PreTrigger,
                function: function.contract.id.clone(),
                // Before the gate's.
                priority: -10,
                stage,
                functions: Vec::new(),
                timeout_ms: None,
                on_error: None,
            };
            worker.function(function).hook(binding)
        },
    )
}

/// APPR-4: nobody is asked about a call that its function cannot take; the model is told what is wrong with it, and corrects it.
#[tokio::test(flavor = "multi_thread")]
async fn appr_4_nobody_is_asked_about_arguments_that_the_schema_excludes() {
    const WRONG: [&str; 5] = [
        "{}",
        r#"{"what": 7}"#,
        r#"{"what": "x", "why": "y"}"#,
        r#"{"what": "x", "times": 300}"#,
        r#"{"what": "x", "times": -1}"#,
    ];
    let rig = Rig::new(
        |request| match WRONG.get(results(request).len()) {
            Some(wrong) => raw_call("d__drop", wrong),
            None if results(request).len() == WRONG.len() => {
                calls(&[("d::drop", json!({"what": "x"}))])
            }
            None => says("done"),
        },
        |_| None,
    )
    .await;
    rig.send().await;
    let pending = rig.scene.pending().await;
    assert_eq!(pending.arguments.as_str(), r#"{"what":"x"}"#);
    let seen = r#"{"what":"x"}"#.to_owned();
    assert_eq!(
        rig.asked(),
        [(Stage::Shape, seen.clone()), (Stage::Judge, seen)],
        "hooks see what can run"
    );
    let events = rig.scene.events(&session("s")).await;
    let texts: Vec<String> = events
        .into_iter()
        .filter_map(|event| match event {
            Event::CallRefused { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    for (text, says) in texts.iter().zip([
        r#""what" is missing"#,
        "/what: must be string, is 7",
        r#"there is no "why"; there are: times, what"#,
        "/times: must be at most 255, is 300",
        "/times: must be at least 0, is -1",
    ]) {
        assert!(
            text.contains(says) && text.contains("nobody was asked"),
            "{text}"
        );
    }
    assert_eq!(texts.len(), WRONG.len());
    // An edit is held to the same.
    for (edit, code) in [
        (r#"{"what": 7}"#, Some("approval.arguments")),
        (r#"{"what": "y"}"#, None),
    ] {
        let request = json!({
            "approval_id": pending.approval_id,
            "digest": Digest::of(pending.arguments.as_str()),
            "decision": {"type": "edit", "arguments": edit},
            "channel": "test",
        });
        let reply = rig
            .scene
            .operate::<ResolveReply>("approval::resolve", &request)
            .await;
        match (reply, code) {
            (Ok(reply), None) => assert!(reply.won),
            (Err(fault), Some(code)) => {
                assert_eq!(fault.code, code);
                assert!(fault.message.contains("/what: must be string"), "{fault}");
            }
            (reply, _) => panic!("{edit}: {reply:?}"),
        }
    }
    assert_eq!(
        rig.scene.ended(&session("s"), 1).await,
        [EndReason::Completed]
    );
    assert_eq!(rig.ran.load(Ordering::SeqCst), 1);
    let reply: ExplainReply = rig
        .scene
        .operate(
            "approval::explain",
            &json!({"function": "d::drop", "arguments": r#"{"what": 7}"#}),
        )
        .await
        .expect("explained");
    assert_eq!(
        reply.invalid.as_deref(),
        Some("/what: must be string, is 7")
    );
}

/// APPR-4: what a shaping hook made is looked at again before a judge or a person sees it.
#[tokio::test(flavor = "multi_thread")]
async fn appr_4_what_a_hook_makes_must_fit_as_well() {
    let rig = Rig::new(
        |request| {
            if results(request).is_empty() {
                calls(&[("d::drop", json!({"what": "x"}))])
            } else {
                says("done")
            }
        },
        |_| Some(r#"{"what": ["x"]}"#),
    )
    .await;
    rig.send().await;
    assert_eq!(
        rig.scene.ended(&session("s"), 1).await,
        [EndReason::Completed]
    );
    let stages: Vec<Stage> = rig.asked().into_iter().map(|(stage, _)| stage).collect();
    assert_eq!(stages, [Stage::Shape], "no judge is asked");
    let refused = rig.refused().await;
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].contains("that a hook made") && refused[0].contains("/what: must be string"),
        "{refused:?}"
    );
    assert_eq!(
        outcomes(&rig.scene.events(&session("s")).await),
        [ResultKind::Invalid]
    );
    assert_eq!(rig.ran.load(Ordering::SeqCst), 0);
}
