//! The embedded nats-server: found or fetched, configured, supervised.
//!
//! Owns: the server's executable, its generated configuration, its process and the data directory it works in. Invariants:
//! the server outlives the process that started it, unless that one ends in order; at most one server uses a store; a server
//! is used only after it has said itself that its acknowledgements mean the disk; a signal goes only to a process whose id
//! and start time are ours.
//!
//! Never: what is stored in its streams; that is the business of the other modules of this crate.

pub mod binary;
mod config;
pub mod data;
pub mod error;
pub mod grant;
mod health;
mod identity;
mod record;
pub mod room;
mod server;
pub mod store;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

pub use data::{DataDir, InstanceLock};
pub use error::Error;
pub use health::{Durability, check_durability};
pub use record::{Running, running};
pub use server::command;
use server::{Plan, Server};

/// The first and the longest pause before a server that ended is started again.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How the server is started.
#[derive(Clone, Default)]
pub struct Options {
    /// The executable; `None` looks for it as [`binary::Search::from_env`] says, and fetches it where there is none.
    pub binary: Option<PathBuf>,
    /// Is told in one line each what takes seconds; `None` writes it to the log.
    pub progress: Option<Progress>,
}

/// Takes one line about what takes time.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("binary", &self.binary)
            .finish_non_exhaustive()
    }
}

/// The supervised server. [`Broker::stop`] ends the server; dropping the handle ends only the supervision, as a crash would,
/// and the next [`Broker::start`] goes on with the server that is left.
#[derive(Debug)]
pub struct Broker {
    plan: Arc<Plan>,
    port: u16,
    was_adopted: bool,
    pid: watch::Receiver<Option<u32>>,
    end: CancellationToken,
    tasks: JoinSet<()>,
}

impl Broker {
    /// Starts the server of a data directory, or adopts the one that a killed process left running. The caller holds the
    /// directory's [`InstanceLock`]. Returns when the server is ready and has proven that its acknowledgements mean the disk.
    pub async fn start(data: &DataDir, options: Options) -> Result<Self, Error> {
        // Credentials and the list of workers from outside must be readable before anything is fetched or started.
        grant::config(data)?;
        let binary = if let Some(binary) = options.binary {
            binary
        } else {
            let log: Progress = Arc::new(|line| tracing::info!("{line}"));
            let progress = options.progress.unwrap_or(log);
            binary::locate(&binary::Search::from_env(), &*progress).await?
        };
        let plan = Arc::new(Plan {
            data: data.clone(),
            binary,
        });
        let end = CancellationToken::new();
        let adopted = plan.adopt().await?;
        let was_adopted = adopted.is_some();
        let server = match adopted {
            Some(server) => server,
            None => fresh(&plan, &end).await?,
        };
        let (pid, watched) = watch::channel(Some(server.identity.pid));
        let port = server.port;
        let mut tasks = JoinSet::new();
        tasks.spawn(supervise(Arc::clone(&plan), server, pid, end.clone()));
        Ok(Self {
            plan,
            port,
            was_adopted,
            pid: watched,
            end,
            tasks,
        })
    }

    /// Where clients connect. It stays the same for as long as this handle lives.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// Where `<user>.creds` lie.
    pub fn credentials_dir(&self) -> PathBuf {
        self.plan.data.credentials()
    }

    /// The server's process; `None` while it is being started again.
    pub fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// Whether the server is one that a killed process left running.
    pub fn was_adopted(&self) -> bool {
        self.was_adopted
    }

    /// Ends the server: politely, and by force where that does not help within seconds. What is acknowledged is kept.
    pub async fn stop(mut self) {
        self.end.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts a server where it ran last; on a free port where that one was taken.
async fn fresh(plan: &Plan, end: &CancellationToken) -> Result<Server, Error> {
    let port = plan.remembered_port();
    match plan.launch(port, end).await {
        // Somebody may have taken the port after it was tried.
        Err(Error::Ended { output }) if port.is_some() => {
            tracing::warn!(output, "nats-server did not start on its last port");
            plan.launch(None, end).await
        }
        outcome => outcome,
    }
}

/// Starts the server again whenever it ends, on the same port, until it is told to end it.
async fn supervise(
    plan: Arc<Plan>,
    mut server: Server,
    pid: watch::Sender<Option<u32>>,
    end: CancellationToken,
) {
    let port = server.port;
    let mut room = room::Room::default();
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => {
                server.end().await;
                if let Err(error) = plan.record_end(port) {
                    tracing::warn!(%error, "the server's end could not be written down");
                }
                return;
            }
            () = server.ended() => tracing::error!(
                pid = server.identity.pid,
                "nats-server ended; starting it again"
            ),
            () = room.is_back(plan.data.root()) => {
                tracing::warn!("the disk has room again; starting nats-server anew, so that it writes again");
                server.end().await;
            }
        }
        pid.send_replace(None);
        let Some(again) = relaunch(&plan, port, &end).await else {
            return;
        };
        tracing::info!(pid = again.identity.pid, "nats-server runs again");
        pid.send_replace(Some(again.identity.pid));
        server = again;
    }
}

/// Tries until a server runs on the same port, with growing pauses; `None` once it is told to end.
async fn relaunch(plan: &Plan, port: u16, end: &CancellationToken) -> Option<Server> {
    let mut pause = PAUSE;
    while !end.is_cancelled() {
        match plan.launch(Some(port), end).await {
            Ok(server) => return Some(server),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, source, "nats-server could not be started again");
            }
        }
        let _ = timeout(pause, end.cancelled()).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    None
}

/// The address of a server on this machine.
fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}
