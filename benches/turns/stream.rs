//! H7: what the way through router, mesh and client adds to a word that the model hands out, beside a client that reads the same
//! model server itself. The words come as a fast model makes them, one each [`PACE`], so that each finds the way empty; turns
//! of an instant model beside it show what the first word costs while everything else of the turn's start still runs.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use teamster_mesh::live::Deltas;
use teamster_protocol::function::router::DeltaKind;
use teamster_testkit::{
    ModelServer,
    model::{Gate, Reply, Request, Script},
    wait,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Interval, MissedTickBehavior},
};

use crate::{
    model,
    rig::{LIMIT, PACED, send_to, session},
    stats::Latency,
    turns::Arena,
};

/// Turns of an instant model.
const TURNS: usize = 200;
/// Answers of the paced model, for each of the two readers.
const ANSWERS: usize = 12;
/// Words of one answer.
const WORDS: usize = 32;
/// Time between two words: longer than what is gathered into one frame.
const PACE: Duration = Duration::from_millis(12);

/// What was measured, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// From the instant at which an instant model hands out its answer to the first piece of it at a client.
    pub(crate) first: Latency,
    /// From the instant at which the paced model hands out a word to that word at a client.
    pub(crate) word: Latency,
    /// The same for a client that reads the model server itself.
    pub(crate) direct: Latency,
}

/// A model that hands out a word each time a gate is opened.
pub(crate) struct Paced {
    server: ModelServer,
    gates: Arc<Mutex<Vec<Gate>>>,
}

impl Paced {
    /// Starts one.
    pub(crate) async fn start() -> Self {
        let gates: Arc<Mutex<Vec<Gate>>> = Arc::default();
        let shared = Arc::clone(&gates);
        let script = Script::answer(move |_: &Request| {
            let gates = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let words = gates.iter().fold(Reply::stream(), |reply, gate| {
                reply.gate(gate).text("word ")
            });
            words.finish("stop").usage(900, 40).done()
        });
        let server = ModelServer::start(script).await;
        Self { server, gates }
    }

    /// Where it listens.
    pub(crate) fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// The gates of the next answer.
    fn gates(&self) -> Vec<Gate> {
        let gates: Vec<Gate> = (0..WORDS).map(|_| Gate::new()).collect();
        let mut next = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        next.clone_from(&gates);
        gates
    }
}

/// Measures all three.
pub(crate) async fn run(arena: &Arena) -> Stream {
    arena.rig.rests().await;
    let first = first(arena).await;
    arena.rig.rests().await;
    let (mut word, mut direct) = (Vec::new(), Vec::new());
    for answer in 0..ANSWERS {
        word.extend(through(arena, &format!("paced-{answer}-{}", arena.name())).await);
        direct.extend(directly(&arena.rig.paced).await);
    }
    Stream {
        first,
        word: Latency::of(word),
        direct: Latency::of(direct),
    }
}

/// Turns whose first visible piece is waited for by a reader of the session's live deltas.
async fn first(arena: &Arena) -> Latency {
    let message = model::message(0);
    let mut times = Vec::new();
    for turn in 0..TURNS {
        let name = format!("stream-{turn}-{}", arena.name());
        let live = arena.rig.operator.live();
        let mut deltas = live
            .follow(&session(&name))
            .await
            .expect("the deltas can be read");
        let (seen, ended) = tokio::join!(next_word(&mut deltas), arena.turn(&name, &message));
        let _ = ended;
        let said = arena.rig.model.last_answer();
        times.push(said.map_or(Duration::ZERO, |said| seen.saturating_duration_since(said)));
    }
    Latency::of(times)
}

async fn next_word(deltas: &mut Deltas) -> Instant {
    wait::within(LIMIT, "a word", async {
        while let Some(delta) = deltas.next().await {
            if matches!(delta.delta, DeltaKind::Text { .. }) {
                break;
            }
        }
        Instant::now()
    })
    .await
}

/// The words of one answer as a client of the mesh gets them.
async fn through(arena: &Arena, name: &str) -> Vec<Duration> {
    let gates = arena.rig.paced.gates();
    let id = session(name);
    let live = arena.rig.operator.live();
    let mut deltas = live.follow(&id).await.expect("the deltas can be read");
    let end = arena.watch.end_of(&id);
    send_to(&arena.rig.operator, &id, "Say something.", PACED)
        .await
        .expect("accepted");
    let mut times = Vec::new();
    let mut pace = pace();
    for gate in gates {
        gate.reached(LIMIT).await;
        pace.tick().await;
        let begun = Instant::now();
        gate.open();
        times.push(
            next_word(&mut deltas)
                .await
                .saturating_duration_since(begun),
        );
    }
    wait::within(LIMIT, "the turn ends", end)
        .await
        .expect("an end");
    times
}

/// The words of one answer as a client of the model server gets them.
async fn directly(paced: &Paced) -> Vec<Duration> {
    let gates = paced.gates();
    let address = paced.base_url();
    let address = address
        .trim_start_matches("http://")
        .trim_end_matches("/v1");
    let mut http = TcpStream::connect(address)
        .await
        .expect("the model listens");
    http.set_nodelay(true).expect("a socket option");
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    http.write_all(request.as_bytes())
        .await
        .expect("the model takes a request");
    let mut read = Vec::with_capacity(16 * 1024);
    let mut times = Vec::new();
    let mut pace = pace();
    for (index, gate) in gates.iter().enumerate() {
        gate.reached(LIMIT).await;
        pace.tick().await;
        let begun = Instant::now();
        gate.open();
        while words(&read) <= index {
            let count = wait::within(LIMIT, "a word", http.read_buf(&mut read)).await;
            assert!(
                count.expect("the model answers") > 0,
                "the model has hung up"
            );
        }
        times.push(begun.elapsed());
    }
    times
}

fn words(read: &[u8]) -> usize {
    read.windows(5).filter(|window| *window == b"word ").count()
}

fn pace() -> Interval {
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
