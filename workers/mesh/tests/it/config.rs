//! The live configuration against a real server: followed in order, over reconnections and restarts, written by the operator
//! alone.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use teamster_mesh::{
    Connect, Mesh,
    config::{Entry, Follow},
    permission,
    topology::{self, Topology},
};
use teamster_protocol::{id::WorkerName, limits};
use teamster_testkit::{Secured, wait};

use crate::user::{LIMIT, User};

fn name(text: &str) -> WorkerName {
    WorkerName::parse(text).expect("valid")
}

async fn mesh(secured: &Secured, user: &str) -> Mesh {
    let connect = Connect {
        url: secured.url(),
        credentials: Some(secured.credentials()),
    };
    Mesh::connect(&connect, name(user))
        .await
        .expect("connected")
}

async fn broker() -> Secured {
    let secured = Secured::start().await;
    let mesh = mesh(&secured, permission::TOPOLOGY).await;
    topology::ensure(&mesh, &Topology { replicas: 1 })
        .await
        .expect("ensured");
    secured
}

async fn put(operator: &Mesh, text: &str) -> u64 {
    let body = Bytes::copy_from_slice(text.as_bytes());
    let (configs, router) = (operator.configs(), name("router"));
    let put = configs.put(&router, body, "me@here", None).await;
    put.expect("stored").expect("no condition")
}

fn text(entry: Option<&Entry>) -> Option<&str> {
    entry
        .and_then(|entry| entry.body.as_deref())
        .map(|body| std::str::from_utf8(body).expect("text"))
}

/// Waits until a key holds `want`.
async fn until(follow: &mut Follow, want: Option<&str>) {
    let description = format!("the key holds {want:?}");
    wait::within(LIMIT, &description, async {
        while text(follow.now()) != want {
            follow.changed().await;
        }
    })
    .await;
}

/// CONF-1: a worker follows its own key, whatever happens to connection and broker, and ends with what was written last.
#[tokio::test]
async fn conf_1_a_key_is_followed_over_restarts_and_ends_with_the_last_value() {
    let mut secured = broker().await;
    let operator = mesh(&secured, permission::OPERATOR).await;
    let router = mesh(&secured, "router").await;
    let mut follow = router.configs().follow(name("router")).await.expect("read");
    assert_eq!(follow.now(), None);
    let first = put(&operator, "{\"a\":1}").await;
    until(&mut follow, Some("{\"a\":1}")).await;
    let entry = follow.now().expect("an entry").clone();
    assert_eq!(
        (entry.revision, entry.by.as_deref()),
        (first, Some("me@here"))
    );
    assert!(entry.at.starts_with("20"), "{}", entry.at);

    // Many changes at once: the last one counts, and none comes after it.
    let mut last = first;
    for number in 0..50 {
        last = put(&operator, &format!("{{\"n\":{number}}}")).await;
    }
    until(&mut follow, Some("{\"n\":49}")).await;
    assert_eq!(follow.now().expect("an entry").revision, last);

    // What is written while the worker's server is away is read when it is back.
    secured.stop().await;
    secured.start_again().await;
    let again = mesh(&secured, permission::OPERATOR).await;
    let removed = again.configs().remove(&name("router"), "me", None).await;
    let removed = removed.expect("stored").expect("no condition");
    assert!(removed > last);
    until(&mut follow, None).await;

    // A tool that knows nothing of us writes a value.
    let user = User::connect(&secured, permission::OPERATOR).await;
    user.store(
        "$KV.config.router",
        async_nats::HeaderMap::new(),
        "{\"b\":2}",
    )
    .await;
    until(&mut follow, Some("{\"b\":2}")).await;
    assert_eq!(follow.now().expect("an entry").by, None);
    let other = mesh(&secured, "sandbox").await;
    let other = other.configs().follow(name("sandbox")).await.expect("read");
    assert_eq!(other.now(), None, "its own key alone");
}

/// Revisions are kept, bounded, and a write can be bound to the revision that was seen.
#[tokio::test]
async fn revisions_are_kept_and_a_write_can_be_bound_to_one() {
    let secured = broker().await;
    let operator = mesh(&secured, permission::OPERATOR).await;
    let configs = operator.configs();
    let router = name("router");
    assert_eq!(configs.history(&router).await.expect("read"), []);
    assert_eq!(configs.keys().await.expect("read"), Vec::<String>::new());
    let body = |text: &'static str| Bytes::from_static(text.as_bytes());
    let first = configs.put(&router, body("{}"), "a", Some(0)).await;
    let first = first.expect("answered").expect("it is the first");
    let late = configs.put(&router, body("{}"), "b", Some(0)).await;
    assert_eq!(late.expect("answered"), None, "somebody was faster");
    let second = configs.remove(&router, "c\n\u{7f}d é", Some(first)).await;
    let second = second.expect("answered").expect("nobody was faster");
    let history = configs.history(&router).await.expect("read");
    let shown: Vec<(u64, bool, Option<&str>)> = history
        .iter()
        .map(|entry| (entry.revision, entry.body.is_some(), entry.by.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [(first, true, Some("a")), (second, false, Some("cd"))]
    );
    for _ in 0..40 {
        put(&operator, "{}").await;
    }
    let history = configs.history(&router).await.expect("read");
    assert_eq!(history.len(), limits::CONFIG_HISTORY_MAX);
    assert!(history.is_sorted_by_key(|entry| entry.revision));
    assert_eq!(configs.keys().await.expect("read"), ["router"]);
}

/// SEC-31: only the operator writes configurations, and nobody who reads one can have it sent on as it is.
#[tokio::test]
async fn sec_31_configurations_are_the_operators_alone() {
    let secured = broker().await;
    for user in permission::users() {
        let connected = User::connect(&secured, user).await;
        if user != permission::OPERATOR {
            connected.cannot_publish("$KV.config.router").await;
        }
        for api in [
            "DIRECT.GET.KV_config",
            "CONSUMER.CREATE.KV_config",
            "STREAM.PURGE.KV_config",
        ] {
            connected.cannot_publish(&format!("$JS.API.{api}")).await;
        }
        if user != "router" {
            connected.cannot_subscribe("$KV.config.router").await;
        }
        connected.cannot_subscribe("$KV.config.>").await;
    }
    let router = User::connect(&secured, "router").await;
    let answer = router
        .ask(
            "$JS.API.STREAM.MSG.GET.KV_config",
            json!({"last_by_subj": "$KV.config.router"}),
        )
        .await;
    assert!(String::from_utf8_lossy(&answer.payload).contains("no message found"));
}

/// A worker whose bucket cannot be read does not start on a guess.
#[tokio::test]
async fn a_bucket_that_is_not_there_is_an_error() {
    let secured = Secured::start().await;
    let router = mesh(&secured, "router").await;
    let configs = router.configs();
    let follow = configs.follow(name("router"));
    let error = wait::within(Duration::from_secs(30), "an answer", follow).await;
    assert!(error.is_err());
}
