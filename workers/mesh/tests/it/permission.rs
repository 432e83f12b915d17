//! The broker's permissions, tried against the broker: what a worker may not do, nats-server itself refuses.

use std::collections::BTreeSet;

use async_nats::{ConnectOptions, HeaderMap};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use teamster_mesh::{credential, permission};
use teamster_protocol::{
    ApprovalId, CallId, FunctionId, RequestId, SessionId, input::ControlKind, subject,
};
use teamster_testkit::{Secured, wait};

use crate::user::{LIMIT, User};

/// The streams whose growth is watched, apart from the log.
const STREAMS: [&str; 4] = ["TURNS", "CONTROL", "SNAP", "GENERATIONS"];

fn session() -> SessionId {
    SessionId::parse("ses_1").expect("valid")
}

fn request() -> RequestId {
    RequestId::of(&session(), 3, 0)
}

fn log_stream() -> String {
    let partition = subject::partition(&session().token());
    format!("LOG_{}", subject::log_stream_of(partition))
}

/// A broker with the streams that the tests use, made by the user who may.
async fn broker() -> (Secured, User) {
    let secured = Secured::start().await;
    let topology = User::connect(&secured, permission::TOPOLOGY).await;
    let log = subject::log(&session());
    let streams = [
        json!({"name": "TURNS", "subjects": ["turn.in.*.*"], "storage": "file"}),
        json!({"name": "CONTROL", "subjects": ["turn.ctl.*.*.*", "turn.kick.*.*", "turn.tmr.*.*.*"],
               "storage": "file", "allow_msg_ttl": true, "allow_msg_schedules": true}),
        json!({"name": log_stream(), "subjects": [log], "storage": "file", "allow_direct": true}),
        json!({"name": "SNAP", "subjects": ["snap.*.*"], "storage": "file"}),
        json!({"name": "GENERATIONS", "subjects": ["gen.*.*.*"], "storage": "memory", "allow_direct": true}),
        json!({"name": "LIVE", "subjects": ["live.*"], "storage": "memory"}),
        json!({"name": "KV_registry", "subjects": ["$KV.registry.>"], "storage": "file",
               "max_msgs_per_subject": 1, "allow_rollup_hdrs": true, "allow_direct": true}),
    ];
    for stream in streams {
        let name = stream["name"].as_str().expect("a name").to_owned();
        topology
            .api(&format!("$JS.API.STREAM.CREATE.{name}"), stream)
            .await;
    }
    for (stream, filter) in [("TURNS", "turn.in.>"), ("CONTROL", "turn.ctl.>")] {
        let config = json!({"stream_name": stream, "config": {"durable_name": "bell", "name": "bell",
            "ack_policy": "explicit", "filter_subjects": [filter]}});
        topology
            .api(&format!("$JS.API.CONSUMER.CREATE.{stream}.bell"), config)
            .await;
    }
    (secured, topology)
}

/// How many messages each stream has ever taken.
async fn ends(topology: &User) -> Vec<u64> {
    let mut ends = Vec::new();
    for stream in STREAMS
        .iter()
        .map(ToString::to_string)
        .chain([log_stream()])
    {
        let info = topology
            .api(&format!("$JS.API.STREAM.INFO.{stream}"), json!({}))
            .await;
        ends.push(info["state"]["last_seq"].as_u64().expect("a number"));
    }
    ends
}

/// SEC-31: the forged decision, commit, timer, result, snapshot, kick and generation, from every user who has no business
/// with them.
#[tokio::test]
async fn sec_31_forgeries_are_refused_by_the_server_itself() {
    let (secured, topology) = broker().await;
    let s = session();
    let forgeries = [
        (subject::turn_ctl(&s, ControlKind::Decide), "approval-gate"),
        (subject::log(&s), "harness"),
        (subject::turn_timer(&s, "apr_1"), "harness"),
        (subject::turn_ctl(&s, ControlKind::Timer), "harness"),
        (subject::turn_ctl(&s, ControlKind::Result), "harness"),
        (subject::snap(&s), "harness"),
        (subject::turn_kick(&s), "harness"),
        (subject::generation(&request()), "router"),
    ];
    let before = ends(&topology).await;
    for name in permission::users() {
        let user = User::connect(&secured, name).await;
        for (subject, owner) in &forgeries {
            if *owner != name {
                user.cannot_publish(subject).await;
            }
        }
    }
    assert_eq!(ends(&topology).await, before, "the streams did not grow");
    for (subject, owner) in forgeries.iter().filter(|(s, _)| !s.starts_with("turn.tmr")) {
        let owner = User::connect(
            &secured,
            if *owner == "harness" {
                "harness"
            } else {
                owner
            },
        )
        .await;
        owner.store(subject, HeaderMap::new(), "{}").await;
    }
}

