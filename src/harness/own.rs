//! What harnesses say to each other: that they live, what they hold, and whether they will look.
//!
//! All of it serves liveness alone. Whoever believes wrongly is refused by the log.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde::{Deserialize, Serialize};
use teamster_mesh::Mesh;
use teamster_protocol::{SessionId, commit::Bell, id::Incarnation, limits, subject};
use tokio::time::MissedTickBehavior;

use super::{shared::Harness, sweep};

/// How often it is looked which peers are silent: what that costs beyond the beats themselves.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// «Do you run this session, and will you look at these doorbells?»
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    session: SessionId,
    bells: Vec<Bell>,
}

/// The answer. Yes is a promise.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    holds: bool,
}

/// A heartbeat.
#[derive(Debug, Serialize, Deserialize)]
struct Beat {
    incarnation: Incarnation,
    /// What is held, when it changed and now and then.
    held: Option<Vec<SessionId>>,
}

/// What an owner says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// It runs the session and will look.
    Holds,
    /// It does not run the session.
    DoesNot,
    /// It is gone.
    Gone,
    /// It does not answer.
    Silent,
}

/// Asks an owner.
pub(super) async fn ask(
    mesh: &Mesh,
    owner: &Incarnation,
    session: &SessionId,
    bells: Vec<Bell>,
) -> Word {
    let question = Question {
        session: session.clone(),
        bells,
    };
    let Ok(body) = serde_json::to_vec(&question) else {
        return Word::Silent;
    };
    match mesh
        .request(subject::own(owner), body.into(), limits::OWN_ASK)
        .await
    {
        Ok(body) => match serde_json::from_slice::<Answer>(&body) {
            Ok(Answer { holds: true }) => Word::Holds,
            Ok(Answer { holds: false }) => Word::DoesNot,
            Err(_) => Word::Silent,
        },
        Err(teamster_mesh::Error::NoResponders { .. }) => Word::Gone,
        Err(_) => Word::Silent,
    }
}

/// Answers questions until the harness ends.
pub(super) async fn answer(harness: &Harness) {
    let subject = subject::own(harness.mesh.incarnation());
    let mut questions = match harness.mesh.subscribe(subject).await {
        Ok(questions) => questions,
        Err(error) => {
            tracing::error!(error = %teamster_telemetry::chain(&error), "peers cannot ask this harness");
            return;
        }
    };
    while let Some(message) = questions.next().await {
        let Some(reply) = message.reply else { continue };
        let holds = serde_json::from_slice::<Question>(&message.body)
            .is_ok_and(|question| promise(harness, &question));
        if let Ok(body) = serde_json::to_vec(&Answer { holds }) {
            let _ = harness.mesh.publish(reply, body.into()).await; // a lost answer is silence, which the asker bears
        }
    }
}

fn promise(harness: &Harness, question: &Question) -> bool {
    let Some(entry) = harness.shared.desk.get(&question.session) else {
        return false;
    };
    for bell in &question.bells {
        entry.promise(bell.lane, bell.seq);
    }
    !harness.drain.is_cancelled()
}

