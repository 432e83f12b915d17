//! Connecting: plain messages, and clear errors in bounded time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use teamster_mesh::{Connect, Error, Mesh};
use teamster_testkit::{Nats, wait::within};

use crate::fixture::{LIMIT, chain, join, name, options};

#[tokio::test(flavor = "multi_thread")]
async fn plain_messages_are_published_subscribed_and_asked() {
    let nats = Nats::start().await;
    let (one, two) = (join(&nats, "one").await, join(&nats, "two").await);
    assert_ne!(one.incarnation(), two.incarnation());
    let mut messages = two.subscribe("own.*".to_owned()).await.expect("subscribed");
    // Without streams the server answers the flush all the same.
    two.flush().await.expect("flushed");
    one.publish("own.a".to_owned(), Bytes::from("hello"))
        .await
        .expect("sent");
    let message = within(LIMIT, "a message", messages.next())
        .await
        .expect("a message");
    assert_eq!(
        (message.subject.as_str(), message.body.as_ref()),
        ("own.a", b"hello".as_slice())
    );
    assert_eq!(message.reply, None);
    let answering = tokio::spawn({
        let two = two.clone();
        async move {
            let question = messages.next().await.expect("a question");
            let reply = question.reply.expect("a reply subject");
            two.publish(reply, question.body).await.expect("sent");
            messages
        }
    });
    let answer = one
        .request("own.b".to_owned(), Bytes::from("q"), LIMIT)
        .await
        .expect("answered");
    assert_eq!(answer, "q");
    let _messages = answering.await.expect("ran");
    let silence = one
        .request("own.b".to_owned(), Bytes::new(), Duration::from_millis(50))
        .await;
    assert!(matches!(silence, Err(Error::Timeout { .. })), "{silence:?}");
    let nobody = one.request("nobody".to_owned(), Bytes::new(), LIMIT).await;
    assert!(
        matches!(nobody, Err(Error::NoResponders { .. })),
        "{nobody:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_a_server_is_an_error_that_names_it() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = unused.local_addr().expect("an address").port();
    drop(unused);
    let options = Connect {
        url: format!("nats://me:secret@127.0.0.1:{port}"),
        credentials: None,
    };
    let began = Instant::now();
    let error = Mesh::connect_within(&options, name("one"), Duration::from_millis(300))
        .await
        .err()
        .expect("no server");
    assert!(began.elapsed() < LIMIT);
    let text = chain(&error);
    assert!(
        text.contains(&format!("127.0.0.1:{port}")) && !text.contains("secret"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_later_is_waited_for() {
    let mut nats = Nats::start().await;
    let options = options(&nats);
    nats.kill().await;
    let connecting =
        tokio::spawn(async move { Mesh::connect_within(&options, name("one"), LIMIT).await });
    nats.restart().await;
    let mesh = within(LIMIT, "the connection", connecting)
        .await
        .expect("ran");
    mesh.expect("connected").flush().await.expect("flushed");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_flow_again_after_the_broker_restarted() {
    let mut nats = Nats::start().await;
    let (one, two) = (join(&nats, "one").await, join(&nats, "two").await);
    let mut messages = two.subscribe("own.*".to_owned()).await.expect("subscribed");
    nats.restart().await;
    let message = within(LIMIT, "a message", async {
        loop {
            one.publish("own.a".to_owned(), Bytes::new())
                .await
                .expect("sent");
            let wait = Duration::from_millis(50);
            if let Ok(message) = tokio::time::timeout(wait, messages.next()).await {
                return message;
            }
        }
    })
    .await;
    assert!(message.is_some());
}