/// SEC-31: nobody can read what another worker is answered, nor write into its inbox.
#[tokio::test]
async fn sec_31_the_inbox_of_another_worker_is_closed() {
    let (secured, _topology) = broker().await;
    let names: BTreeSet<&str> = permission::users().chain([permission::SYSTEM]).collect();
    for name in permission::users() {
        let user = User::connect(&secured, name).await;
        for other in names.iter().filter(|other| **other != name) {
            user.cannot_subscribe(&format!("_INBOX.{other}.>")).await;
        }
        user.cannot_subscribe("_INBOX.>").await;
        user.cannot_subscribe(">").await;
        // Harness and router answer into inboxes instead of wherever a request points.
        if !["harness", "router"].contains(&name) {
            user.cannot_publish("_INBOX.somebody.1").await;
        }
        let mut own = user.subscribe(&format!("_INBOX.{name}.>")).await;
        assert!(own.next().now_or_never().is_none());
    }
}

/// SEC-31: `op.` subjects are the operator's, in the operator's own name; workers' functions are served by their worker.
#[tokio::test]
async fn sec_31_operator_functions_are_out_of_the_workers_reach() {
    let (secured, _topology) = broker().await;
    let resolve = FunctionId::parse("approval::resolve").expect("valid");
    let as_owner = subject::operator(permission::OWNER, &resolve);
    for name in permission::users() {
        let user = User::connect(&secured, name).await;
        if name == permission::OPERATOR {
            user.cannot_publish(&subject::operator("mallory", &resolve))
                .await;
        } else {
            user.cannot_publish(&as_owner).await;
        }
        if name != "approval-gate" {
            user.cannot_subscribe(&as_owner).await;
            user.cannot_subscribe("op.*.approval.>").await;
            user.cannot_subscribe("fn.approval.>").await;
        }
    }
}

/// SEC-31: the server opens the reply subject of a message to whoever receives it and may answer. Nobody who may answer can send
/// itself a message, and so choose what is opened to it.
#[tokio::test]
async fn sec_31_nobody_opens_a_subject_to_itself() {
    let (secured, _topology) = broker().await;
    let resolve = FunctionId::parse("approval::resolve").expect("valid");
    let as_owner = subject::operator(permission::OWNER, &resolve);
    let gate = User::connect(&secured, "approval-gate").await;
    let mut served = gate.subscribe("op.*.approval.>").await;
    let asked = subject::generation_run(&request());
    for (name, own, is_received) in [
        ("router", "gen.run.zz", false),
        ("router", "gen.run.a", false),
        ("router", asked.as_str(), true),
        ("harness", "fn.harness.zz", true),
        ("harness", "own.zz", true),
        ("harness", "call.harness.zz", true),
        ("approval-gate", "fn.approval.zz", false),
        ("approval-gate", "call.approval.zz", false),
        ("sandbox", "fn.fs.zz", false),
        ("sandbox", "call.sandbox.zz", false),
    ] {
        let (one, two) = (
            User::connect(&secured, name).await,
            User::connect(&secured, name).await,
        );
        let mut own_messages = two.subscribe(own).await;
        // Answered once the server has read the subscription.
        two.ask("$JS.API.STREAM.INFO.KV_registry", "").await;
        one.publish(own, Some(&as_owner)).await;
        if is_received {
            let message = wait::within(LIMIT, own, own_messages.next()).await;
            let reply = message.expect("a message").reply.expect("a reply subject");
            assert_eq!(reply.as_str(), as_owner);
        }
        two.cannot_publish(&as_owner).await;
        one.cannot_publish(&as_owner).await;
        assert!(own_messages.next().now_or_never().flatten().is_none());
    }
    let operator = User::connect(&secured, permission::OPERATOR).await;
    operator.publish_with(&as_owner, None, "by the owner").await;
    let first = wait::within(LIMIT, "a decision", served.next()).await;
    assert_eq!(first.expect("a call").payload.as_ref(), b"by the owner");
}

