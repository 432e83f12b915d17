//! A gate in front of a nats-server: it lets bytes pass, holds them at a chosen publish, or cuts the connection there.
//!
//! So a process is frozen between two of its commits without knowing of it: everything that it sent before the held publish
//! has reached the server, nothing after it has.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

use crate::{frame::Framer, wait};

/// A proxy. Dropping it closes its connections and its port.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// One chosen publish. Dropping it lets the bytes go on.
#[derive(Debug)]
pub struct Hold {
    state: watch::Sender<State>,
    description: String,
}

#[derive(Debug)]
struct Shared {
    target: String,
    gates: Mutex<Vec<Gate>>,
    /// Whether anything may pass.
    open: watch::Sender<bool>,
    /// Counted up to cut all connections.
    cuts: watch::Sender<u64>,
    /// Whether new connections are refused.
    refuses: watch::Sender<bool>,
}

#[derive(Debug)]
struct Gate {
    prefix: String,
    /// What the publish must hold, if not any will do.
    text: Option<String>,
    /// Matching publishes until the chosen one.
    left: usize,
    place: Place,
    state: watch::Sender<State>,
}

/// Where the bytes stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the publish reaches the server.
    Before,
    /// After it, so that its answer does not reach the client.
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ahead,
    Reached,
    Released,
    Cut,
}

impl Proxy {
    /// Listens on a free port and connects every client to the server at `target` (`host:port`).
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start(target: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target: target.into(),
            gates: Mutex::new(Vec::new()),
            open: watch::Sender::new(true),
            cuts: watch::Sender::new(0),
            refuses: watch::Sender::new(false),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// The address for clients.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Holds the `nth` publish (from 1) to a subject that begins with `prefix`, counted from now over all connections, before
    /// it reaches the server; later bytes of its connection wait behind it.
    pub fn hold_publish(&self, prefix: &str, nth: usize) -> Hold {
        self.gate(prefix, None, nth, Place::Before)
    }

    /// Lets the `nth` publish to a subject that begins with `prefix` pass, and holds what the server sends on that connection
    /// from then on: the message is stored, its acknowledgement does not arrive.
    pub fn hold_answer(&self, prefix: &str, nth: usize) -> Hold {
        self.gate(prefix, None, nth, Place::After)
    }

    /// [`Proxy::hold_publish`] and [`Proxy::hold_answer`] at once, for the first publish whose bytes hold `text`.
    pub fn hold_text(&self, prefix: &str, text: &str) -> (Hold, Hold) {
        (
            self.gate(prefix, Some(text), 1, Place::Before),
            self.gate(prefix, Some(text), 1, Place::After),
        )
    }

    /// Breaks all connections. New ones are taken.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Breaks all connections and refuses new ones until [`Proxy::accept`].
    pub fn refuse(&self) {
        self.shared.refuses.send_replace(true);
        self.cut();
    }

    /// Takes connections again.
    pub fn accept(&self) {
        self.shared.refuses.send_replace(false);
    }

    /// Lets nothing pass in either direction; connections stay.
    pub fn pause(&self) {
        self.shared.open.send_replace(false);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.shared.open.send_replace(true);
    }

    fn gate(&self, prefix: &str, text: Option<&str>, nth: usize, place: Place) -> Hold {
        let state = watch::Sender::new(State::Ahead);
        self.gates().push(Gate {
            prefix: prefix.to_owned(),
            text: text.map(str::to_owned),
            left: nth.max(1),
            place,
            state: state.clone(),
        });
        Hold {
            state,
            description: format!("publish {nth} to {prefix} comes by"),
        }
    }

    fn gates(&self) -> std::sync::MutexGuard<'_, Vec<Gate>> {
        self.shared
            .gates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    fn is_for(&self, subject: &str, bytes: &[u8]) -> bool {
        let holds = |text: &String| {
            let mut windows = bytes.windows(text.len().max(1));
            windows.any(|window| window == text.as_bytes())
        };
        subject.starts_with(&self.prefix) && self.text.as_ref().is_none_or(holds)
    }
}

impl Hold {
    /// Waits until the chosen publish has come.
    ///
    /// # Panics
    /// When it has not after `limit`.
    pub async fn reached(&self, limit: Duration) {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|state| *state != State::Ahead);
        wait::within(limit, &self.description, reached)
            .await
            .expect("the sender is ours");
    }

