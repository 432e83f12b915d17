//! The model: what it answers follows from the last message of the user and the results behind it, whoever asks again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::json;
use teamster_testkit::{
    ModelServer,
    model::{Gate, Reply, Script},
};

use crate::operator::LIMIT;

/// The command of a call of `sandbox::exec`.
pub const COMMAND: &str = "trap '' TERM HUP; echo ran >> count; setsid sleep 7001 & sleep 7001";

/// Gates by the user's text and the number of results.
type Gates = Arc<Mutex<BTreeMap<(String, usize), Gate>>>;

pub struct Model {
    server: ModelServer,
    gates: Gates,
}

impl Model {
    pub async fn start() -> Self {
        let gates = Gates::default();
        let held = Arc::clone(&gates);
        let script = Script::answer(move |request| {
            let (text, results) = (request.last_user_text(), request.results());
            // The next request of the same kind passes: it comes from whoever goes on.
            let gate = held.lock().expect("lock").remove(&(text.clone(), results));
            reply(&text, results, gate.as_ref())
        });
        Self {
            server: ModelServer::start(script).await,
            gates,
        }
    }

    pub fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// How many requests came.
    pub fn count(&self) -> usize {
        self.server.count()
    }

    /// Waits until `count` requests came.
    pub async fn asked(&self, count: usize) {
        self.server.asked(count, LIMIT).await;
    }

    /// Holds the next reply to `text` with `results` results behind it: in the middle of its text, or before its calls.
    pub fn hold(&self, text: &str, results: usize) -> Gate {
        let gate = Gate::new();
        let mut gates = self.gates.lock().expect("lock");
        gates.insert((text.to_owned(), results), gate.clone());
        gate
    }
}

/// The last words of the model about a message.
fn answer_to(text: &str) -> String {
    format!("this answers {text}")
}

/// The calls that the first word of a message stands for.
fn calls(plan: &str, results: usize) -> &'static [&'static str] {
    match (plan, results) {
        ("full" | "read", 0) => &["t__read"],
        ("full", 1) => &["t__write", "t__destroy"],
        ("write", 0) => &["t__write"],
        ("destroy", 0) => &["t__destroy"],
        ("slow", 0) => &["t__slow"],
        ("long", 0) => &["t__long"],
        ("three", 0) => &["fs__read", "t__peek", "fs__read"],
        ("edit", 0) => &["fs__edit"],
        ("command", 0) => &["sandbox__exec"],
        _ => &[],
    }
}

fn reply(text: &str, results: usize, gate: Option<&Gate>) -> Reply {
    let names = calls(text.split(' ').next().unwrap_or_default(), results);
    let held = |reply: Reply| match gate {
        Some(gate) => reply.gate(gate),
        None => reply,
    };
    if names.is_empty() {
        let answer = answer_to(text);
        let (begin, end) = answer.split_at(5);
        let reply = held(Reply::stream().text(begin)).text(end);
        return reply.finish("stop").usage(10, 5).done();
    }
    let mut reply = held(Reply::stream());
    for (index, name) in (0..).zip(names) {
        let arguments = match *name {
            "fs__edit" => json!({"path": "notes.md", "old": "notes", "new": "notes, notes"}),
            // One more line in the file for each time that it runs; then it stays.
            "sandbox__exec" => {
                json!({"argv": ["sh", "-c", COMMAND], "limits": {"wall_ms": 20_000}})
            }
            "fs__read" => json!({"path": "notes.md"}),
            _ => json!({"for": text}),
        };
        reply = reply.call(
            index,
            &format!("call_{index}"),
            name,
            &arguments.to_string(),
        );
    }
    reply.finish("tool_calls").usage(10, 5).done()
}
