//! The figures as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    Class,
    crash::Crashes,
    growth::Growth,
    memory::Memory,
    stats::{Latency, median, over},
};

/// Everything that was measured.
pub(crate) struct Report {
    pub(crate) classes: Vec<Class>,
    pub(crate) crashes: Crashes,
    pub(crate) memory: Memory,
    /// The load of the machine before it began.
    pub(crate) load: String,
    pub(crate) plan: String,
}

/// The name of a flush class.
pub(crate) fn class_name(is_always: bool) -> &'static str {
    if is_always {
        "flush per write"
    } else {
        "default sync"
    }
}

/// The machine's load averages over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |rest| rest.trim_start_matches(['\t', ' ', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{name}, {cores} cores, {}", std::env::consts::OS)
}

impl Class {
    /// Messages that are stored and waited for in one turn with one call.
    fn acks(&self) -> usize {
        1 + self.commits[1]
    }

    /// What one more (generate + call) stores.
    fn acks_per_iteration(&self) -> f64 {
        (self.commits[2] - self.commits[0]) as f64 / 4.0
    }

    fn to_json(&self) -> Value {
        let h1 = |figure: &dyn Fn(&crate::turns::Single) -> f64| round(over(&self.single, figure));
        let h2 =
            |figure: &dyn Fn(&crate::turns::Sustained) -> f64| round(over(&self.sustained, figure));
        json!({
            "flush": class_name(self.is_always),
            "acks_per_turn": self.acks(),
            "acks_per_iteration": self.acks_per_iteration(),
            "commits_with_0_1_4_calls": self.commits,
            "bytes": {
                "input": self.census.shape.input,
                "commits": self.census.shape.commits,
                "hops": self.census.shape.hops,
                "model_requests": self.census.shape.bodies.iter().map(Vec::len).collect::<Vec<_>>(),
            },
            "messages_per_turn": self.census.messages.iter()
                .map(|(kind, count)| (kind.clone(), json!(round(*count)))).collect::<serde_json::Map<_, _>>(),
            "h1": {
                "turn_p50_ms": h1(&|round| round.turn.p50),
                "turn_p99_ms": h1(&|round| round.turn.p99),
                "cpu_ms_per_turn": h1(&|round| round.cpu),
                "sent_p50_ms": h1(&|round| round.sent.p50),
                "call_p50_ms": h1(&|round| round.call.p50),
                "bare_hop_p50_ms": h1(&|round| round.hop.p50),
                "floor_acks_p50_ms": h1(&|round| round.acks.p50),
                "floor_acks_p99_ms": h1(&|round| round.acks.p99),
                "floor_path_p50_ms": h1(&|round| round.path.p50),
                "floor_path_p99_ms": h1(&|round| round.path.p99),
                "ratio_to_acks": h1(&|round| round.turn.p50 / round.acks.p50),
                "ratio_to_path": h1(&|round| round.turn.p50 / round.path.p50),
                "rounds_ms": self.single.iter()
                    .map(|one| [one.acks.p50, one.path.p50, one.turn.p50].map(round)).collect::<Vec<_>>(),
            },
            "h2": {
                "turns_per_s": h2(&|round| round.turns),
                "best_turns_per_s": round(self.sustained.iter().map(|one| one.turns).fold(0.0, f64::max)),
                "turn_p99_ms": h2(&|round| round.p99),
                "cpu_ms_per_turn": h2(&|round| round.cpu),
                "floor_acks_cpu_ms": h2(&|round| round.acks_cpu),
                "floor_path_cpu_ms": h2(&|round| round.path_cpu),
                "floor_acks_per_s": h2(&|round| round.acks),
                "floor_path_per_s": h2(&|round| round.path),
                "ratio_to_acks": h2(&|round| round.acks / round.turns),
                "ratio_to_path": h2(&|round| round.path / round.turns),
                "rounds_per_s": self.sustained.iter()
                    .map(|one| [one.acks, one.path, one.turns].map(round)).collect::<Vec<_>>(),
            },
            "growth": self.growth.as_ref().map(Growth::to_json),
            "h7": self.stream.map(|stream| json!({
                "word_ms": latency(&stream.word),
                "word_directly_ms": latency(&stream.direct),
                "first_of_an_instant_model_ms": latency(&stream.first),
            })),
        })
    }

