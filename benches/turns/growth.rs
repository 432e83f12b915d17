//! H4 and H5: one session of many turns: what it stores by byte of its messages, and what a late turn costs beside an early one,
//! the model's own share taken off.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use teamster_mesh::Mesh;
use teamster_protocol::{Commit, Event, Message, limits, message::Content};
use teamster_testkit::wait;

use crate::{
    model,
    rig::{LIMIT, session},
    stats::{Latency, ms, percentile},
    turns::Arena,
};

/// Turns of the session.
const TURNS: usize = 200;
/// Turns of which an early and a late share are taken, the first one left out.
const SHARE: usize = 10;
/// The session.
const NAME: &str = "growth";

/// What a long session came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Growth {
    /// Turns.
    pub(crate) turns: usize,
    /// Bytes of the texts: messages, arguments, results.
    pub(crate) raw: usize,
    /// Bytes of the commits.
    pub(crate) commits: usize,
    /// Bytes that each stream gained, once they rest, by its name.
    pub(crate) streams: BTreeMap<String, u64>,
    /// Bytes of an early turn's commits.
    pub(crate) early_bytes: f64,
    /// Bytes of a late turn's commits.
    pub(crate) late_bytes: f64,
    /// An early turn, in milliseconds.
    pub(crate) early: f64,
    /// A late turn, in milliseconds.
    pub(crate) late: f64,
    /// The two model requests of an early turn alone, in milliseconds.
    pub(crate) early_model: f64,
    /// The two model requests of a late turn alone, in milliseconds.
    pub(crate) late_model: f64,
}

impl Growth {
    /// Bytes that all streams gained.
    pub(crate) fn stored(&self) -> u64 {
        self.streams.values().sum()
    }

    /// A late turn's overhead by an early turn's.
    pub(crate) fn overhead(&self) -> f64 {
        (self.late - self.late_model) / (self.early - self.early_model).max(f64::EPSILON)
    }
}

/// Runs the session.
pub(crate) async fn run(arena: &Arena) -> Growth {
    arena.rig.rests().await;
    let message = model::message(1);
    let before = stored(&arena.rig.operator).await;
    let mut times = Vec::new();
    let (mut early_bodies, mut late_bodies) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let is_early = (1..=SHARE).contains(&turn);
        let is_late = turn >= TURNS - SHARE;
        if is_early || is_late {
            let _ = arena.rig.model.record(true);
        }
        times.push(arena.turn(NAME, &message).await.1);
        match (is_early, is_late) {
            (true, _) => early_bodies.extend(arena.rig.model.record(false)),
            (_, true) => late_bodies.extend(arena.rig.model.record(false)),
            _ => {}
        }
    }
    arena.rig.rests().await;
    let mut streams = settled(&arena.rig.operator).await;
    for (name, bytes) in &mut streams {
        *bytes = bytes.saturating_sub(before.get(name).copied().unwrap_or(0));
    }
    let commits = commits(&arena.rig.operator).await;
    let by_turn = by_turn(&commits);
    let middle = |times: &[Duration]| Latency::of(times.to_vec()).p50;
    let share = |sizes: &[usize]| sizes.iter().sum::<usize>() as f64 / SHARE as f64;
    Growth {
        turns: TURNS,
        raw: commits.iter().map(|(_, commit)| texts(commit)).sum(),
        commits: commits.iter().map(|(bytes, _)| bytes).sum(),
        streams,
        early_bytes: share(by_turn.get(1..=SHARE).unwrap_or_default()),
        late_bytes: share(by_turn.get(TURNS - SHARE..).unwrap_or_default()),
        early: middle(times.get(1..=SHARE).unwrap_or_default()),
        late: middle(times.get(TURNS - SHARE..).unwrap_or_default()),
        early_model: alone(arena, &early_bodies).await,
        late_model: alone(arena, &late_bodies).await,
    }
}

/// Two requests to the model with such bodies, without anything of ours: the median, in milliseconds.
async fn alone(arena: &Arena, bodies: &[Vec<u8>]) -> f64 {
    let mut http = arena.floor.client().await;
    let mut times = Vec::new();
    for _ in 0..3 {
        for pair in bodies.chunks(2) {
            let begun = Instant::now();
            for body in pair {
                arena.floor.ask(&mut http, body).await;
            }
            times.push(begun.elapsed());
        }
    }
    ms(percentile(&mut times, 50))
}

/// Bytes of each stream of the server that is ours.
async fn stored(mesh: &Mesh) -> BTreeMap<String, u64> {
    let answer = mesh
        .request(
            "$JS.API.STREAM.LIST".to_owned(),
            json!({}).to_string().into(),
            limits::BROKER_REQUEST,
        )
        .await
        .expect("the streams are listed");
    let list: Value = serde_json::from_slice(&answer).expect("JSON");
    let streams = list.pointer("/streams").and_then(Value::as_array);
    let entry = |stream: &Value| {
        let name = stream.pointer("/config/name")?.as_str()?;
        let bytes = stream.pointer("/state/bytes")?.as_u64()?;
        (!name.starts_with("FLOOR")).then(|| (name.to_owned(), bytes))
    };
    streams.into_iter().flatten().filter_map(entry).collect()
}

/// The same, once the last state that is due is copied: that follows the last turn within a second or two.
async fn settled(mesh: &Mesh) -> BTreeMap<String, u64> {
    let session = session(NAME);
    let tail = mesh.log().tail(&session).await.expect("a tail");
    let last = Commit::decode(&tail.expect("a commit").body).expect("a commit");
    let due = last.n / limits::SNAPSHOT_COMMITS * limits::SNAPSHOT_COMMITS;
    wait::until(LIMIT, "the last state is copied", || async {
        let copied = mesh.snaps().get(&session).await.expect("a snapshot");
        copied.is_some_and(|copied| copied.mark.n >= due)
    })
    .await;
    stored(mesh).await
}

async fn commits(mesh: &Mesh) -> Vec<(usize, Commit)> {
    let (log, session) = (mesh.log(), session(NAME));
    let tail = log.tail(&session).await.expect("a tail").expect("a commit");
    let stored = log.read(&session, 0, tail.seq).await.expect("a log");
    stored
        .iter()
        .map(|stored| {
            let commit = Commit::decode(&stored.body).expect("a commit");
            (stored.body.len(), commit)
        })
        .collect()
}

/// Bytes of the commits of each turn.
fn by_turn(commits: &[(usize, Commit)]) -> Vec<usize> {
    let mut turns = Vec::new();
    for (bytes, commit) in commits {
        let begins = |event: &Event| matches!(event, Event::TurnStarted { .. });
        if commit.events.iter().any(begins) {
            turns.push(0);
        }
        if let Some(turn) = turns.last_mut() {
            *turn += bytes;
        }
    }
    turns
}

/// Bytes of what was said: the least that a transcript can be.
fn texts(commit: &Commit) -> usize {
    let of = |message: &Message| match message {
        Message::User { text, .. }
        | Message::Notice { text, .. }
        | Message::FunctionResult { text, .. }
        | Message::Custom { text, .. } => text.len(),
        Message::Assistant { content, .. } => content
            .iter()
            .map(|part| match part {
                Content::Text { text } | Content::Thinking { text, .. } => text.len(),
                Content::Call(call) => call.name.len() + call.arguments.len(),
            })
            .sum(),
    };
    commit
        .events
        .iter()
        .map(|event| match event {
            Event::MessageAdded { message, .. } => of(message),
            Event::GenerationFinished { message, .. } => message.as_ref().map_or(0, of),
            Event::CallFinished { text, .. } => text.len(),
            _ => 0,
        })
        .sum()
}
