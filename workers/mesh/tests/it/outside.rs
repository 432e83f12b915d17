//! Workers from outside against a real server: what they may do, what they may not, and that the server learns of them while
//! it runs.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use teamster_mesh::{
    Connect, Function, Mesh, Worker,
    broker::grant::{self, Change, Grant},
    connection::Call,
    credential, permission,
    serve::serve,
    topology::{self, Topology},
};
use teamster_protocol::{
    Contract, FunctionId, Principal, SessionId, Visibility, id::WorkerName, input::ControlKind,
    subject,
};
use teamster_testkit::{Secured, wait};

use crate::user::{LIMIT, User};

const NAME: &str = "weather";

fn name() -> WorkerName {
    WorkerName::parse(NAME).expect("valid")
}

fn function(text: &str) -> FunctionId {
    FunctionId::parse(text).expect("valid")
}

fn connect(secured: &Secured) -> Connect {
    Connect {
        url: secured.url(),
        credentials: Some(secured.credentials()),
    }
}

/// Grants the worker and has a running server take it.
async fn granted(secured: &Secured, namespaces: &[&str]) {
    let file = credential::file(&secured.credentials(), NAME);
    let grant = Grant {
        namespaces: namespaces.iter().map(|&text| text.to_owned()).collect(),
        key: grant::credentials(&file).expect("made"),
    };
    let mut change = Change::begin(secured.data()).expect("begun");
    change.put(name(), grant).expect("stored");
    drop(change);
    assert!(grant::apply(secured.data()).expect("applied"), "it runs");
    wait::until(LIMIT, "the server takes the credentials", || async {
        is_accepted(secured).await
    })
    .await;
}

async fn user_of(secured: &Secured, user: &str) -> Mesh {
    let user = WorkerName::parse(user).expect("valid");
    Mesh::connect(&connect(secured), user)
        .await
        .expect("connected")
}

/// Makes all streams and buckets.
async fn ensured(secured: &Secured) {
    let mesh = user_of(secured, permission::TOPOLOGY).await;
    topology::ensure(&mesh, &Topology { replicas: 1 })
        .await
        .expect("ensured");
}

async fn is_accepted(secured: &Secured) -> bool {
    Mesh::connect_within(&connect(secured), name(), Duration::ZERO)
        .await
        .is_ok()
}

async fn registry(topology: &User) {
    topology
        .api(
            "$JS.API.STREAM.CREATE.KV_registry",
            json!({"name": "KV_registry", "subjects": ["$KV.registry.>"], "storage": "file",
                   "max_msgs_per_subject": 1, "allow_rollup_hdrs": true, "allow_direct": true, "allow_msg_ttl": true}),
        )
        .await;
}

fn worker() -> Worker {
    let mut contract = Contract::new::<serde_json::Value, serde_json::Value>(
        function("weather::today"),
        "Says how the weather is.",
    );
    contract.visibility = Visibility::Agent;
    Worker::new(name(), "Knows the weather.").function(Function::new(
        contract,
        |_ctx, request: serde_json::Value| async move { Ok(json!({"asked": request, "sky": "blue"})) },
    ))
}

/// SEC-31: what the server answers to a worker from outside can be sent over what others have stored. A guard and the live
/// configuration stay what they were; and nobody removes all of a bucket by writing his own key.
#[tokio::test]
async fn sec_31_answers_of_the_server_change_no_guard_and_no_configuration() {
    let secured = Secured::start().await;
    let as_user = |user: &'static str| user_of(&secured, user);
    ensured(&secured).await;
    let operator = as_user(permission::OPERATOR).await;
    granted(&secured, &[NAME]).await;
    let gate = WorkerName::parse("approval-gate").expect("valid");
    let hooks = json!({"name": gate, "bindings": [{"point": "pre-trigger", "function": "approval::judge"}]});
    let gate = User::connect(&secured, "approval-gate").await;
    let body: &'static str = Box::leak(hooks.to_string().into_boxed_str());
    gate.store(
        "$KV.registry.hooks.approval-gate",
        async_nats::HeaderMap::new(),
        body,
    )
    .await;
    let registry = operator.registry().await.expect("readable");
    let catalog = registry
        .wait(LIMIT, |catalog| catalog.hooks.len() == 1)
        .await;
    assert_eq!(catalog.hooks.len(), 1);
    let harness = WorkerName::parse("harness").expect("valid");
    let body = Bytes::from_static(b"{\"max_calls\":1}");
    operator
        .configs()
        .put(&harness, body.clone(), "me", None)
        .await
        .expect("stored");
    let guest = User::connect(&secured, NAME).await;
    let own = format!("$KV.registry.worker.{NAME}.1");
    for target in ["$KV.registry.hooks.approval-gate", "$KV.config.harness"] {
        for asked in [own.as_str(), "$JS.API.STREAM.INFO.KV_registry"] {
            guest.publish(asked, Some(target)).await;
        }
    }
    wait::until(
        LIMIT,
        "an answer is stored over the configuration",
        || async {
            let history = operator.configs().history(&harness).await.expect("read");
            history.len() == 3
        },
    )
    .await;
    let found = operator
        .configs()
        .get(&harness)
        .await
        .expect("read")
        .expect("there");
    assert_eq!(found.body, Some(body));
    let next = Bytes::from_static(b"{\"max_calls\":2}");
    let put = operator
        .configs()
        .put(&harness, next, "me", Some(found.revision))
        .await;
    assert!(
        put.expect("stored").is_some(),
        "the next revision follows what is there"
    );
    assert_eq!(
        registry.catalog().hooks.len(),
        1,
        "who knew the guard knows it still"
    );
    let anew = as_user(permission::OPERATOR).await;
    let catalog = anew.registry().await.expect("readable").catalog();
    assert_eq!(
        catalog.unreadable_hooks,
        ["approval-gate"],
        "who did not knows that there is one"
    );
}