/// SEC-31: streams cannot be deleted, purged, rewritten or redirected by those who use them.
#[tokio::test]
async fn sec_31_logs_cannot_be_removed_or_redirected() {
    let (secured, _topology) = broker().await;
    let log = log_stream();
    for name in permission::users() {
        let user = User::connect(&secured, name).await;
        for api in [
            "STREAM.DELETE",
            "STREAM.PURGE",
            "STREAM.MSG.DELETE",
            "STREAM.RESTORE",
            "STREAM.SNAPSHOT",
        ] {
            // Whoever commits takes out what is no commit.
            if (name, api) != ("harness", "STREAM.MSG.DELETE") {
                user.cannot_publish(&format!("$JS.API.{api}.{log}")).await;
            }
        }
        if name != permission::TOPOLOGY {
            user.cannot_publish(&format!("$JS.API.STREAM.CREATE.{name}"))
                .await;
            user.cannot_publish(&format!("$JS.API.STREAM.UPDATE.{log}"))
                .await;
        }
        if name != "harness" {
            user.cannot_publish("$JS.ACK.TURNS.bell.1.1.1.1.0").await;
            user.cannot_publish("$JS.API.CONSUMER.MSG.NEXT.TURNS.bell")
                .await;
        }
    }
}

/// SEC-31: a worker cannot have the server send content of its own choice to a subject that it may not publish to.
#[tokio::test]
async fn sec_31_stored_content_cannot_be_sent_on_as_a_forgery() {
    let (secured, topology) = broker().await;
    let router = User::connect(&secured, "router").await;
    let kept = subject::generation(&request());
    router
        .store(&kept, HeaderMap::new(), "{\"forged\":true}")
        .await;
    let before = ends(&topology).await;
    let log = subject::log(&session());
    for request in [
        format!("$JS.API.DIRECT.GET.GENERATIONS.{kept}"),
        "$JS.API.CONSUMER.MSG.NEXT.GENERATIONS.x".to_owned(),
        "$JS.API.CONSUMER.CREATE.GENERATIONS.x".to_owned(),
    ] {
        router.publish(&request, Some(&log)).await;
        router.is_refused("publish", &request).await;
    }
    let sandbox = User::connect(&secured, "sandbox").await;
    for request in [
        "$JS.API.DIRECT.GET.KV_registry.x",
        "$JS.API.STREAM.MSG.GET.KV_registry",
    ] {
        sandbox.publish(request, Some(&log)).await;
        sandbox.is_refused("publish", request).await;
    }
    assert_eq!(ends(&topology).await, before);
}

/// The user that asks for settings can neither reload nor stop the server, nor see the mesh's account.
#[tokio::test]
async fn the_system_user_only_asks_for_settings() {
    let secured = Secured::start().await;
    let system = User::connect(&secured, permission::SYSTEM).await;
    system.ask("$SYS.REQ.SERVER.PING.VARZ", "").await;
    for subject in [
        "$SYS.REQ.SERVER.X.RELOAD",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "log.05.s",
    ] {
        system.cannot_publish(subject).await;
    }
    system.cannot_subscribe("$SYS.>").await;
}

#[tokio::test]
async fn strangers_are_not_let_in() {
    let (secured, _topology) = broker().await;
    let error = async_nats::connect(secured.url())
        .await
        .expect_err("refused");
    assert!(
        error.to_string().contains("authorization violation"),
        "{error}"
    );
    let other = Secured::start().await;
    let foreign = credential::read(&credential::file(&other.credentials(), "harness"));
    let seed = foreign.expect("credentials").seed().expect("a seed");
    let error = ConnectOptions::with_nkey(seed)
        .connect(secured.url())
        .await
        .expect_err("refused");
    assert!(
        error.to_string().contains("authorization violation"),
        "{error}"
    );
}

