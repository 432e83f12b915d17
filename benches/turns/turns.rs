//! H1 and H2: turns one after the other, and as many as go, in alternating rounds with the floor.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::future::join_all;

use crate::{
    floor::{Floor, Kind},
    model,
    rig::{LIMIT, Rig, send, session},
    stats::{Latency, ms, percentile},
    watch::Watch,
};

/// Sessions of H2.
const SESSIONS: usize = 1024;
/// Turns of H2 that run at once.
const AT_ONCE: usize = 64;
/// Turns before a measurement.
const WARM: usize = 20;

/// One server with everything that is measured on it.
pub(crate) struct Arena {
    pub(crate) rig: Rig,
    pub(crate) watch: Watch,
    pub(crate) floor: Floor,
    /// Names of sessions that were given so far.
    names: AtomicUsize,
}

/// H1: one round, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single {
    pub(crate) acks: Latency,
    pub(crate) path: Latency,
    pub(crate) turn: Latency,
    /// Of the turns: until `harness::send` answered.
    pub(crate) sent: Latency,
    /// Processor time of this process and of the server per turn, in milliseconds.
    pub(crate) cpu: f64,
    /// One call of the function.
    pub(crate) call: Latency,
    /// One bare request and its answer, of the same sizes.
    pub(crate) hop: Latency,
}

/// H2: one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sustained {
    /// Loops per second.
    pub(crate) acks: f64,
    /// Loops per second.
    pub(crate) path: f64,
    /// Turns per second.
    pub(crate) turns: f64,
    /// Of the turns, in milliseconds.
    pub(crate) p99: f64,
    /// Processor time of this process and of the server per turn, in milliseconds.
    pub(crate) cpu: f64,
    /// The same of a loop.
    pub(crate) acks_cpu: f64,
    /// The same of a loop.
    pub(crate) path_cpu: f64,
}

impl Arena {
    pub(crate) fn new(rig: Rig, watch: Watch, floor: Floor) -> Self {
        Self {
            rig,
            watch,
            floor,
            names: AtomicUsize::new(0),
        }
    }

