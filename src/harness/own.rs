//! What harnesses say to each other: that they live, what they hold, and whether they will look.
//!
//! All of it serves liveness alone. Whoever believes wrongly is refused by the log.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use teamster_mesh::Mesh;
use teamster_protocol::{SessionId, commit::Bell, id::Incarnation, limits, subject};
use tokio::time::MissedTickBehavior;

use super::shared::Harness;

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

/// Listens to the other harnesses and rings for the sessions of one that falls silent.
pub(super) async fn watch(harness: &Harness) {
    let mut beats = match harness.mesh.subscribe("own.beat.*".to_owned()).await {
        Ok(beats) => beats,
        Err(error) => {
            tracing::error!(error = %teamster_telemetry::chain(&error), "this harness cannot hear its peers");
            return;
        }
    };
    let mut peers: HashMap<Incarnation, (Instant, Vec<SessionId>)> = HashMap::new();
    let mut ticks = tokio::time::interval(limits::BEAT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            beat = beats.next() => {
                let Some(beat) = beat else { return };
                note(&mut peers, harness.mesh.incarnation(), &beat.body);
            }
            _ = ticks.tick() => ring_for_silent(harness, &mut peers).await,
        }
    }
}

fn note(
    peers: &mut HashMap<Incarnation, (Instant, Vec<SessionId>)>,
    me: &Incarnation,
    body: &[u8],
) {
    let Ok(beat) = serde_json::from_slice::<Beat>(body) else {
        return;
    };
    if beat.incarnation == *me {
        return;
    }
    let (heard, held) = peers
        .entry(beat.incarnation)
        .or_insert_with(|| (Instant::now(), Vec::new()));
    *heard = Instant::now();
    if let Some(news) = beat.held {
        *held = news;
    }
}

async fn ring_for_silent(
    harness: &Harness,
    peers: &mut HashMap<Incarnation, (Instant, Vec<SessionId>)>,
) {
    let patience: Duration = limits::BEAT_EVERY * (limits::BEATS_MISSED_MAX + 1);
    let silent: Vec<Incarnation> = peers
        .iter()
        .filter(|(_, (heard, _))| heard.elapsed() > patience)
        .map(|(peer, _)| peer.clone())
        .collect();
    for peer in silent {
        let Some((_, held)) = peers.remove(&peer) else {
            continue;
        };
        if !held.is_empty() {
            tracing::info!(%peer, sessions = held.len(), "a harness fell silent; its sessions are looked at");
        }
        for session in held {
            kick(&harness.mesh, &session, &format!("silent-{peer}")).await;
        }
    }
}

/// Rings a session's bell; a bell that cannot be rung is left to the sweeper.
pub(super) async fn kick(mesh: &Mesh, session: &SessionId, reason: &str) {
    if let Err(error) = mesh.lanes().kick(session, reason).await {
        tracing::warn!(%session, error = %teamster_telemetry::chain(&error), "a session's bell could not be rung");
    }
}
