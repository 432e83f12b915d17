//! Keeps the mesh there for whoever waits: one that ends by itself is shown that somebody waits, one that was killed is
//! started again, and one that cannot store for want of room is told.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use teamster_mesh::broker::room;
use teamster_protocol::SessionId;
use tokio::time::Instant;

use super::{exit::Exit, failure::Failure, reach};
use crate::client::Client;

/// How often a mesh that ends by itself is shown that somebody waits.
const SHOW_EVERY: Duration = Duration::from_mins(1);
/// How often it is checked whether the mesh was killed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How much longer a mesh that was started again may take to hold its directory.
const REVIVE_MAX: Duration = Duration::from_secs(10);

/// How long nothing may come before it is looked whether there is room to store anything.
const SILENCE: Duration = Duration::from_secs(5);
/// How long room is waited for.
const ROOM_MAX: Duration = Duration::from_mins(1);

/// Whether what is waited for can be stored at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Store {
    /// As far as is known.
    Fine,
    /// Something to say about it.
    Told(String),
    /// It could not for as long as anybody should wait.
    Full(Failure),
}

/// Looks after the mesh of a data directory.
pub(super) struct Keeper {
    /// The data directory whose mesh is started again if it is killed; `None` for a server of somebody else.
    data: Option<PathBuf>,
    shown_at: Instant,
    /// When the mesh was last looked at, or when it may be looked at again after it was started.
    looked_at: Instant,
    /// When something came last.
    heard_at: Instant,
    /// Since when there is no room.
    full_since: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(data: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            data,
            shown_at: now,
            looked_at: now,
            heard_at: now,
            full_since: None,
        }
    }

    /// Something came: what is waited for goes on.
    pub(super) fn heard(&mut self) {
        self.heard_at = Instant::now();
        self.full_since = None;
    }

    /// Whether it is want of room that nothing comes. A server whose disk is full says nothing at all.
    pub(super) fn store(&mut self) -> Store {
        let Some(data) = self
            .data
            .as_deref()
            .filter(|_| self.heard_at.elapsed() > SILENCE)
        else {
            return Store::Fine;
        };
        let is_full = room::is_full(data);
        match self.full_since {
            None if is_full => {
                self.full_since = Some(Instant::now());
                Store::Told(format!(
                    "the disk of {} is full: nothing can be stored, and the turn waits until there is room",
                    data.display()
                ))
            }
            Some(_) if !is_full => {
                self.full_since = None;
                Store::Told("there is room again; the turn goes on in a moment".to_owned())
            }
            Some(since) if since.elapsed() > ROOM_MAX => Store::Full(no_room(data)),
            _ => Store::Fine,
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

fn no_room(data: &Path) -> Failure {
    Failure::new(
        Exit::TryAgain,
        "mesh.no_space",
        format_args!(
            "the disk of {} is full, so nothing can be stored",
            data.display()
        ),
    )
    .hint("make room there; what was accepted is kept, and the turn goes on by itself")
}

/// What is said before a command works with a mesh that cannot store.
pub(super) fn warning(data: &Path) -> Option<String> {
    room::is_full(data).then(|| {
        format!(
            "warning: the disk of {} is full: nothing new can be stored until there is room",
            data.display()
        )
    })
}
