//! The gate before a server, with raw connections.

use std::time::Duration;

use teamster_testkit::{Nats, Proxy, wait};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A raw client.
struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(url: &str) -> Self {
        let address = url.strip_prefix("nats://").expect("an address");
        let stream = TcpStream::connect(address).await.expect("connected");
        let mut client = Self(BufReader::new(stream));
        assert!(
            client
                .line()
                .await
                .expect("a greeting")
                .starts_with("INFO ")
        );
        client
            .send("CONNECT {\"verbose\":false,\"headers\":true}\r\n")
            .await;
        client.ping().await;
        client
    }

    async fn send(&mut self, text: &str) {
        self.0
            .get_mut()
            .write_all(text.as_bytes())
            .await
            .expect("sent");
    }

    /// The next line; `None` when the connection is cut.
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = wait::within(LIMIT, "a line", self.0.read_line(&mut line)).await;
        read.ok().filter(|bytes| *bytes > 0).map(|_| line)
    }

    async fn ping(&mut self) {
        self.send("PING\r\n").await;
        assert_eq!(self.line().await.as_deref(), Some("PONG\r\n"));
    }

    /// The payload of the next message, which is one line.
    async fn message(&mut self) -> String {
        let head = self.line().await.expect("a message");
        assert!(head.starts_with("MSG "), "{head}");
        self.line().await.expect("a payload").trim_end().to_owned()
    }
}

#[tokio::test]
async fn the_chosen_publish_is_held_and_what_came_before_it_is_not() {
    let nats = Nats::start().await;
    let proxy = Proxy::start(nats.address()).await;
    let mut reader = Client::connect(&nats.url()).await;
    reader.send("SUB > 1\r\n").await;
    reader.ping().await;
    let mut writer = Client::connect(&proxy.url()).await;
    let hold = proxy.hold_publish("log.", 2);
    writer
        .send("PUB log.1 1\r\na\r\nPUB turn.1 1\r\nb\r\n")
        .await;
    assert_eq!(
        (reader.message().await, reader.message().await),
        ("a".into(), "b".into())
    );
    assert!(!hold.is_reached());
    writer
        .send("PUB log.2 1\r\nc\r\nPUB turn.2 1\r\nd\r\n")
        .await;
    hold.reached(LIMIT).await;
    reader.ping().await; // nothing came before the answer
    let mut other = Client::connect(&proxy.url()).await;
    other.send("PUB log.3 1\r\ne\r\n").await;
    assert_eq!(reader.message().await, "e", "other connections go on");
    hold.release();
    assert_eq!(
        (reader.message().await, reader.message().await),
        ("c".into(), "d".into())
    );
}

#[tokio::test]
async fn a_publish_is_chosen_by_what_it_holds() {
    let nats = Nats::start().await;
    let proxy = Proxy::start(nats.address()).await;
    let mut reader = Client::connect(&nats.url()).await;
    reader.send("SUB > 1\r\n").await;
    reader.ping().await;
    let mut writer = Client::connect(&proxy.url()).await;
    let (publish, answer) = proxy.hold_text("log.", "no. 2");
    writer
        .send("PUB log.1 5\r\nno. 1\r\nPUB turn.1 5\r\nno. 2\r\n")
        .await;
    assert_eq!(
        (reader.message().await, reader.message().await),
        ("no. 1".into(), "no. 2".into())
    );
    assert!(!publish.is_reached());
    writer.send("PUB log.1 5\r\nno. 2\r\nPING\r\n").await;
    publish.reached(LIMIT).await;
    reader.ping().await; // nothing came before the answer
    publish.release();
    assert_eq!(reader.message().await, "no. 2");
    let early = tokio::time::timeout(Duration::from_millis(200), writer.0.fill_buf()).await;
    assert!(early.is_err(), "no answer passes the gate");
    drop(answer);
    assert_eq!(writer.line().await.as_deref(), Some("PONG\r\n"));
}

#[tokio::test]
async fn a_cut_publish_never_arrives() {
    let nats = Nats::start().await;
    let proxy = Proxy::start(nats.address()).await;
    let mut reader = Client::connect(&nats.url()).await;
    reader.send("SUB > 1\r\n").await;
    reader.ping().await;
    let mut writer = Client::connect(&proxy.url()).await;
    let hold = proxy.hold_publish("log.", 1);
    writer
        .send("HPUB log.1 _INBOX.x 12 13\r\nNATS/1.0\r\n\r\na\r\n")
        .await;
    hold.reached(LIMIT).await;
    hold.cut();
    assert_eq!(writer.line().await, None);
    let mut again = Client::connect(&proxy.url()).await;
    again.send("PUB log.1 1\r\nb\r\n").await;
    assert_eq!(reader.message().await, "b");
}

#[tokio::test]
async fn an_answer_is_held_although_the_message_arrived() {
    let nats = Nats::start().await;
    let proxy = Proxy::start(nats.address()).await;
    let mut reader = Client::connect(&nats.url()).await;
    reader.send("SUB > 1\r\n").await;
    reader.ping().await;
    let mut writer = Client::connect(&proxy.url()).await;
    let hold = proxy.hold_answer("log.", 1);
    writer.send("PUB log.1 1\r\na\r\nPING\r\n").await;
    assert_eq!(reader.message().await, "a");
    hold.reached(LIMIT).await;
    let early = tokio::time::timeout(Duration::from_millis(200), writer.0.fill_buf()).await;
    assert!(early.is_err(), "no answer passes the gate");
    drop(hold);
    assert_eq!(writer.line().await.as_deref(), Some("PONG\r\n"));
}

#[tokio::test]
async fn connections_are_cut_refused_and_paused() {
    let nats = Nats::start().await;
    let proxy = Proxy::start(nats.address()).await;
    let mut client = Client::connect(&proxy.url()).await;
    proxy.pause();
    client.send("PING\r\n").await;
    let early = tokio::time::timeout(Duration::from_millis(200), client.0.fill_buf()).await;
    assert!(early.is_err(), "nothing passes");
    proxy.resume();
    assert_eq!(client.line().await.as_deref(), Some("PONG\r\n"));
    proxy.cut();
    assert_eq!(client.line().await, None);
    Client::connect(&proxy.url()).await;
    proxy.refuse();
    let address = proxy.url().replace("nats://", "");
    let stream = TcpStream::connect(&address)
        .await
        .expect("taken by the listener");
    assert_eq!(Client(BufReader::new(stream)).line().await, None);
    proxy.accept();
    Client::connect(&proxy.url()).await;
}
