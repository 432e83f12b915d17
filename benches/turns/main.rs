//! The benchmark of a durable turn: `cargo bench --bench turns`, `-- --json` for figures to keep.
//!
//! Owns: the measurements H1 (one turn after the other), H2 (64 at once) and H3 (a harness killed in mid-call), H1 and H2 beside
//! the floor that the same server allowed in the same run, in alternating rounds; H4 and H5 (one long session), H6 (memory), H7
//! (first pieces of answers), H8 (processor time, with H1 and H2). What counts are ratios: absolute figures belong to the machine
//! and the moment.
//!
//! Never: an expectation. A slow machine fails nothing.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a benchmark is a program for a terminal, and a failed step ends it"
)]

mod census;
mod crash;
mod floor;
mod growth;
mod masking;
mod memory;
mod model;
mod policy;
mod report;
mod rig;
mod stats;
mod stream;
mod turns;
mod watch;

use std::time::Duration;

use census::Census;
use crash::Crashes;
use floor::Floor;
use growth::Growth;
use memory::Memory;
use rig::Rig;
use teamster_telemetry::task;
use turns::{Arena, Single, Sustained};
use watch::Watch;

/// What one flush class gave.
pub(crate) struct Class {
    pub(crate) is_always: bool,
    pub(crate) census: Census,
    /// Commits of turns with no call, one call and four calls.
    pub(crate) commits: [usize; 3],
    pub(crate) single: Vec<Single>,
    pub(crate) sustained: Vec<Sustained>,
    pub(crate) growth: Option<Growth>,
    pub(crate) stream: Option<stream::Stream>,
}

/// How long turns run for a profiler.
const PROFILE: Duration = Duration::from_secs(15);

/// How much is measured.
struct Plan {
    rounds: usize,
    turns: usize,
    window: Duration,
    kills: usize,
    wants_json: bool,
    only: Option<String>,
}

impl Plan {
    fn read() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
        let value = |flag: &str| {
            let at = arguments.iter().position(|argument| argument == flag)?;
            arguments.get(at + 1).cloned()
        };
        let (rounds, turns, seconds, kills) = if has("--quick") {
            (2, 40, 1, 2)
        } else {
            (9, 200, 3, 9)
        };
        Self {
            rounds: value("--rounds")
                .and_then(|text| text.parse().ok())
                .unwrap_or(rounds),
            turns,
            window: Duration::from_secs(seconds),
            kills,
            wants_json: has("--json"),
            only: value("--only"),
        }
    }

    /// Whether turns are to run for a profiler: `--only profile`.
    fn is_profile(&self) -> bool {
        self.only.as_deref() == Some("profile")
    }

    fn wants(&self, what: &str) -> bool {
        self.only
            .as_deref()
            .is_none_or(|only| only.split(',').any(|name| name == what))
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Within the runtime's own threads, so that no step of a measurement waits for this one to be woken.
    let measured = runtime.block_on(async { task::spawn("benchmark", run(Plan::read())).await });
    measured.expect("measured");
}

async fn run(plan: Plan) {
    match plan.only.as_deref() {
        Some("masking") => return masking::print(),
        Some("policy") => return policy::print(),
        _ => {}
    }
    let load = report::load();
    let mut classes = Vec::new();
    for is_always in [true, false] {
        let wants = ["h1", "h2", "h4", "h5", "h7"].map(|name| plan.wants(name));
        if wants.contains(&true) || plan.is_profile() {
            classes.push(class(&plan, is_always).await);
        }
    }
    let crashes = if plan.wants("h3") {
        eprintln!(
            "h3: {} kills with a replica, {} with a restart",
            plan.kills, plan.kills
        );
        crash::run(plan.kills).await
    } else {
        Crashes::default()
    };
    let memory = if plan.wants("h6") {
        eprintln!("h6: a thousand sessions");
        memory::run().await
    } else {
        Memory::default()
    };
    let report = report::Report {
        classes,
        crashes,
        memory,
        load,
        plan: format!("{} rounds", plan.rounds),
    };
    if plan.wants_json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
}

/// Measures H1 and H2 on one server.
async fn class(plan: &Plan, is_always: bool) -> Class {
    let name = report::class_name(is_always);
    let rig = Rig::start(is_always).await;
    let watch = Watch::start(&rig.operator).await;
    let census = census::take(&rig, &watch).await;
    let floor = Floor::start(&rig.nats, census.shape.clone(), &rig.model.base_url()).await;
    let arena = Arena::new(rig, watch, floor);
    let commits = arena.commits().await;
    if plan.is_profile() {
        arena.profile(PROFILE).await;
    }
    let (mut single, mut sustained) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        eprintln!("{name}: round {} of {}", round + 1, plan.rounds);
        if plan.wants("h1") {
            single.push(arena.single(plan.turns).await);
        }
        if plan.wants("h2") {
            sustained.push(arena.sustained(plan.window).await);
        }
    }
    let growth = if plan.wants("h4") || plan.wants("h5") {
        eprintln!("{name}: a session of many turns");
        Some(growth::run(&arena).await)
    } else {
        None
    };
    let stream = if plan.wants("h7") {
        eprintln!("{name}: first pieces of answers");
        Some(stream::run(&arena).await)
    } else {
        None
    };
    let Arena { rig, watch, .. } = arena;
    drop(watch);
    rig.stop().await;
    Class {
        is_always,
        census,
        commits,
        single,
        sustained,
        growth,
        stream,
    }
}
