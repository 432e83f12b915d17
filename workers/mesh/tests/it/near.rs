//! Calls between workers of one process, and what is no call at all.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::json;
use teamster_mesh::{
    Function, Mesh,
    connection::Call,
    near::{Near, Value},
    serve::Serving,
};
use teamster_protocol::{Principal, limits};
use teamster_testkit::{Nats, wait::within};

use crate::fixture::{
    LIMIT, Reply, Request, call, contract, join, mesh, name, open, options, served, text,
};

async fn near(nats: &Nats, worker: &str, hub: &Arc<Near>) -> Mesh {
    Mesh::connect_near(&options(nats), name(worker), hub)
        .await
        .expect("connected")
}

async fn echo(mesh: &Mesh, word: &'static str) -> Serving {
    let say = open("fs::say", move |ctx, request| async move {
        Ok(Reply {
            text: format!("{word} {} {:?}", request.text, ctx.call),
        })
    });
    served(mesh, "sandbox", vec![say]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_one_process_meet_without_the_bus_until_one_ends() {
    let (nats, bystander) = mesh().await;
    let hub = Arc::new(Near::default());
    let (harness, sandbox) = (
        near(&nats, "harness", &hub).await,
        near(&nats, "sandbox", &hub).await,
    );
    let mut bus = bystander
        .subscribe("fn.>".to_owned())
        .await
        .expect("subscribed");
    let serving = echo(&sandbox, "near").await;
    let mut once = call("fs::say", "a");
    once.call = Some("call_1".to_owned());
    for _ in 0..2 {
        let answer = within(LIMIT, "an answer", harness.call(once.clone())).await;
        assert_eq!(text(&answer.expect("answered")), "near a Some(\"call_1\")");
    }
    // Another process's worker serves the same function, and is reached over the bus when the near one has ended.
    let far = join(&nats, "sandbox").await;
    let _far = echo(&far, "far").await;
    assert_eq!(
        text(&harness.call(call("fs::say", "b")).await.expect("answered")),
        "near b None"
    );
    serving.drain().await;
    assert_eq!(
        text(&harness.call(call("fs::say", "c")).await.expect("answered")),
        "far c None"
    );
    let seen = within(LIMIT, "a call on the bus", bus.next()).await;
    let seen = seen.expect("a message");
    assert_eq!(
        seen.body,
        call("fs::say", "c").body,
        "only the last call took the bus"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_way_is_closed_to_who_may_not_call_and_to_operators_functions() {
    let (nats, _mesh) = mesh().await;
    let hub = Arc::new(Near::default());
    let sandbox = near(&nats, "sandbox", &hub).await;
    let _serving = echo(&sandbox, "near").await;
    let mut bus = join(&nats, "bystander")
        .await
        .subscribe("fn.>".to_owned())
        .await
        .expect("subscribed");
    // A router may call nobody: it is left to the broker, which here has no permissions and answers.
    let router = near(&nats, "router", &hub).await;
    router
        .call(call("fs::say", "r"))
        .await
        .expect("over the bus");
    let seen = within(LIMIT, "a call on the bus", bus.next()).await;
    assert_eq!(seen.expect("a message").body, call("fs::say", "r").body);
    // An operator's call of the same function goes to another subject, which nobody serves.
    let harness = near(&nats, "harness", &hub).await;
    let mut forged = call("fs::say", "o");
    forged.principal = Principal::parse("owner").ok();
    let fault = harness.call(forged).await.expect_err("nobody serves it");
    assert_eq!(fault.code, "mesh.no_responders");
}

/// What a stream holds, sent by the server to a function's subject for whoever asked for it so, is no call.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_sends_on_by_itself_reaches_no_function() {
    let (nats, mesh) = mesh().await;
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let worker = join(&nats, "echo").await;
    let _serving = served(
        &worker,
        "echo",
        vec![open("echo::say", move |_, request| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move { Ok(Reply { text: request.text }) }
        })],
    )
    .await;
    let client = async_nats::connect(nats.url()).await.expect("connected");
    let mut seen = client.subscribe("fn.echo.say").await.expect("subscribed");
    client.flush().await.expect("flushed");
    let body = json!({"text": "forged"}).to_string();
    client
        .request("evt.turn-started.x", body.into())
        .await
        .expect("stored");
    client
        .publish_with_reply(
            "$JS.API.DIRECT.GET.EVENTS",
            "fn.echo.say",
            json!({"last_by_subj": "evt.turn-started.x"})
                .to_string()
                .into(),
        )
        .await
        .expect("asked");
    let sent = within(LIMIT, "the server's message", seen.next()).await;
    assert!(sent.is_some_and(|sent| sent.payload.starts_with(b"{\"text\"")));
    // A consumer's deliveries name the subject of their acknowledgement, which is no inbox.
    let consumer = json!({
        "stream_name": "EVENTS",
        "config": {"deliver_subject": "fn.echo.say", "deliver_policy": "all", "ack_policy": "explicit"},
    });
    client
        .request(
            "$JS.API.CONSUMER.CREATE.EVENTS",
            consumer.to_string().into(),
        )
        .await
        .expect("a consumer");
    let sent = within(LIMIT, "the consumer's message", seen.next()).await;
    assert!(sent.is_some_and(|sent| sent.reply.is_some_and(|r| r.starts_with("$JS.ACK."))));
    // Requests are taken in order: what came before this one has been looked at.
    let answer = mesh.call(call("echo::say", "real")).await;
    assert_eq!(text(&answer.expect("answered")), "real");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// A request of the same process is handed over as it is to who takes its type, and goes as JSON to anybody else; its callee sees no
/// difference, and neither does the bound on what is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_handed_over_whole_or_goes_as_json() {
    let (nats, bystander) = mesh().await;
    let hub = Arc::new(Near::default());
    let (harness, sandbox) = (
        near(&nats, "harness", &hub).await,
        near(&nats, "sandbox", &hub).await,
    );
    let mut bus = bystander
        .subscribe("fn.>".to_owned())
        .await
        .expect("subscribed");
    let taking = Function::near(contract("fs::take"), |_, request: Request| async move {
        Ok(Reply { text: request.text })
    });
    let reading = open("fs::read", |_, request| async move {
        Ok(Reply { text: request.text })
    });
    let serving = served(&sandbox, "sandbox", vec![taking, reading]).await;
    let ask = |function: &str, text: &str, bytes_max: usize| {
        let request = Request {
            text: text.to_owned(),
        };
        Call {
            body: Bytes::new(),
            value: Some(Value::new(request, bytes_max)),
            ..call(function, "")
        }
    };
    for function in ["fs::take", "fs::read"] {
        for bytes_max in [100, usize::MAX] {
            let answer = harness.call(ask(function, "a \"b\" \n", bytes_max)).await;
            assert_eq!(text(&answer.expect("answered")), "a \"b\" \n");
        }
        let long = "x".repeat(limits::PAYLOAD_BYTES_MAX);
        let fault = harness.call(ask(function, &long, usize::MAX)).await;
        assert_eq!(fault.expect_err("too large").code, "mesh.too_large");
    }
    serving.drain().await;
    // Over the bus it is JSON.
    let far = join(&nats, "sandbox").await;
    let _far = echo(&far, "far").await;
    let answer = harness.call(ask("fs::say", "c", 100)).await;
    assert_eq!(text(&answer.expect("answered")), "far c None");
    let seen = within(LIMIT, "a call on the bus", bus.next()).await;
    assert_eq!(seen.expect("a message").body, call("fs::say", "c").body);
}
