//! What one turn puts on the wire: messages by kind, and the sizes of what is stored and asked, from which the floor is made.

use std::collections::{BTreeMap, HashMap, HashSet};

use teamster_mesh::{Mesh, connection::Plain};
use teamster_protocol::Commit;

use crate::{
    model,
    rig::{Rig, send, session},
    stats::over,
    watch::Watch,
};

/// Turns that are looked at; the first ones are not.
const TURNS: usize = 24;
/// Turns before them, so that connections stand.
const WARM: usize = 8;

/// The sizes of one turn with one call, in bytes, each the median of some turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// The stored message.
    pub(crate) input: usize,
    /// The commits, in order.
    pub(crate) commits: Vec<usize>,
    /// Requests to workers with their replies, in order.
    pub(crate) hops: Vec<(usize, usize)>,
    /// Deltas, which nobody waits for.
    pub(crate) deltas: Vec<usize>,
    /// Bodies of the requests to the model.
    pub(crate) bodies: Vec<Vec<u8>>,
}

/// What a turn costs on the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census {
    /// Messages per turn by kind, deliveries to consumers left out.
    pub(crate) messages: BTreeMap<String, f64>,
    pub(crate) shape: Shape,
}

/// Looks at turns, one after the other.
pub(crate) async fn take(rig: &Rig, watch: &Watch) -> Census {
    let message = model::message(1);
    for turn in 0..WARM {
        run(rig, watch, &format!("warm-{turn}"), &message).await;
    }
    let mut shapes = Vec::new();
    let mut messages: BTreeMap<String, f64> = BTreeMap::new();
    for turn in 0..TURNS {
        let mut wire = rig
            .operator
            .subscribe(">".to_owned())
            .await
            .expect("subscribes");
        rig.operator.flush().await.expect("flushes");
        let _ = rig.model.record(true);
        run(rig, watch, &format!("census-{turn}"), &message).await;
        let bodies = rig.model.record(false);
        let seen = collect(&rig.operator, &mut wire).await;
        for plain in &seen {
            *messages.entry(kind(plain)).or_default() += 1.0 / TURNS as f64;
        }
        shapes.push(shape(&seen, bodies));
    }
    Census {
        messages,
        shape: middle(&shapes),
    }
}

async fn run(rig: &Rig, watch: &Watch, name: &str, message: &str) {
    let session = session(name);
    let end = watch.end_of(&session);
    send(&rig.operator, &session, message)
        .await
        .expect("accepted");
    end.await.expect("the turn ends");
}

/// Everything that came until now. What follows the end of a turn by itself (its acknowledgement) comes within the exchange
/// that marks the end of the collection.
async fn collect(mesh: &Mesh, wire: &mut teamster_mesh::connection::Subscription) -> Vec<Plain> {
    let mark = "bench.mark".to_owned();
    for _ in 0..64 {
        mesh.flush().await.expect("flushes");
    }
    mesh.publish(mark.clone(), bytes::Bytes::new())
        .await
        .expect("publishes");
    let mut seen = Vec::new();
    let mut own = HashSet::new();
    while let Some(plain) = wire.next().await {
        if plain.subject == mark {
            break;
        }
        // What looking at it causes does not count: the questions above with their answers, and the broker's notices.
        let is_question = plain.subject.starts_with("$JS.API.STREAM.INFO.");
        if is_question {
            own.extend(plain.reply);
        } else if !plain.subject.starts_with("$JS.EVENT.") && !own.contains(&plain.subject) {
            seen.push(plain);
        }
    }
    seen
}

/// The subject without what names one session, call or connection.
fn kind(plain: &Plain) -> String {
    if plain
        .reply
        .as_deref()
        .is_some_and(|reply| reply.starts_with("$JS.ACK."))
    {
        return "deliveries to readers of streams".to_owned();
    }
    let tokens: Vec<&str> = plain.subject.split('.').collect();
    let kept = match tokens.as_slice() {
        ["$JS", "API", "DIRECT" | "CONSUMER", ..] => 4,
        ["$JS", "API", ..] => 5,
        ["$JS", "ACK", ..] => 3,
        ["fn" | "op", ..] => tokens.len(),
        ["own", "beat", ..] | ["turn", ..] | ["gen", "run", ..] => 2,
        _ => 1,
    };
    tokens.get(..kept).unwrap_or(&tokens).join(".")
}

fn shape(seen: &[Plain], bodies: Vec<Vec<u8>>) -> Shape {
    let replies: HashMap<&str, usize> = seen
        .iter()
        .map(|plain| (plain.subject.as_str(), plain.body.len()))
        .collect();
    let is_call =
        |plain: &&Plain| plain.subject.starts_with("fn.") || plain.subject.starts_with("op.");
    let reply = |plain: &Plain| {
        plain
            .reply
            .as_deref()
            .and_then(|inbox| replies.get(inbox))
            .copied()
            .unwrap_or(0)
    };
    Shape {
        input: seen
            .iter()
            .find(|plain| plain.subject.starts_with("turn.in."))
            .map_or(0, |plain| plain.body.len()),
        commits: seen
            .iter()
            .filter(|plain| is_commit(plain))
            .map(|plain| plain.body.len())
            .collect(),
        hops: seen
            .iter()
            .filter(is_call)
            .map(|plain| (plain.body.len(), reply(plain)))
            .collect(),
        deltas: seen
            .iter()
            .filter(|plain| plain.subject.starts_with("live."))
            .map(|plain| plain.body.len())
            .collect(),
        bodies,
    }
}

/// A commit on its way to the log, not on its way to a reader.
fn is_commit(plain: &Plain) -> bool {
    plain.subject.starts_with("log.")
        && plain
            .reply
            .as_deref()
            .is_some_and(|reply| reply.starts_with("_INBOX."))
        && Commit::decode(&plain.body).is_ok()
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of messages are small whole numbers"
)]
fn middle(shapes: &[Shape]) -> Shape {
    let size = |figure: &dyn Fn(&Shape) -> Option<usize>| {
        over(shapes, |shape| figure(shape).unwrap_or(0) as f64) as usize
    };
    let first = shapes.first().cloned().unwrap_or_default();
    Shape {
        input: size(&|shape| Some(shape.input)),
        commits: (0..first.commits.len())
            .map(|at| size(&|shape| shape.commits.get(at).copied()))
            .collect(),
        hops: (0..first.hops.len())
            .map(|at| {
                let hop = |shape: &Shape| shape.hops.get(at).copied();
                (
                    size(&|shape| hop(shape).map(|hop| hop.0)),
                    size(&|shape| hop(shape).map(|hop| hop.1)),
                )
            })
            .collect(),
        deltas: first.deltas,
        bodies: first.bodies,
    }
}