/// Says every `BEAT_EVERY` that this harness lives.
pub(super) async fn beat(harness: &Harness) {
    let incarnation = harness.mesh.incarnation().clone();
    let subject = subject::own_beat(&incarnation);
    let mut ticks = tokio::time::interval(limits::BEAT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut said: Vec<SessionId> = Vec::new();
    for count in 0_u64.. {
        ticks.tick().await;
        let mut held = harness.shared.desk.sessions();
        held.sort();
        let is_news = held != said || count.is_multiple_of(20);
        let beat = Beat {
            incarnation: incarnation.clone(),
            held: is_news.then(|| held.clone()),
        };
        said = held;
        if let Ok(body) = serde_json::to_vec(&beat) {
            let _ = harness.mesh.publish(subject.clone(), body.into()).await; // the next beat follows at once
        }
    }
}

/// Another harness, as far as its beats tell.
struct Peer {
    heard: Instant,
    held: Vec<SessionId>,
    /// Whether it was asked since it was last heard.
    is_asked: bool,
}

impl Peer {
    fn new() -> Self {
        Self {
            heard: Instant::now(),
            held: Vec::new(),
            is_asked: false,
        }
    }
}

/// All other harnesses that live.
type Peers = HashMap<Incarnation, Peer>;

/// Listens to the other harnesses and rings for the sessions of one that falls silent. One that is late is asked first: that
/// nobody listens any more is known at once.
pub(super) async fn watch(harness: &Harness) {
    let mut beats = match harness.mesh.subscribe("own.beat.*".to_owned()).await {
        Ok(beats) => beats,
        Err(error) => {
            tracing::error!(error = %teamster_telemetry::chain(&error), "this harness cannot hear its peers");
            return;
        }
    };
    let mut peers = known_peers(harness);
    let mut asked = FuturesUnordered::new();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            beat = beats.next() => {
                let Some(beat) = beat else { return };
                note(&mut peers, harness.mesh.incarnation(), &beat.body);
            }
            Some((peer, is_gone)) = asked.next(), if !asked.is_empty() => if is_gone {
                ring_for(harness, &mut peers, &peer);
            },
            _ = ticks.tick() => {
                let patience = limits::BEAT_EVERY * (limits::BEATS_MISSED_MAX + 1);
                for peer in silent(&peers, patience) {
                    ring_for(harness, &mut peers, &peer);
                }
                for id in silent(&peers, limits::BEAT_EVERY * 3 / 2) {
                    if let Some(peer) = peers.get_mut(&id).filter(|peer| !peer.is_asked) {
                        peer.is_asked = true;
                        asked.push(ask_whether_gone(harness, id));
                    }
                }
            }
        }
    }
}

/// The harnesses that are registered: one that dies before its first beat is heard is missed all the same.
fn known_peers(harness: &Harness) -> Peers {
    let mesh = &harness.mesh;
    let catalog = harness.registry.catalog();
    let workers = catalog.workers.iter();
    workers
        .filter(|worker| worker.name == *mesh.worker() && worker.incarnation != *mesh.incarnation())
        .map(|worker| (worker.incarnation.clone(), Peer::new()))
        .collect()
}

fn note(peers: &mut Peers, me: &Incarnation, body: &[u8]) {
    let Ok(beat) = serde_json::from_slice::<Beat>(body) else {
        return;
    };
    if beat.incarnation == *me {
        return;
    }
    let peer = peers.entry(beat.incarnation).or_insert_with(Peer::new);
    peer.heard = Instant::now();
    peer.is_asked = false;
    if let Some(news) = beat.held {
        peer.held = news;
    }
}

fn silent(peers: &Peers, patience: Duration) -> Vec<Incarnation> {
    let silent = peers
        .iter()
        .filter(|(_, peer)| peer.heard.elapsed() > patience);
    silent.map(|(id, _)| id.clone()).collect()
}

/// Asks a peer anything at all; whether there is nobody who could answer.
async fn ask_whether_gone(harness: &Harness, peer: Incarnation) -> (Incarnation, bool) {
    let asked = harness
        .mesh
        .request(subject::own(&peer), bytes::Bytes::new(), limits::OWN_ASK)
        .await;
    let is_gone = matches!(asked, Err(teamster_mesh::Error::NoResponders { .. }));
    (peer, is_gone)
}

/// Rings for the sessions of a peer that is gone, and for those that nobody else holds: it may have taken one since it last
/// said what it held.
fn ring_for(harness: &Harness, peers: &mut Peers, id: &Incarnation) {
    let Some(gone) = peers.remove(id) else { return };
    tracing::info!(peer = %id, sessions = gone.held.len(), "a harness fell silent; its sessions are looked at");
    let held: HashSet<SessionId> = peers.values().flat_map(|peer| peer.held.clone()).collect();
    let (harness, reason, gone_id) = (harness.clone(), format!("silent-{id}"), id.clone());
    teamster_telemetry::task::spawn("rings for a silent harness", async move {
        for session in &gone.held {
            kick(&harness.mesh, session, &reason).await;
        }
        let is_served = |session: &SessionId| held.contains(session) || gone.held.contains(session);
        sweep::ring(&harness, &reason, is_served).await;
        sweep::orphans(&harness, &reason, |owner| *owner == gone_id).await;
    });
}

/// Rings a session's bell; a bell that cannot be rung is left to the sweeper.
pub(super) async fn kick(mesh: &Mesh, session: &SessionId, reason: &str) {
    if let Err(error) = mesh.lanes().kick(session, reason).await {
        tracing::warn!(%session, error = %teamster_telemetry::chain(&error), "a session's bell could not be rung");
    }
}
