//! How much of a request is the unchanged beginning of the one before it while old results are masked, and what a plan of a long
//! history takes. No server is needed: a plan is a function.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use teamster_core::context::{Ask, History, Window, apply, plan};
use teamster_protocol::{
    CallId, FunctionId, Message, MessageId, Principal,
    message::{Content, ResultKind, WireCall},
};

/// Calls of the turn that is looked at.
const CALLS: usize = 50;
/// Messages of the long history.
const LONG: usize = 10_000;

/// A history that grows call by call.
struct Grown {
    messages: Vec<Arc<Message>>,
    masked: BTreeSet<CallId>,
}

impl Grown {
    fn new() -> Self {
        let message = Message::User {
            id: MessageId::parse("msg_0").expect("an id"),
            from: Principal::parse("bench").expect("a principal"),
            text: "go on and on".to_owned(),
        };
        Self {
            messages: vec![Arc::new(message)],
            masked: BTreeSet::new(),
        }
    }

    fn call(&mut self, n: usize, bytes: usize) {
        let call = CallId::parse(format!("call_{n}")).expect("an id");
        let wire = WireCall {
            call: call.clone(),
            name: "fs__read".to_owned(),
            arguments: format!("{{\"path\":\"{n}\"}}"),
        };
        self.messages.push(Arc::new(Message::Assistant {
            id: MessageId::parse(format!("msg_{n}")).expect("an id"),
            content: vec![Content::Call(wire)],
            partial: false,
        }));
        self.messages.push(Arc::new(Message::FunctionResult {
            call,
            function: FunctionId::parse("fs::read").ok(),
            text: "w".repeat(bytes),
            outcome: ResultKind::Ok,
        }));
    }

    /// What is sent, with the masks stored as the log would; and how long it took to plan and make it.
    fn send(&mut self, window: u64) -> (Vec<Arc<Message>>, Duration, usize) {
        let stored = BTreeMap::new();
        let history = History {
            messages: &self.messages,
            masked: &self.masked,
            stored: &stored,
            is_readable: true,
        };
        let ask = Ask {
            window: Window::known(window, 8192),
            system_prompt: 500,
            functions: 1500,
            per_mille: 1000,
            refused: 0,
        };
        let begun = Instant::now();
        let plan = plan(&history, &ask).expect("fits");
        let mask = plan.mask.iter().cloned().collect();
        let cap = usize::try_from(plan.result_bytes_max).expect("small");
        let sent = apply(&history, &mask, cap);
        let took = begun.elapsed();
        let count = plan.mask.len();
        self.masked.extend(plan.mask);
        (sent, took, count)
    }
}

/// Prints the figures.
pub(crate) fn print() {
    println!("unchanged beginning of requests over {CALLS} calls, by bytes");
    for (window, bytes) in [
        (32_768, 4000),
        (32_768, 8000),
        (131_072, 16_000),
        (200_000, 4000),
    ] {
        let (share, strides) = unchanged(window, bytes);
        println!(
            "  window {window:>7}, results of {bytes:>6} bytes: {share:.3}, masked in {strides} strides"
        );
    }
    let mut grown = Grown::new();
    for n in 0..LONG / 2 {
        grown.call(n, 400);
    }
    // The calls alone take more than smaller windows hold.
    let (sent, took, masked) = grown.send(400_000);
    println!(
        "a plan over {} messages, applied: {:.1} ms, {masked} results masked",
        sent.len(),
        took.as_secs_f64() * 1e3
    );
}

fn unchanged(window: u64, bytes: usize) -> (f64, usize) {
    let mut grown = Grown::new();
    let (mut kept, mut all, mut strides, mut before) = (0, 0, 0, Vec::new());
    for n in 0..CALLS {
        grown.call(n, bytes);
        let (sent, _, masked) = grown.send(window);
        strides += usize::from(masked > 0);
        let text: Vec<String> = sent
            .iter()
            .map(|message| serde_json::to_string(message).expect("JSON"))
            .collect();
        let same = text.iter().zip(&before).take_while(|(one, two)| one == two);
        kept += same.map(|(one, _)| one.len()).sum::<usize>();
        all += text.iter().map(String::len).sum::<usize>();
        before = text;
    }
    (kept as f64 / all as f64, strides)
}
