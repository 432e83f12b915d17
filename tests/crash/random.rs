//! Many sessions and many faults in no planned order. The seed that is printed gives the same choices again; how they meet
//! the processes is up to the machine.
//!
//! `TEAMSTER_CRASH_SECONDS` says how long (60), `TEAMSTER_CRASH_SEED` with which seed (that of the clock).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures::future::join_all;
use teamster_protocol::{
    SessionId,
    function::harness::SendReply,
    input::{AdminAction, Appended},
};

use crate::{
    operator::session,
    world::{SIBLINGS, Worker, World},
};

/// Sessions at once.
const SESSIONS: u64 = 8;
/// How long the mesh is left alone between two faults at most; progress ends it.
const CALM: Duration = Duration::from_millis(1500);
/// How long an owner sleeps at most: longer than its peers wait for it.
const SLEEP: Duration = Duration::from_secs(4);

/// `SplitMix64`: small, seeded, the same everywhere.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("small")
    }

    /// Another one, for a task of its own.
    fn split(&mut self) -> Self {
        Self(self.next())
    }
}

/// Says the seed when the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again with TEAMSTER_CRASH_SEED={}", self.0);
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn dur_3_random_faults_cost_time_only() {
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs()
    };
    let seed = Seed(setting("TEAMSTER_CRASH_SEED").unwrap_or_else(clock));
    let ends =
        Instant::now() + Duration::from_secs(setting("TEAMSTER_CRASH_SECONDS").unwrap_or(60));
    let mut random = Random(seed.0);
    let world = World::start().await;
    let mut chaos = Chaos::start(&world, random.split()).await;
    let ids: Vec<SessionId> = (0..SESSIONS)
        .map(|number| session(&format!("s{number}")))
        .collect();
    let drivers = ids
        .iter()
        .map(|id| drive(&world, id, random.split(), ends))
        .collect::<Vec<_>>();
    let (accepted, ()) = tokio::join!(join_all(drivers), chaos.run(ends));
    let mut commits = 0;
    for (id, accepted) in ids.iter().zip(&accepted) {
        commits += world.verify(id, accepted).await.commits.len();
    }
    let messages: usize = accepted.iter().map(Vec::len).sum();
    eprintln!(
        "seed {}: {messages} messages, {commits} commits, faults {:?}",
        seed.0, chaos.faults
    );
    assert!(
        chaos.faults.values().sum::<u32>() > 0,
        "no fault came about"
    );
    assert!(messages >= ids.len());
}

/// Sends messages of all kinds, sometimes before the last is answered, and lets the session come to rest.
async fn drive(world: &World, id: &SessionId, mut random: Random, ends: Instant) -> Vec<SendReply> {
    let mut accepted: Vec<SendReply> = Vec::new();
    let mut inputs = Vec::new();
    while Instant::now() < ends {
        // Of a session that is there somebody changes the title or adds a note, whatever goes on in it.
        if !accepted.is_empty() && random.below(3) == 0 {
            world
                .owner
                .settle(id, accepted.get(..1).unwrap_or_default())
                .await;
            let key = inputs.len().to_string();
            let action = if random.below(2) == 0 {
                AdminAction::SetMeta {
                    title: Some(key.clone()),
                    metadata: BTreeMap::new(),
                }
            } else {
                note(&key)
            };
            inputs.push(world.owner.administer(id, &key, action).await);
        }
        let plan = ["full", "write", "read", "talk", "destroy"][random.index(5)];
        let text = format!("{plan} {id} {}", accepted.len());
        accepted.push(world.owner.send(id, &text).await);
        if random.below(3) > 0 {
            world.owner.settle(id, &accepted).await;
        }
    }
    world.owner.settle(id, &accepted).await;
    world.owner.settle_inputs(id, &inputs).await;
    accepted
}

/// A note that no model reads.
fn note(text: &str) -> AdminAction {
    AdminAction::Append {
        messages: vec![Appended::Custom {
            kind: "note".to_owned(),
            text: text.to_owned(),
        }],
    }
}

struct Chaos<'a> {
    world: &'a World,
    random: Random,
    harnesses: Vec<Worker>,
    siblings: Vec<Worker>,
    /// What came about, by kind.
    faults: BTreeMap<&'static str, u32>,
}

impl<'a> Chaos<'a> {
    async fn start(world: &'a World, random: Random) -> Self {
        let mut siblings = Vec::new();
        for name in SIBLINGS {
            siblings.push(world.worker(&[name]).await);
        }
        let harnesses = vec![
            world.worker(&["harness"]).await,
            world.worker(&["harness"]).await,
        ];
        Self {
            world,
            random,
            harnesses,
            siblings,
            faults: BTreeMap::new(),
        }
    }