/// SEC-31: nobody removes all of a bucket by writing his own key.
#[tokio::test]
async fn sec_31_a_rollup_of_ones_own_key_removes_nothing() {
    let secured = Secured::start().await;
    ensured(&secured).await;
    granted(&secured, &[NAME]).await;
    let gate = User::connect(&secured, "approval-gate").await;
    let hooks = "$KV.registry.hooks.approval-gate";
    gate.store(hooks, async_nats::HeaderMap::new(), "{}").await;
    let guest = User::connect(&secured, NAME).await;
    for scope in ["all", "sub"] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Rollup", scope);
        headers.insert("Nats-TTL", "30s");
        let own = format!("$KV.registry.worker.{NAME}.1");
        let asked = guest.client.request_with_headers(own, headers, "{}".into());
        let answer = asked.await.expect("an answer");
        let said: serde_json::Value = serde_json::from_slice(&answer.payload).expect("JSON");
        assert_eq!(said["error"]["description"], "rollup not permitted");
    }
    let operator = User::connect(&secured, permission::OPERATOR).await;
    let kept = operator
        .api(
            "$JS.API.STREAM.MSG.GET.KV_registry",
            json!({"last_by_subj": hooks}),
        )
        .await;
    assert_eq!(kept["message"]["subject"], hooks);
}

/// SEC-31: a worker from outside serves, registers, is found and answers; and the sessions of others go on while the server
/// learns of it.
#[tokio::test]
async fn sec_31_a_worker_from_outside_serves_and_disturbs_nobody() {
    let secured = Secured::start().await;
    let topology = User::connect(&secured, permission::TOPOLOGY).await;
    registry(&topology).await;
    let operator = WorkerName::parse(permission::OPERATOR).expect("valid");
    let operator = Mesh::connect(&connect(&secured), operator)
        .await
        .expect("connected");
    granted(&secured, &[NAME]).await;
    let mesh = Mesh::connect(&connect(&secured), name())
        .await
        .expect("connected");
    let serving = serve(mesh, worker()).await.expect("served");
    let catalog = operator
        .registry()
        .await
        .expect("readable")
        .wait(LIMIT, |catalog| !catalog.workers.is_empty())
        .await;
    let (_, owner) = &catalog.functions[&function("weather::today")];
    assert_eq!(owner, NAME);
    let answer = operator
        .call(Call::new(
            function("weather::today"),
            &br#"{"where":"here"}"#[..],
        ))
        .await
        .expect("answered");
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(answer, json!({"asked": {"where": "here"}, "sky": "blue"}));
    let info = operator
        .request("$SRV.INFO.weather".to_owned(), Bytes::new(), LIMIT)
        .await
        .expect("answered");
    let info = String::from_utf8(info.to_vec()).expect("text");
    assert!(info.contains("fn.weather.today"), "{info}");
    serving.drain().await;
    assert_eq!(
        topology
            .client
            .statistics()
            .connects
            .load(Ordering::Relaxed),
        1,
        "nobody lost the connection"
    );
}