    fn write(&self, text: &mut String) {
        let name = class_name(self.is_always);
        let acks = self.acks();
        line(
            text,
            &format!(
                "{name}: {acks} publish-acks per turn with one call, {} per further (generate + call)",
                self.acks_per_iteration()
            ),
        );
        if !self.single.is_empty() {
            let h1 = |figure: &dyn Fn(&crate::turns::Single) -> f64| over(&self.single, figure);
            line(
                text,
                "  H1  one at a time                         p50 ms   p99 ms   turn is",
            );
            let row = |text: &mut String, what: &str, p50: f64, p99: f64, ratio: f64| {
                line(
                    text,
                    &format!("      {what:<36} {p50:>7.2}  {p99:>7.2}   {ratio:>5.2} x"),
                );
            };
            row(
                text,
                "floor: the publish-acks alone",
                h1(&|r| r.acks.p50),
                h1(&|r| r.acks.p99),
                h1(&|r| r.turn.p50 / r.acks.p50),
            );
            row(
                text,
                "floor: with hops and model requests",
                h1(&|r| r.path.p50),
                h1(&|r| r.path.p99),
                h1(&|r| r.turn.p50 / r.path.p50),
            );
            row(
                text,
                "turn, message to final commit seen",
                h1(&|r| r.turn.p50),
                h1(&|r| r.turn.p99),
                1.0,
            );
            row(
                text,
                "  of it until the message is accepted",
                h1(&|r| r.sent.p50),
                h1(&|r| r.sent.p99),
                h1(&|r| r.turn.p50 / r.sent.p50),
            );
            let hops = format!(
                "      one call of a function {:.3} ms, one bare request {:.3} ms",
                h1(&|r| r.call.p50),
                h1(&|r| r.hop.p50)
            );
            line(text, &hops);
            let cpu = format!(
                "      H8  processor time, server, model and load included: {:.2} ms per turn",
                h1(&|r| r.cpu)
            );
            line(text, &cpu);
        }
        self.write_sustained(text);
        if let Some(growth) = &self.growth {
            growth.write(text);
        }
        if let Some(stream) = self.stream {
            let words = format!(
                "  H7  a word from the model to a client: p50 {:.3} ms, p99 {:.3} ms; read at the model itself {:.3} and {:.3} ms: {:.3} ms added; \
                 the first word of an instant model {:.3} and {:.3} ms",
                stream.word.p50,
                stream.word.p99,
                stream.direct.p50,
                stream.direct.p99,
                stream.word.p50 - stream.direct.p50,
                stream.first.p50,
                stream.first.p99
            );
            line(text, &words);
        }
        text.push('\n');
    }

    fn write_sustained(&self, text: &mut String) {
        if self.sustained.is_empty() {
            return;
        }
        let h2 = |figure: &dyn Fn(&crate::turns::Sustained) -> f64| over(&self.sustained, figure);
        line(
            text,
            "  H2  64 at once, of 1,024 sessions            per s            floor is",
        );
        let row = |text: &mut String, what: &str, rate: f64, ratio: f64| {
            line(
                text,
                &format!("      {what:<36} {rate:>9.0}             {ratio:>5.2} x"),
            );
        };
        row(
            text,
            "floor: the publish-acks alone",
            h2(&|r| r.acks),
            h2(&|r| r.acks / r.turns),
        );
        row(
            text,
            "floor: with hops and model requests",
            h2(&|r| r.path),
            h2(&|r| r.path / r.turns),
        );
        row(text, "turns", h2(&|r| r.turns), 1.0);
        line(
            text,
            &format!(
                "      p99 of a turn {:.0} ms; processor time, server, model and load included: {:.2} ms per turn, {:.2} and {:.2} ms per loop",
                h2(&|r| r.p99),
                h2(&|r| r.cpu),
                h2(&|r| r.path_cpu),
                h2(&|r| r.acks_cpu)
            ),
        );
    }
}

fn latency(latency: &Latency) -> Value {
    json!({"p50": thousandths(latency.p50), "p99": thousandths(latency.p99)})
}

impl Growth {
    fn to_json(&self) -> Value {
        json!({
            "turns": self.turns,
            "raw_bytes": self.raw,
            "commit_bytes": self.commits,
            "stored_bytes": self.stored(),
            "stored_bytes_by_stream": self.streams,
            "h4_stored_by_raw": round(self.stored() as f64 / self.raw as f64),
            "h4_commits_by_raw": round(self.commits as f64 / self.raw as f64),
            "bytes_of_an_early_turn": round(self.early_bytes),
            "bytes_of_a_late_turn": round(self.late_bytes),
            "early_turn_ms": thousandths(self.early),
            "late_turn_ms": thousandths(self.late),
            "early_model_ms": thousandths(self.early_model),
            "late_model_ms": thousandths(self.late_model),
            "h5_late_by_early": round(self.overhead()),
        })
    }

