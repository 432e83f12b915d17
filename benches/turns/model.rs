//! The model of a measurement: answers at once, asks for as many calls as the user's message names, and keeps the bodies of
//! requests when it is told to.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use serde_json::json;
use teamster_testkit::{
    ModelServer,
    model::{Reply, Request, Script},
};

/// Calls that one message can ask for.
const CALLS_MAX: usize = 9;
/// Deltas of the closing answer.
const DELTAS: usize = 16;
/// What stands before the number of calls in a user's message.
const MARK: &str = "lookups=";

/// The running model.
pub(crate) struct Model {
    server: ModelServer,
    record: Arc<Record>,
}

#[derive(Default)]
struct Record {
    /// When the last answer was handed out.
    answered: Mutex<Option<Instant>>,
    is_on: AtomicBool,
    bodies: Mutex<Vec<Vec<u8>>>,
}

/// A message that makes the model ask for `calls` calls, one after the other.
pub(crate) fn message(calls: usize) -> String {
    format!(
        "Look up what the ledger says about the order, then tell me in one sentence. {MARK}{calls}"
    )
}

impl Model {
    /// Starts a model that calls the tool `tool`.
    pub(crate) async fn start(tool: &str) -> Self {
        let record = Arc::new(Record::default());
        let calls: Vec<Arc<[u8]>> = (0..CALLS_MAX)
            .map(|number| Reply::calls(tool, &json!({"key": format!("order-{number}")})).encode())
            .collect();
        let words = (0..DELTAS).fold(Reply::stream(), |reply, number| {
            reply.text(&format!("word{number:02} "))
        });
        let answer = words.finish("stop").usage(900, 40).done().encode();
        let shared = Arc::clone(&record);
        let server = ModelServer::start(Script::fast(move |request: &Request| {
            if shared.is_on.load(Ordering::Relaxed) {
                shared.keep(request);
            }
            let (made, wanted) = progress(&request.body);
            let call = calls.get(made).filter(|_| made < wanted);
            let reply = Arc::clone(call.unwrap_or(&answer));
            *shared
                .answered
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            reply
        }))
        .await;
        Self { server, record }
    }

    /// Where it listens.
    pub(crate) fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// Requests so far.
    pub(crate) fn count(&self) -> usize {
        self.server.count()
    }

    /// When the last answer was handed out, all of it at once.
    pub(crate) fn last_answer(&self) -> Option<Instant> {
        *self
            .record
            .answered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep the bodies of requests, or ends it and returns them.
    pub(crate) fn record(&self, is_on: bool) -> Vec<Vec<u8>> {
        self.record.is_on.store(is_on, Ordering::Relaxed);
        std::mem::take(&mut *self.record.lock())
    }
}

impl Record {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, request: &Request) {
        self.lock().push(request.body.clone());
    }
}

/// How many results stand behind the last message of the user, and how many that message asks for. Quotes inside of texts are
/// escaped, so that no text looks like a role.
fn progress(body: &[u8]) -> (usize, usize) {
    let from = last(body, b"\"role\":\"user\"").unwrap_or(0);
    let rest = body.get(from..).unwrap_or_default();
    let role: &[u8] = b"\"role\":\"tool\"";
    let made = rest
        .windows(role.len())
        .filter(|window| *window == role)
        .count();
    let wanted = last(rest, MARK.as_bytes()).and_then(|at| rest.get(at + MARK.len()));
    let wanted = wanted
        .filter(|digit| digit.is_ascii_digit())
        .map_or(1, |digit| usize::from(digit - b'0'));
    (made, wanted)
}

fn last(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .rposition(|window| window == wanted)
}
