//! H7: from the instant at which the model hands out its answer to the first piece of it at a client.

use std::time::{Duration, Instant};

use teamster_protocol::function::router::DeltaKind;
use teamster_testkit::wait;

use crate::{
    model,
    rig::{LIMIT, session},
    stats::Latency,
    turns::Arena,
};

/// Turns of one measurement.
const TURNS: usize = 200;

/// Turns whose first visible piece is waited for by a reader of the session's live deltas.
pub(crate) async fn run(arena: &Arena) -> Latency {
    let message = model::message(0);
    let mut times = Vec::new();
    for turn in 0..TURNS {
        let name = format!("stream-{turn}-{}", arena.name());
        let live = arena.rig.operator.live();
        let mut deltas = live
            .follow_new(&session(&name))
            .await
            .expect("the deltas can be read");
        let (seen, ended) = tokio::join!(
            wait::within(LIMIT, "a first piece", async {
                while let Some(delta) = deltas.next().await {
                    if matches!(delta.delta, DeltaKind::Text { .. }) {
                        return Instant::now();
                    }
                }
                Instant::now()
            }),
            arena.turn(&name, &message)
        );
        let _ = ended;
        let said = arena.rig.model.last_answer();
        times.push(said.map_or(Duration::ZERO, |said| seen.saturating_duration_since(said)));
    }
    Latency::of(times)
}