/// What the harness does in a turn: bell, commit, timer, batch read, clean-up.
#[tokio::test]
async fn the_harness_can_do_its_work() {
    let (secured, _topology) = broker().await;
    let harness = User::connect(&secured, "harness").await;
    let s = session();
    harness
        .store(&subject::turn_in(&s), HeaderMap::new(), "{}")
        .await;
    let bell = harness.pull("TURNS", "bell").await;
    let ack = bell.reply.expect("a place to acknowledge");
    harness.ask(&ack, "+ACK").await;
    let mut expected = HeaderMap::new();
    expected.insert("Nats-Expected-Last-Subject-Sequence", "0");
    let seq = harness
        .store(&subject::log(&s), expected, "{\"n\":1}")
        .await;
    harness
        .store(&subject::snap(&s), HeaderMap::new(), "{}")
        .await;
    harness
        .store(&subject::turn_kick(&s), HeaderMap::new(), "")
        .await;
    let mut schedule = HeaderMap::new();
    schedule.insert("Nats-Schedule", "@at 2001-01-01T00:00:00Z");
    schedule.insert(
        "Nats-Schedule-Target",
        subject::turn_ctl(&s, ControlKind::Timer),
    );
    harness
        .store(&subject::turn_timer(&s, "apr_1"), schedule, "{\"timer\":1}")
        .await;
    let fired = json!({"last_by_subj": subject::turn_ctl(&s, ControlKind::Timer)});
    wait::until(LIMIT, "the timer fires", || async {
        let answer = harness
            .ask("$JS.API.STREAM.MSG.GET.CONTROL", fired.clone())
            .await;
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        answer.get("message").is_some()
    })
    .await;
    let purge = json!({"filter": subject::turn_timer(&s, "apr_1")});
    harness.api("$JS.API.STREAM.PURGE.CONTROL", purge).await;
    harness
        .api("$JS.API.STREAM.MSG.DELETE.TURNS", json!({"seq": 1}))
        .await;
    let direct = format!("$JS.API.DIRECT.GET.{}", log_stream());
    let got = harness.ask(&direct, json!({"seq": seq})).await;
    assert_eq!(got.payload.as_ref(), b"{\"n\":1}");
    assert_eq!(harness.refusals(), [""; 0]);
}

/// The readers of the log see a commit through a consumer of their own, and decide or not as they may.
#[tokio::test]
async fn the_gate_and_the_operator_can_follow_the_log() {
    let (secured, _topology) = broker().await;
    let harness = User::connect(&secured, "harness").await;
    harness
        .store(&subject::log(&session()), HeaderMap::new(), "{\"n\":1}")
        .await;
    for name in ["approval-gate", permission::OPERATOR, "harness"] {
        let user = User::connect(&secured, name).await;
        let log = log_stream();
        let config = json!({"stream_name": log, "config": {"name": "reader", "ack_policy": "none",
            "mem_storage": true, "inactive_threshold": 30_000_000_000_u64}});
        user.api(&format!("$JS.API.CONSUMER.CREATE.{log}.reader"), config)
            .await;
        let commit = user.pull(&log, "reader").await;
        assert_eq!(commit.payload.as_ref(), b"{\"n\":1}");
        user.api(&format!("$JS.API.CONSUMER.DELETE.{log}.reader"), json!({}))
            .await;
        assert_eq!(user.refusals(), [""; 0]);
    }
    let gate = User::connect(&secured, "approval-gate").await;
    let decide = subject::turn_ctl(&session(), ControlKind::Decide);
    gate.store(&decide, HeaderMap::new(), "{}").await;
    let operator = User::connect(&secured, permission::OPERATOR).await;
    let stop = subject::turn_ctl(&session(), ControlKind::Stop);
    operator.store(&stop, HeaderMap::new(), "{}").await;
    operator
        .store(&subject::turn_in(&session()), HeaderMap::new(), "{}")
        .await;
    assert_eq!((gate.refusals().len(), operator.refusals().len()), (0, 0));
}

