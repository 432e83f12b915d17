//! The floor: a bare loop without any logic on the same server. It stores as many messages of the same sizes as a turn and
//! waits for each; in its second form it also makes the same requests to workers that answer at once, and to the model.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use teamster_mesh::Mesh;
use teamster_protocol::limits;
use teamster_testkit::Nats;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::{census::Shape, rig::connect};

/// The worker that answers hop `n` is on a connection of its own, as the product's are.
const ANSWERERS: [&str; 5] = ["floor-0", "floor-1", "floor-2", "floor-3", "floor-4"];

/// Bytes of a request to a worker and of its answer, where the product's own took another way.
const HOP_BYTES: (usize, usize) = (1024, 1024);

/// What a loop consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Stored messages alone.
    Acks,
    /// Stored messages, requests to workers, and requests to the model.
    Path,
}

/// The floor of one server.
pub(crate) struct Floor {
    mesh: Mesh,
    shape: Shape,
    model: String,
    _answering: JoinSet<()>,
}

impl Floor {
    /// Makes streams like those of the product, and workers that answer each hop with as many bytes.
    pub(crate) async fn start(nats: &Nats, shape: Shape, model: &str) -> Self {
        let mesh = connect(nats, "floor").await;
        create(&mesh, "FLOOR_IN", "floor.in.*", "file").await;
        create(&mesh, "FLOOR_LIVE", "floor.live.*", "memory").await;
        for k in 0..limits::LOG_STREAMS {
            let subject = format!("floor.log.{k}.*");
            create(&mesh, &format!("FLOOR_{k}"), &subject, "file").await;
        }
        let mut shape = shape;
        // What the product asks of workers in its own process does not come over the bus; the floor asks over it all the same.
        shape.hops.resize(ANSWERERS.len(), HOP_BYTES);
        let mut answering = JoinSet::new();
        for (name, (_, reply)) in ANSWERERS.iter().zip(&shape.hops) {
            let worker = connect(nats, name).await;
            let mut requests = worker
                .subscribe(format!("floor.hop.{name}"))
                .await
                .expect("subscribes");
            worker.flush().await.expect("flushes");
            let reply = Bytes::from(vec![b'x'; *reply]);
            answering.spawn(async move {
                while let Some(request) = requests.next().await {
                    if let Some(to) = request.reply {
                        worker.publish(to, reply.clone()).await.expect("answers");
                    }
                }
            });
        }
        let model = model
            .trim_start_matches("http://")
            .trim_end_matches("/v1")
            .to_owned();
        Self {
            mesh,
            shape,
            model,
            _answering: answering,
        }
    }

    /// A client of its own for the model.
    pub(crate) async fn client(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.model)
            .await
            .expect("the model listens");
        stream.set_nodelay(true).expect("a socket option");
        stream
    }

    /// The loop's body, once; `name` stands for the session.
    pub(crate) async fn turn(&self, kind: Kind, name: usize, http: &mut TcpStream) -> Duration {
        let begun = Instant::now();
        let is_path = kind == Kind::Path;
        let log = format!(
            "floor.log.{}.{name}",
            name % usize::from(limits::LOG_STREAMS)
        );
        // The order of a turn: sent, stored, claimed, generated, judged, announced, called, stored, generated, ended.
        if is_path {
            self.hop(0).await;
        }
        self.store(format!("floor.in.{name}"), self.shape.input)
            .await;
        for (index, bytes) in self.shape.commits.iter().enumerate() {
            self.store(log.clone(), *bytes).await;
            if !is_path {
                continue;
            }
            match index {
                0 => {
                    self.hop(1).await;
                    self.ask_model(http, 0).await;
                    self.hop(2).await;
                }
                1 => self.hop(3).await,
                2 => {
                    self.hop(4).await;
                    self.ask_model(http, 1).await;
                    self.tell_deltas(name).await;
                }
                _ => {}
            }
        }
        begun.elapsed()
    }

    async fn store(&self, subject: String, bytes: usize) {
        let body = Bytes::from(vec![b'x'; bytes]);
        let ack = self
            .mesh
            .request(subject, body, limits::BROKER_REQUEST)
            .await
            .expect("is stored");
        assert!(
            !ack.windows(7).any(|window| window == b"\"error\""),
            "stored: {ack:?}"
        );
    }

    /// Publishes as many deltas as a turn does; nobody waits for them.
    async fn tell_deltas(&self, name: usize) {
        for bytes in &self.shape.deltas {
            let body = Bytes::from(vec![b'x'; *bytes]);
            let told = self.mesh.publish(format!("floor.live.{name}"), body);
            told.await.expect("is published");
        }
    }

    /// One request of the size of a function's call, and its answer.
    pub(crate) async fn one_hop(&self) -> Duration {
        let begun = Instant::now();
        self.hop(3).await;
        begun.elapsed()
    }

    async fn hop(&self, index: usize) {
        let (Some(name), Some((request, _))) = (ANSWERERS.get(index), self.shape.hops.get(index))
        else {
            return;
        };
        let body = Bytes::from(vec![b'x'; *request]);
        let subject = format!("floor.hop.{name}");
        self.mesh
            .request(subject, body, limits::BROKER_REQUEST)
            .await
            .expect("is answered");
    }

    /// One request with the body that the product sent, and its whole answer.
    async fn ask_model(&self, http: &mut TcpStream, index: usize) {
        if let Some(body) = self.shape.bodies.get(index) {
            self.ask(http, body).await;
        }
    }

    /// One request to the model with a body, and its whole answer.
    pub(crate) async fn ask(&self, http: &mut TcpStream, body: &[u8]) {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.model,
            body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        http.write_all(&request)
            .await
            .expect("the model takes a request");
        let mut answer = Vec::with_capacity(8 * 1024);
        while !answer.ends_with(b"0\r\n\r\n") {
            let read = http.read_buf(&mut answer).await.expect("the model answers");
            assert!(read > 0, "the model has hung up");
        }
    }
}

/// A stream as the product makes its logs.
async fn create(mesh: &Mesh, name: &str, subject: &str, storage: &str) {
    let config = json!({
        "name": name,
        "subjects": [subject],
        "storage": storage,
        "retention": "limits",
        "discard": "old",
        "num_replicas": 1,
        "duplicate_window": 10_000_000_000_u64,
        "allow_direct": true,
    });
    let reply = mesh
        .request(
            format!("$JS.API.STREAM.CREATE.{name}"),
            config.to_string().into(),
            limits::BROKER_REQUEST,
        )
        .await
        .expect("a stream is made");
    assert!(
        !reply.windows(7).any(|window| window == b"\"error\""),
        "made: {reply:?}"
    );
}