/// SEC-31: what a worker from outside has no business with the server itself refuses.
#[tokio::test]
async fn sec_31_a_worker_from_outside_can_do_nothing_else() {
    let secured = Secured::start().await;
    let topology = User::connect(&secured, permission::TOPOLOGY).await;
    registry(&topology).await;
    granted(&secured, &[NAME, "climate"]).await;
    let user = User::connect(&secured, NAME).await;
    let s = SessionId::parse("ses_1").expect("valid");
    let resolve = function("approval::resolve");
    let owner = Principal::parse(permission::OWNER).expect("valid");
    let mut forbidden = vec![
        subject::log(&s),
        subject::snap(&s),
        subject::turn_in(&s),
        subject::turn_kick(&s),
        subject::turn_timer(&s, "apr_1"),
        subject::live(&s),
        "gen.1.2.3".to_owned(),
        "gen.run.1.2.3".to_owned(),
        "evt.turn-started.s".to_owned(),
        "own.x".to_owned(),
        "blob.x".to_owned(),
        subject::function(&function("fs::read")),
        subject::function(&function("weather::today")),
        subject::operator(owner.as_str(), &resolve),
        "call.weather.x".to_owned(),
        "$KV.config.harness".to_owned(),
        "$KV.config.weather".to_owned(),
        "$KV.heads.x".to_owned(),
        "$KV.registry.worker.router.1".to_owned(),
        "$KV.registry.hooks.weather".to_owned(),
        "$KV.registry.hooks.approval-gate".to_owned(),
        "_INBOX.harness.1".to_owned(),
        "$SRV.PING".to_owned(),
        "$SYS.REQ.SERVER.PING.VARZ".to_owned(),
        "$JS.API.INFO".to_owned(),
        "$JS.API.STREAM.MSG.GET.KV_registry".to_owned(),
        "$JS.API.STREAM.MSG.GET.KV_config".to_owned(),
        "$JS.API.STREAM.MSG.GET.LOG_0".to_owned(),
        "$JS.API.DIRECT.GET.KV_registry".to_owned(),
        "$JS.API.CONSUMER.CREATE.KV_registry".to_owned(),
        "$JS.API.CONSUMER.CREATE.LOG_0".to_owned(),
        "$JS.API.STREAM.DELETE.KV_registry".to_owned(),
    ];
    for kind in [
        ControlKind::Stop,
        ControlKind::Decide,
        ControlKind::Result,
        ControlKind::Timer,
        ControlKind::Admin,
    ] {
        forbidden.push(subject::turn_ctl(&s, kind));
    }
    for subject in &forbidden {
        user.cannot_publish(subject).await;
    }
    for subject in [
        ">",
        "log.>",
        "turn.>",
        "live.>",
        "fn.fs.>",
        "op.*.approval.>",
        "_INBOX.>",
        "_INBOX.harness.>",
        "own.>",
        "gen.>",
        "$KV.config.>",
        "$KV.registry.>",
        "evt.>",
        "$JS.>",
    ] {
        user.cannot_subscribe(subject).await;
    }
    let mut own = user.subscribe("fn.climate.>").await;
    assert!(own.next().now_or_never().is_none());
    // It answers who asks it, and that one only.
    let mut asked = user.subscribe("fn.weather.>").await;
    let operator = User::connect(&secured, permission::OPERATOR).await;
    let answers = async {
        let request = asked.next().await.expect("a request");
        let reply = request.reply.expect("a reply subject");
        user.client
            .publish(reply, "blue".into())
            .await
            .expect("sent");
    };
    let (answer, ()) = tokio::join!(operator.ask("fn.weather.today", "{}"), answers);
    assert_eq!(answer.payload, "blue");
}

/// A server that was killed and one that was left running know the worker; one that was taken back is out at once.
#[tokio::test]
async fn a_worker_from_outside_outlives_the_server_and_ends_with_its_grant() {
    let mut secured = Secured::start().await;
    let topology = User::connect(&secured, permission::TOPOLOGY).await;
    registry(&topology).await;
    granted(&secured, &[NAME]).await;
    secured.crash();
    secured.start_again().await;
    assert!(
        secured.broker().was_adopted(),
        "the same server, the same rights"
    );
    secured.stop().await;
    secured.start_again().await;
    assert!(is_accepted(&secured).await, "a new server knows it");
    let user = User::connect(&secured, NAME).await;
    let again = User::connect(&secured, permission::TOPOLOGY).await;

    let mut change = Change::begin(secured.data()).expect("begun");
    assert!(change.remove(&name()).expect("removed"));
    drop(change);
    assert!(grant::apply(secured.data()).expect("applied"));
    wait::until(LIMIT, "the server forgets the worker", || async {
        !is_accepted(&secured).await
    })
    .await;
    wait::until(LIMIT, "its connection is cut", || async {
        user.client.connection_state() != async_nats::connection::State::Connected
    })
    .await;
    assert_eq!(
        again.client.statistics().connects.load(Ordering::Relaxed),
        1
    );
    secured.crash();
    secured.start_again().await;
    assert!(secured.broker().was_adopted());
    assert!(!is_accepted(&secured).await);
}

/// Two namespaces of two workers are apart; a worker's namespaces can grow while it is connected.
#[tokio::test]
async fn a_worker_keeps_its_key_when_its_namespaces_change() {
    let secured = Secured::start().await;
    granted(&secured, &[NAME]).await;
    let file = credential::file(&secured.credentials(), NAME);
    let before = credential::read(&file).expect("a key").public_key();
    let user = User::connect(&secured, NAME).await;
    user.cannot_subscribe("fn.climate.>").await;
    granted(&secured, &[NAME, "climate"]).await;
    assert_eq!(credential::read(&file).expect("a key").public_key(), before);
    wait::until(LIMIT, "the new namespace is open", || async {
        let fresh = User::connect(&secured, NAME).await;
        let mut sub = fresh.subscribe("fn.climate.>").await;
        sub.next().now_or_never().is_none() && fresh.refusals().is_empty()
    })
    .await;
    let listed = grant::Grants::load(secured.data()).expect("readable");
    let namespaces: BTreeSet<String> = [NAME, "climate"].map(str::to_owned).into();
    assert_eq!(listed.workers[&name()].namespaces, namespaces);
}