    async fn run(&mut self, ends: Instant) {
        while Instant::now() < ends {
            let requests = self.random.below(12);
            self.progress(requests, CALM).await;
            let fault = match self.random.below(10) {
                0..=2 => self.kill_harness().await,
                3..=4 => self.kill_harness_at_a_commit().await,
                5 => self.pause_harness().await,
                6 => self.cut_harness(),
                7 => self.kill_sibling().await,
                8 => self.restart_server().await,
                _ => self.kill_everything().await,
            };
            *self.faults.entry(fault).or_default() += 1;
        }
    }

    /// Lets the mesh work until the model was asked so many times, at most for `limit`.
    async fn progress(&self, requests: u64, limit: Duration) {
        let wanted = self.world.model.count() + usize::try_from(requests).expect("small");
        let _ = tokio::time::timeout(limit, self.world.model.asked(wanted)).await;
    }

    async fn kill_harness(&mut self) -> &'static str {
        let which = self.random.index(self.harnesses.len());
        self.harnesses[which].kill().await;
        if self.random.below(2) == 0 {
            // Its peer has time to notice.
            self.progress(4, CALM).await;
        }
        self.harnesses[which] = self.world.worker(&["harness"]).await;
        "kill of a harness"
    }

    async fn kill_harness_at_a_commit(&mut self) -> &'static str {
        let which = self.random.index(self.harnesses.len());
        let nth = 1 + self.random.index(4);
        let harness = &self.harnesses[which];
        let hold = if self.random.below(2) == 0 {
            harness.proxy.hold_publish("log.", nth)
        } else {
            harness.proxy.hold_answer("log.", nth)
        };
        if tokio::time::timeout(CALM, hold.reached(CALM * 2))
            .await
            .is_err()
        {
            return "a commit that did not come";
        }
        self.harnesses[which].kill().await;
        hold.cut();
        self.harnesses[which] = self.world.worker(&["harness"]).await;
        "kill of a harness at a commit"
    }

    async fn pause_harness(&mut self) -> &'static str {
        let which = self.random.index(self.harnesses.len());
        self.harnesses[which].pause().await;
        self.progress(30, SLEEP).await;
        self.harnesses[which].process.resume();
        "sleep of a harness"
    }

    fn cut_harness(&mut self) -> &'static str {
        let which = self.random.index(self.harnesses.len());
        self.harnesses[which].proxy.cut();
        "cut connection of a harness"
    }

    async fn kill_sibling(&mut self) -> &'static str {
        let which = self.random.index(self.siblings.len());
        self.siblings[which].kill().await;
        self.siblings[which] = self.world.worker(&[SIBLINGS[which]]).await;
        "kill of another worker"
    }

    async fn kill_everything(&mut self) -> &'static str {
        let mut nats = self.world.nats.lock().await;
        nats.kill().await;
        for worker in self.harnesses.iter_mut().chain(&mut self.siblings) {
            worker.kill().await;
        }
        nats.restart().await;
        for harness in &mut self.harnesses {
            *harness = self.world.worker(&["harness"]).await;
        }
        for (sibling, name) in self.siblings.iter_mut().zip(SIBLINGS) {
            *sibling = self.world.worker(&[name]).await;
        }
        "kill of everything"
    }

    async fn restart_server(&mut self) -> &'static str {
        self.world.nats.lock().await.restart().await;
        "restart of the server"
    }
}

/// Two harnesses and many sessions, without any fault: they share the work, and nothing is done twice.
#[tokio::test(flavor = "multi_thread")]
async fn conc_1_two_harnesses_share_many_sessions() {
    let world = World::start().await;
    let _siblings = world.worker(&SIBLINGS).await;
    let _harnesses = [
        world.worker(&["harness"]).await,
        world.worker(&["harness"]).await,
    ];
    let runs = (0..40).map(|number| {
        let (world, id) = (&world, session(&format!("s{number}")));
        async move {
            let mut accepted = Vec::new();
            for text in ["full turn", "write more"] {
                accepted.push(world.owner.send(&id, text).await);
                world.owner.settle(&id, &accepted).await;
            }
            world.verify(&id, &accepted).await
        }
    });
    let evidence = join_all(runs).await;
    let owners: std::collections::BTreeSet<String> = evidence
        .iter()
        .flat_map(|one| &one.commits)
        .map(|commit| commit.head.owner.to_string())
        .collect();
    assert_eq!(owners.len(), 2);
    assert!(evidence.iter().all(|one| one.effects.len() == 4));
}