    fn write(&self, text: &mut String) {
        let raw = self.raw as f64;
        line(
            text,
            &format!(
                "  H4  {} turns in one session: {} bytes of text; all streams {:.2} x, commits {:.2} x of it; a late turn {:.2} x of an early one",
                self.turns,
                self.raw,
                self.stored() as f64 / raw,
                self.commits as f64 / raw,
                self.late_bytes / self.early_bytes.max(1.0)
            ),
        );
        for (stream, bytes) in self.streams.iter().filter(|(_, bytes)| **bytes > 0) {
            line(
                text,
                &format!(
                    "      {stream:<14} {:>9} bytes  {:.2} x",
                    bytes,
                    *bytes as f64 / raw
                ),
            );
        }
        line(
            text,
            &format!(
                "  H5  turns 2-11 {:.2} ms, the last ten {:.2} ms; the model's requests alone {:.2} and {:.2} ms: overhead {:.2} x",
                self.early,
                self.late,
                self.early_model,
                self.late_model,
                self.overhead()
            ),
        );
    }
}

impl Memory {
    fn to_json(self) -> Value {
        json!({
            "workers_before_mib": round(self.workers_before),
            "workers_after_mib": round(self.workers_after),
            "server_before_mib": round(self.server_before),
            "server_after_mib": round(self.server_after),
            "all_after_mib": round(self.workers_after + self.server_after),
        })
    }

    fn write(self, text: &mut String) {
        line(
            text,
            &format!(
                "H6  private memory, 1,000 sessions of one turn: workers {:.1} -> {:.1} MiB, nats-server {:.1} -> {:.1} MiB, together {:.1} MiB",
                self.workers_before,
                self.workers_after,
                self.server_before,
                self.server_after,
                self.workers_after + self.server_after
            ),
        );
    }
}

impl Report {
    /// One JSON document.
    pub(crate) fn json(&self) -> Value {
        let times = |times: &[f64]| {
            json!({
                "median_ms": round(median(times)),
                "max_ms": round(times.iter().copied().fold(0.0, f64::max)),
                "kills_ms": times.iter().copied().map(round).collect::<Vec<_>>(),
            })
        };
        json!({
            "machine": machine(),
            "load_before": self.load,
            "load_after": load(),
            "plan": self.plan,
            "classes": self.classes.iter().map(Class::to_json).collect::<Vec<_>>(),
            "h3": {
                "replica": times(&self.crashes.replica),
                "restart": times(&self.crashes.restart),
                "generations_repeated": self.crashes.repeated,
            },
            "h6": (self.memory.workers_after > 0.0).then(|| self.memory.to_json()),
        })
    }

    /// A table for people.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        line(
            &mut text,
            &format!(
                "{} · load {} before, {} after · {}\n",
                machine(),
                self.load,
                load(),
                self.plan
            ),
        );
        for class in &self.classes {
            class.write(&mut text);
        }
        if let Some(class) = self.classes.first() {
            line(
                &mut text,
                "messages on the wire per turn with one call (c=1, requests and answers, heartbeats included)",
            );
            for (kind, count) in &class.census.messages {
                line(&mut text, &format!("      {kind:<48} {count:>6.1}"));
            }
            text.push('\n');
        }
        if !self.crashes.replica.is_empty() {
            line(
                &mut text,
                "H3  kill -9 of the harness in mid-call, to the final commit seen      median ms   max ms",
            );
            for (what, times) in [
                ("another harness lives", &self.crashes.replica),
                ("the same command is started again", &self.crashes.restart),
            ] {
                let max = times.iter().copied().fold(0.0, f64::max);
                line(
                    &mut text,
                    &format!("      {what:<58} {:>9.0}  {max:>7.0}", median(times)),
                );
            }
            line(
                &mut text,
                &format!(
                    "      generations that were made twice: {}",
                    self.crashes.repeated
                ),
            );
        }
        if self.memory.workers_after > 0.0 {
            self.memory.write(&mut text);
        }
        text
    }
}

fn line(text: &mut String, words: &str) {
    let _ = writeln!(text, "{words}");
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Two digits behind the point are more than the figures are worth.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