    pub(crate) fn name(&self) -> usize {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// One turn of a session: when it was accepted and when its end was seen.
    pub(crate) async fn turn(&self, name: &str, message: &str) -> (Duration, Duration) {
        let session = session(name);
        let end = self.watch.end_of(&session);
        let begun = Instant::now();
        send(&self.rig.operator, &session, message)
            .await
            .expect("accepted");
        let sent = begun.elapsed();
        let ended = tokio::time::timeout(LIMIT, end)
            .await
            .expect("the turn ends in time")
            .expect("the turn's end");
        (sent, ended.saturating_duration_since(begun))
    }

    /// One round of H1: `count` loops of each kind, then `count` turns, each in a new session.
    pub(crate) async fn single(&self, count: usize) -> Single {
        let acks = self.loops(Kind::Acks, count).await;
        let path = self.loops(Kind::Path, count).await;
        let message = model::message(1);
        let asked = self.rig.model.count();
        let (mut sent, mut turns) = (Vec::new(), Vec::new());
        let used = cpu(self.rig.nats.pid());
        for index in 0..WARM + count {
            let (accepted, ended) = self
                .turn(&format!("single-{}", self.name()), &message)
                .await;
            if index >= WARM {
                sent.push(accepted);
                turns.push(ended);
            }
        }
        assert_eq!(
            self.rig.model.count() - asked,
            2 * (WARM + count),
            "each turn asks the model twice"
        );
        let used = cpu(self.rig.nats.pid()).saturating_sub(used);
        let (mut calls, mut hops) = (Vec::new(), Vec::new());
        for _ in 0..WARM + count {
            calls.push(self.rig.call().await);
            hops.push(self.floor.one_hop().await);
        }
        Single {
            acks,
            path,
            turn: Latency::of(turns),
            sent: Latency::of(sent),
            cpu: ms(used) / self::count(WARM + count),
            call: Latency::of(calls),
            hop: Latency::of(hops),
        }
    }

    async fn loops(&self, kind: Kind, count: usize) -> Latency {
        let mut http = self.floor.client().await;
        let mut times = Vec::new();
        for index in 0..WARM + count {
            let time = self.floor.turn(kind, self.name(), &mut http).await;
            if index >= WARM {
                times.push(time);
            }
        }
        Latency::of(times)
    }

    /// One round of H2: as many loops of each kind and as many turns as go within `window` each.
    pub(crate) async fn sustained(&self, window: Duration) -> Sustained {
        let (acks, acks_cpu) = self.loops_at_once(Kind::Acks, window).await;
        let (path, path_cpu) = self.loops_at_once(Kind::Path, window).await;
        let (turns, p99, cpu) = self.turns_at_once(window).await;
        Sustained {
            acks,
            path,
            turns,
            p99,
            cpu,
            acks_cpu,
            path_cpu,
        }
    }

    async fn loops_at_once(&self, kind: Kind, window: Duration) -> (f64, f64) {
        let done = AtomicUsize::new(0);
        let used = cpu(self.rig.nats.pid());
        let begun = Instant::now();
        let workers = (0..AT_ONCE).map(|_| async {
            let mut http = self.floor.client().await;
            while begun.elapsed() < window {
                self.floor.turn(kind, self.name(), &mut http).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        join_all(workers).await;
        let done = done.into_inner();
        let used = cpu(self.rig.nats.pid()).saturating_sub(used);
        let per_loop = ms(used) / count(done).max(1.0);
        (rate(done, begun.elapsed()), per_loop)
    }

    async fn turns_at_once(&self, window: Duration) -> (f64, f64, f64) {
        let round = self.name();
        let message = model::message(1);
        let asked = self.rig.model.count();
        let used = cpu(self.rig.nats.pid());
        let begun = Instant::now();
        let workers = (0..AT_ONCE).map(|worker| {
            let message = message.as_str();
            async move {
                let mut times = Vec::new();
                // Each of these has sessions of its own, so that no two turns meet in one.
                for index in (0..SESSIONS / AT_ONCE).cycle() {
                    if begun.elapsed() >= window {
                        break;
                    }
                    times.push(
                        self.turn(&format!("many-{round}-{worker}-{index}"), message)
                            .await
                            .1,
                    );
                }
                times
            }
        });
        let mut times: Vec<Duration> = join_all(workers).await.into_iter().flatten().collect();
        let elapsed = begun.elapsed();
        let used = cpu(self.rig.nats.pid()).saturating_sub(used);
        assert_eq!(
            self.rig.model.count() - asked,
            2 * times.len(),
            "each turn asks the model twice"
        );
        let per_turn = ms(used) / count(times.len()).max(1.0);
        (
            rate(times.len(), elapsed),
            ms(percentile(&mut times, 99)),
            per_turn,
        )
    }

    /// Turns alone, for a profiler to look at.
    pub(crate) async fn profile(&self, window: Duration) {
        let (rate, p99, cpu) = self.turns_at_once(window).await;
        eprintln!("{rate:.0} turns/s, p99 {p99:.0} ms, {cpu:.2} ms of processor time per turn");
    }

    /// Commits of turns with no call, one call and four calls: what is stored for one iteration more.
    pub(crate) async fn commits(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for (count, calls) in counts.iter_mut().zip([0, 1, 4]) {
            let name = format!("commits-{}", self.name());
            self.turn(&name, &model::message(calls)).await;
            let log = self.rig.operator.log();
            let session = session(&name);
            let tail = log
                .tail(&session)
                .await
                .expect("a tail")
                .map_or(0, |stored| stored.seq);
            *count = log.read(&session, 0, tail).await.expect("a log").len();
        }
        counts
    }
}

fn rate(done: usize, elapsed: Duration) -> f64 {
    count(done) / elapsed.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn count(of: usize) -> f64 {
    of as f64
}

/// Processor time that this process and process `pid` have used.
fn cpu(pid: u32) -> Duration {
    let ticks = |path: String| -> u64 {
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        // The fields behind the name in parentheses: 14 and 15 of the line are user and system time in ticks.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|ticks| ticks.parse::<u64>().ok())
            .sum()
    };
    // Linux counts 100 ticks a second.
    Duration::from_millis(
        10 * (ticks("/proc/self/stat".to_owned()) + ticks(format!("/proc/{pid}/stat"))),
    )
}
