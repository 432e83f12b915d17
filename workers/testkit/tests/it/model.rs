//! The model server as a plain client sees it.

use std::time::Duration;

use serde_json::json;
use teamster_testkit::{
    ModelServer,
    model::{Gate, Reply, Request, Script},
    wait,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const LIMIT: Duration = Duration::from_secs(20);

struct Client(TcpStream);

impl Client {
    async fn of(server: &ModelServer) -> Self {
        let base_url = server.base_url();
        let address = base_url
            .trim_start_matches("http://")
            .trim_end_matches("/v1");
        Self(TcpStream::connect(address).await.expect("connected"))
    }

    async fn ask(&mut self, body: &str) {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Test: yes\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let request = format!("{head}{body}");
        self.0.write_all(request.as_bytes()).await.expect("written");
    }

    /// Reads until the answer so far ends with `end`.
    async fn read_to(&mut self, end: &str) -> String {
        let read = async {
            let mut answer = Vec::new();
            while !answer.ends_with(end.as_bytes()) {
                let byte = self.0.read_u8().await.expect("the answer goes on");
                answer.push(byte);
            }
            String::from_utf8(answer).expect("text")
        };
        wait::within(LIMIT, "the answer", read).await
    }

    async fn is_closed(&mut self) -> bool {
        let mut rest = [0; 64];
        let read = self.0.read(&mut rest);
        wait::within(LIMIT, "the connection ends", read)
            .await
            .is_ok_and(|count| count == 0)
    }
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another_and_all_are_recorded() {
    let server = ModelServer::start(vec![
        Reply::status(429)
            .header("retry-after", "2")
            .json(&json!({"error": "slow"})),
        Reply::says("ok"),
    ])
    .await;
    let mut client = Client::of(&server).await;
    client
        .ask("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"tool\"}]}")
        .await;
    let refused = client.read_to("{\"error\":\"slow\"}").await;
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 2\r\n"));
    client.ask("{}").await;
    let answer = client.read_to("0\r\n\r\n").await;
    assert!(answer.contains("\"content\":\"ok\"") && answer.contains("data: [DONE]"));
    client.ask("{}").await;
    client.read_to("no further reply").await;
    let requests = server.requests();
    assert_eq!(
        (requests.len(), server.count(), server.connections()),
        (3, 3, 1)
    );
    let first = requests.first().expect("recorded");
    assert_eq!(first.line, "POST /v1/chat/completions");
    assert_eq!(first.header("x-test"), Some("yes"));
    assert_eq!((first.results(), first.last_user_text().as_str()), (1, "a"));
    let after: Vec<bool> = requests.iter().map(Request::is_after_result).collect();
    assert_eq!(after, [true, false, false]);
}

#[tokio::test]
async fn a_gate_holds_what_follows_and_a_client_that_leaves_is_seen() {
    let gate = Gate::new();
    let held = gate.clone();
    let server = ModelServer::start(Script::answer(move |_| {
        Reply::stream().body("before").gate(&held).body("after")
    }))
    .await;
    let mut stays = Client::of(&server).await;
    stays.ask("{}").await;
    stays.read_to("before\r\n").await;
    gate.reached(LIMIT).await;
    let mut leaves = Client::of(&server).await;
    leaves.ask("{}").await;
    leaves.read_to("before\r\n").await;
    drop(leaves);
    wait::until(LIMIT, "the leaver is seen", || async { server.left() == 1 }).await;
    gate.open();
    assert_eq!(stays.read_to("0\r\n\r\n").await, "5\r\nafter\r\n0\r\n\r\n");
}

#[tokio::test]
async fn a_cut_ends_the_connection_in_the_middle() {
    let server = ModelServer::start(vec![Reply::stream().body("part").cut()]).await;
    let mut client = Client::of(&server).await;
    client.ask("{}").await;
    client.read_to("4\r\npart\r\n").await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn fast_answers_are_whole_responses_and_recorded_nowhere() {
    let answer = Reply::says("fast").encode();
    let server = ModelServer::start(Script::fast(move |_| answer.clone())).await;
    let mut client = Client::of(&server).await;
    for _ in 0..3 {
        client.ask("{}").await;
        let answer = client.read_to("0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("fast"));
    }
    assert_eq!((server.count(), server.requests().len()), (3, 0));
}
