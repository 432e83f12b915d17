//! Which harness processes live: those whose heartbeats are heard.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde::Deserialize;
use teamster_protocol::{id::Incarnation, limits};

use super::{Client, Error};

/// How long is listened for processes that are not heard.
const LISTEN: Duration = Duration::from_millis(1200);

/// What of a heartbeat is read.
#[derive(Deserialize)]
struct Beat {
    incarnation: Incarnation,
}

impl Client {
    /// The harness processes that are heard, until all that are wanted have been: at most 1.2 s, twelve beats. Nothing is listened
    /// for where none is wanted.
    pub async fn living(
        &self,
        wanted: &BTreeSet<Incarnation>,
    ) -> Result<BTreeSet<Incarnation>, Error> {
        const { assert!(LISTEN.as_millis() > 3 * limits::BEAT_EVERY.as_millis()) };
        let mut heard = BTreeSet::new();
        if wanted.is_empty() {
            return Ok(heard);
        }
        let beats = self.mesh().subscribe("own.beat.*".to_owned()).await;
        let mut beats = beats.map_err(Error::Mesh)?;
        let until = Instant::now() + LISTEN;
        while !wanted.is_subset(&heard) {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, beats.next()).await {
                Ok(Some(message)) => {
                    if let Ok(beat) = serde_json::from_slice::<Beat>(&message.body) {
                        heard.insert(beat.incarnation);
                    }
                }
                Ok(None) | Err(_) => break,
            }
        }
        Ok(heard)
    }
}