    /// Whether the chosen publish has come.
    pub fn is_reached(&self) -> bool {
        *self.state.borrow() != State::Ahead
    }

    /// Lets the bytes go on.
    pub fn release(&self) {
        self.state.send_replace(State::Released);
    }

    /// Breaks the connection instead: what was held is lost.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.state.send_if_modified(|state| {
            let is_open = matches!(state, State::Ahead | State::Reached);
            if is_open {
                *state = State::Released;
            }
            is_open
        });
    }
}

impl Shared {
    /// Counts a publish; the gates that it reaches.
    fn arrive(&self, subject: &str, bytes: &[u8]) -> Vec<(Place, watch::Receiver<State>)> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reached = Vec::new();
        gates.retain_mut(|gate| {
            if !gate.is_for(subject, bytes) {
                return true;
            }
            gate.left -= 1;
            if gate.left > 0 {
                return true;
            }
            gate.state.send_if_modified(|state| {
                let is_ahead = *state == State::Ahead;
                if is_ahead {
                    *state = State::Reached;
                }
                is_ahead
            });
            reached.push((gate.place, gate.state.subscribe()));
            false
        });
        reached
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else {
            return;
        };
        if !*shared.refuses.borrow() {
            connections.spawn(connect(client, Arc::clone(&shared)));
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection until either side ends it or it is cut.
async fn connect(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let Ok(server) = TcpStream::connect(&shared.target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let answers = watch::Sender::new(None);
    let held = answers.subscribe();
    tokio::select! {
        _ = cuts.changed() => {}
        _ = forward(from_client, to_server, &shared, &answers) => {}
        _ = answer(from_server, to_client, &shared, held) => {}
    }
}

/// Passes a client's operations on, one by one.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    answers: &watch::Sender<Option<watch::Receiver<State>>>,
) -> Option<()> {
    let mut open = shared.open.subscribe();
    let mut framer = Framer::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let bytes = from
            .read(&mut buffer)
            .await
            .ok()
            .filter(|bytes| *bytes > 0)?;
        framer.push(buffer.get(..bytes)?);
        while let Some(frame) = framer.next_frame().ok()? {
            let gates = frame
                .subject
                .as_deref()
                .map_or_else(Vec::new, |subject| shared.arrive(subject, &frame.bytes));
            for (place, state) in gates {
                match place {
                    Place::Before => pass(state).await?,
                    Place::After => drop(answers.send_replace(Some(state))),
                }
            }
            open.wait_for(|open| *open).await.ok()?;
            to.write_all(&frame.bytes).await.ok()?;
        }
    }
}

/// Passes on what the server sends.
async fn answer(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    held: watch::Receiver<Option<watch::Receiver<State>>>,
) -> Option<()> {
    let mut open = shared.open.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let bytes = from
            .read(&mut buffer)
            .await
            .ok()
            .filter(|bytes| *bytes > 0)?;
        let gate = held.borrow().clone();
        if let Some(state) = gate {
            pass(state).await?;
        }
        open.wait_for(|open| *open).await.ok()?;
        to.write_all(buffer.get(..bytes)?).await.ok()?;
    }
}

/// Waits until a gate opens; `None` when the connection is to be cut.
async fn pass(mut state: watch::Receiver<State>) -> Option<()> {
    let state = state
        .wait_for(|state| matches!(state, State::Released | State::Cut))
        .await;
    // A gate whose holder is gone is open.
    (state.map_or(State::Released, |state| *state) != State::Cut).then_some(())
}
