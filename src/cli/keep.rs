//! Keeps the mesh there for whoever waits: one that ends by itself is shown that somebody waits, one that was killed is
//! started again.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use teamster_protocol::SessionId;
use tokio::time::Instant;

use super::reach;
use crate::client::Client;

/// How often a mesh that ends by itself is shown that somebody waits.
const SHOW_EVERY: Duration = Duration::from_mins(1);
/// How often it is checked whether the mesh was killed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How much longer a mesh that was started again may take to hold its directory.
const REVIVE_MAX: Duration = Duration::from_secs(10);

/// Looks after the mesh of a data directory.
pub(super) struct Keeper {
    /// The data directory whose mesh is started again if it is killed; `None` for a server of somebody else.
    data: Option<PathBuf>,
    shown_at: Instant,
    /// When the mesh was last looked at, or when it may be looked at again after it was started.
    looked_at: Instant,
}

impl Keeper {
    pub(super) fn new(data: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            data,
            shown_at: now,
            looked_at: now,
        }
    }

    /// The data directory; `None` for a server of somebody else.
    pub(super) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// Does what is due; to be called often. What there is to tell.
    pub(super) fn look(&mut self, client: &Client, session: &SessionId) -> Vec<String> {
        if self.shown_at.elapsed() > SHOW_EVERY {
            self.shown_at = Instant::now();
            let (client, session) = (client.clone(), session.clone());
            teamster_telemetry::task::spawn("presence", async move {
                // Whatever it answers, the question counts as work for the mesh.
                let _ = client.status(&session).await;
            });
        }
        self.revive()
    }

    /// A mesh that was killed takes the turn up again only when somebody starts it; whoever waits for the turn does. One that
    /// was told to end is left alone.
    fn revive(&mut self) -> Vec<String> {
        let Some(data) = self
            .data
            .as_ref()
            .filter(|_| Instant::now() > self.looked_at + LOOK_EVERY)
        else {
            return Vec::new();
        };
        self.looked_at = Instant::now();
        if !reach::was_killed(data) {
            return Vec::new();
        }
        self.looked_at += REVIVE_MAX;
        let mut told = vec!["the mesh was killed; starting it again in the background".to_owned()];
        if let Err(failure) = reach::revive(data) {
            told.push(failure.to_string());
        }
        told
    }
}
