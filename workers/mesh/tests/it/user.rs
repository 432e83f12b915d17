//! One user's raw connection to the broker, and what the server refused it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, Subscriber};
use futures::StreamExt as _;
use serde_json::Value;
use teamster_mesh::credential;
use teamster_testkit::{Secured, wait};

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// One user's connection, and what the server refused it.
pub(crate) struct User {
    name: &'static str,
    /// Its connection.
    pub(crate) client: Client,
    refused: Arc<Mutex<Vec<String>>>,
}

impl User {
    pub(crate) async fn connect(secured: &Secured, name: &'static str) -> Self {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&refused);
        let pair = credential::read(&credential::file(&secured.credentials(), name));
        let seed = pair.expect("credentials").seed().expect("a seed");
        let client = ConnectOptions::with_nkey(seed)
            .custom_inbox_prefix(format!("_INBOX.{name}"))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    sink.lock().expect("not poisoned").push(error.to_string());
                }
                std::future::ready(())
            })
            .connect(secured.url())
            .await
            .expect("connected");
        Self {
            name,
            client,
            refused,
        }
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask(&self, subject: &str, body: impl ToString) -> Message {
        let body = body.to_string().into();
        let asked = self.client.request(subject.to_owned(), body);
        wait::within(LIMIT, subject, asked)
            .await
            .unwrap_or_else(|error| {
                panic!("{} {subject}: {error}; {:?}", self.name, self.refusals())
            })
    }

    /// Asks the `JetStream` API; the answer must not be an error.
    pub(crate) async fn api(&self, subject: &str, body: Value) -> Value {
        let answer = self.ask(subject, body).await;
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        assert_eq!(
            answer.get("error"),
            None,
            "{} {subject}: {answer}",
            self.name
        );
        answer
    }

    /// Stores in a stream and waits until that is acknowledged.
    pub(crate) async fn store(&self, subject: &str, headers: HeaderMap, body: &'static str) -> u64 {
        let stored = self
            .client
            .request_with_headers(subject.to_owned(), headers, body.into());
        let ack = wait::within(LIMIT, subject, stored)
            .await
            .unwrap_or_else(|error| {
                panic!("{} {subject}: {error}; {:?}", self.name, self.refusals())
            });
        let ack: Value = serde_json::from_slice(&ack.payload).expect("JSON");
        ack["seq"]
            .as_u64()
            .unwrap_or_else(|| panic!("{subject}: {ack}"))
    }

    /// Pulls one message of a consumer. It comes under its own subject, which a plain request would not take for an answer.
    pub(crate) async fn pull(&self, stream: &str, consumer: &str) -> Message {
        let inbox = format!("_INBOX.{}.pull", self.name);
        let mut pulled = self.subscribe(&inbox).await;
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        self.publish_with(&next, Some(&inbox), "1").await;
        let message = wait::within(LIMIT, &next, pulled.next()).await;
        message.unwrap_or_else(|| panic!("{} {next}: {:?}", self.name, self.refusals()))
    }

    pub(crate) async fn subscribe(&self, subject: &str) -> Subscriber {
        let subscriber = self
            .client
            .subscribe(subject.to_owned())
            .await
            .expect("sent");
        self.client.flush().await.expect("taken");
        subscriber
    }

    pub(crate) async fn publish(&self, subject: &str, reply: Option<&str>) {
        self.publish_with(subject, reply, "{}").await;
    }

    pub(crate) async fn publish_with(
        &self,
        subject: &str,
        reply: Option<&str>,
        body: &'static str,
    ) {
        let (subject, body) = (subject.to_owned(), body.into());
        let sent = match reply {
            Some(reply) => {
                let reply = reply.to_owned();
                self.client.publish_with_reply(subject, reply, body).await
            }
            None => self.client.publish(subject, body).await,
        };
        sent.expect("sent");
        self.client.flush().await.expect("taken");
    }

    pub(crate) fn refusals(&self) -> Vec<String> {
        self.refused.lock().expect("not poisoned").clone()
    }

    pub(crate) async fn is_refused(&self, verb: &str, subject: &str) {
        let want = format!(
            "permissions violation for {verb} to \"{}\"",
            subject.to_lowercase()
        );
        let description = format!("{}: {want}", self.name);
        wait::until(LIMIT, &description, || {
            let found = self
                .refusals()
                .iter()
                .any(|line| line.to_lowercase().contains(&want));
            std::future::ready(found)
        })
        .await;
    }

    pub(crate) async fn cannot_publish(&self, subject: &str) {
        self.publish(subject, None).await;
        self.is_refused("publish", subject).await;
    }

    pub(crate) async fn cannot_subscribe(&self, subject: &str) {
        let _subscriber = self.subscribe(subject).await;
        self.is_refused("subscription", subject).await;
    }
}
