//! A scripted model server: OpenAI's streaming wire over plain HTTP/1.1, each piece under the test's control.
//!
//! Owns: the listener, its connections, and the record of what was asked. Every piece of a reply is one HTTP chunk, so a
//! client reads exactly the pieces that the script names; a gate holds what follows until the test opens it. Never: an
//! opinion about a request; a script answers it.

mod gate;
mod http;
mod reply;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

pub use self::{gate::Gate, http::Request, reply::Reply};
use self::{
    http::Connection,
    reply::{End, Step},
};
use crate::wait;

/// Requests whose bodies are kept; the oldest go first.
const RECORDED_MAX: usize = 10_000;

type Answer = Box<dyn Fn(&Request) -> Reply + Send + Sync>;
type Bytes = Arc<[u8]>;
type Fast = Box<dyn Fn(&Request) -> Bytes + Send + Sync>;

/// What the server answers.
pub struct Script(Kind);

enum Kind {
    Answer(Answer),
    Fast(Fast),
}

impl Script {
    /// The reply that `answer` makes of each request.
    pub fn answer(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self(Kind::Answer(Box::new(answer)))
    }

    /// Whole HTTP responses, as [`Reply::encode`] makes them, written at once and recorded nowhere: for measurements.
    pub fn fast(answer: impl Fn(&Request) -> Bytes + Send + Sync + 'static) -> Self {
        Self(Kind::Fast(Box::new(answer)))
    }
}

/// The n-th request gets the n-th reply; a request beyond the last one is refused with 500.
impl From<Vec<Reply>> for Script {
    fn from(replies: Vec<Reply>) -> Self {
        Self::answer(move |request| {
            let beyond = || Reply::status(500).body("the script has no further reply");
            replies.get(request.number).cloned().unwrap_or_else(beyond)
        })
    }
}

/// A running model server. It ends with its handle.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    script: Script,
    count: AtomicUsize,
    left: AtomicUsize,
    connections: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

impl ModelServer {
    /// Starts a server on a free port of the loopback interface.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start(script: impl Into<Script>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("the port");
        let shared = Arc::new(Shared {
            script: script.into(),
            count: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            accepting,
        }
    }

    /// The address to give to a provider as its `base_url`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Requests that were read whole so far.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::SeqCst)
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Replies whose client went away while a gate or a hang held them.
    pub fn left(&self) -> usize {
        self.shared.left.load(Ordering::SeqCst)
    }

    /// The requests so far, in the order in which they were read.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.record().clone()
    }

    /// Waits until `count` requests were read.
    ///
    /// # Panics
    /// When they were not within `limit`.
    pub async fn asked(&self, count: usize, limit: Duration) {
        let description = format!("the model server is asked {count} times");
        wait::until(limit, &description, || async { self.count() >= count }).await;
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn record(&self) -> std::sync::MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // The connections end with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, Arc::clone(&shared)));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut connection = Connection::new(stream);
    while let Some(mut request) = connection.next_request().await {
        request.number = shared.count.fetch_add(1, Ordering::SeqCst);
        let is_kept = match &shared.script.0 {
            Kind::Fast(answer) => {
                let bytes = answer(&request);
                connection.stream.write_all(&bytes).await.is_ok()
            }
            Kind::Answer(answer) => {
                let reply = answer(&request);
                {
                    let mut record = shared.record();
                    if record.len() >= RECORDED_MAX {
                        record.remove(0);
                    }
                    record.push(request);
                }
                send(&mut connection.stream, reply, &shared).await
            }
        };
        if !is_kept {
            return;
        }
    }
}

/// Sends a reply; says whether the connection can be used further.
async fn send(stream: &mut TcpStream, reply: Reply, shared: &Shared) -> bool {
    let mut buffer = reply.head();
    for step in &reply.steps {
        match step {
            Step::Piece(piece) => reply.frame(piece, &mut buffer),
            Step::Gate(gate) => {
                if stream
                    .write_all(&std::mem::take(&mut buffer))
                    .await
                    .is_err()
                {
                    return false;
                }
                tokio::select! {
                    () = gate.pass() => {}
                    () = client_left(stream) => {
                        shared.left.fetch_add(1, Ordering::SeqCst);
                        return false;
                    }
                }
            }
        }
    }
    if reply.end == End::Whole {
        buffer.extend_from_slice(reply.tail());
    }
    if stream.write_all(&buffer).await.is_err() {
        return false;
    }
    match reply.end {
        End::Whole => true,
        End::Cut => false,
        End::Hang => {
            client_left(stream).await;
            shared.left.fetch_add(1, Ordering::SeqCst);
            false
        }
    }
}

/// Waits until the client has closed its side. A client that waits for a reply sends nothing.
async fn client_left(stream: &mut TcpStream) {
    let mut byte = [0];
    while matches!(stream.read(&mut byte).await, Ok(count) if count > 0) {}
}