/// A worker answers a call with signs of life and a result, registers itself, and is discovered; it may write to nobody who
/// did not ask.
#[tokio::test]
async fn workers_serve_register_and_answer() {
    let (secured, _topology) = broker().await;
    let sandbox = User::connect(&secured, "sandbox").await;
    let key = "$KV.registry.worker.sandbox.i1";
    sandbox.store(key, HeaderMap::new(), "{}").await;
    sandbox
        .store("$KV.registry.hooks.sandbox", HeaderMap::new(), "{}")
        .await;
    sandbox
        .cannot_publish("$KV.registry.worker.harness.i1")
        .await;
    sandbox
        .cannot_publish("$KV.registry.hooks.approval-gate")
        .await;
    let read = FunctionId::parse("fs::read").expect("valid");
    let mut calls = sandbox.subscribe(&subject::function(&read)).await;
    let mut pings = sandbox.subscribe("$SRV.PING").await;
    let call = CallId::of(&request(), 0, 1);
    let mut about = sandbox.subscribe(&subject::call("fs", call.as_str())).await;
    for name in ["harness", permission::OPERATOR] {
        let caller = User::connect(&secured, name).await;
        let inbox = format!("_INBOX.{name}.abc");
        let mut answers = caller.subscribe(&inbox).await;
        caller
            .publish(&subject::function(&read), Some(&inbox))
            .await;
        let request = wait::within(LIMIT, "the call", calls.next())
            .await
            .expect("a call");
        let reply = request.reply.expect("a reply subject");
        for body in ["1", "2", "3"] {
            sandbox
                .client
                .publish(reply.clone(), body.into())
                .await
                .expect("sent");
            let answer = wait::within(LIMIT, "an answer", answers.next())
                .await
                .expect("an answer");
            assert_eq!(answer.payload.as_ref(), body.as_bytes());
        }
        caller
            .publish(&subject::call("fs", call.as_str()), Some(&inbox))
            .await;
        wait::within(LIMIT, "a question about a call", about.next())
            .await
            .expect("a question");
        sandbox
            .cannot_publish(&format!("_INBOX.{name}.unasked"))
            .await;
    }
    let operator = User::connect(&secured, permission::OPERATOR).await;
    operator
        .publish("$SRV.PING", Some("_INBOX.operator.ping"))
        .await;
    wait::within(LIMIT, "a ping", pings.next())
        .await
        .expect("a ping");
    operator
        .store("$KV.registry.hooks.sandbox", HeaderMap::new(), "")
        .await;
    sandbox.cannot_publish("$SRV.PING").await;
    sandbox.cannot_publish(&subject::function(&read)).await;
}

#[tokio::test]
async fn the_router_keeps_and_finds_generations() {
    let (secured, _topology) = broker().await;
    let router = User::connect(&secured, "router").await;
    let kept = subject::generation(&request());
    router.store(&kept, HeaderMap::new(), "{\"text\":1}").await;
    router
        .store(&subject::live(&session()), HeaderMap::new(), "{}")
        .await;
    let get = json!({"last_by_subj": kept});
    router
        .api("$JS.API.STREAM.MSG.GET.GENERATIONS", get.clone())
        .await;
    let mut asked = router.subscribe(&subject::generation_run(&request())).await;
    let harness = User::connect(&secured, "harness").await;
    harness
        .publish(
            &subject::generation_run(&request()),
            Some("_INBOX.harness.1"),
        )
        .await;
    wait::within(LIMIT, "a question", asked.next())
        .await
        .expect("a question");
    harness.api("$JS.API.STREAM.MSG.GET.GENERATIONS", get).await;
    harness
        .api("$JS.API.STREAM.PURGE.GENERATIONS", json!({"filter": kept}))
        .await;
    assert_eq!((router.refusals().len(), harness.refusals().len()), (0, 0));
    let approval = ApprovalId::of(&CallId::of(&request(), 0, 1), 0, 1);
    router
        .cannot_publish(&subject::turn_timer(&session(), approval.as_str()))
        .await;
}
