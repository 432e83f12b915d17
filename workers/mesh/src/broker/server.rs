//! One nats-server process: started, found again, ended.
//!
//! The server holds the lock of its store for as long as it lives: the locked file is its standard input. So two servers
//! never use one store, whoever was killed at whatever instant, and a server that nobody wrote down is found by that file.

use std::{
    fs::{self, TryLockError},
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde::Deserialize;
use teamster_protocol::{Digest, text};
use tokio::{
    process::Child,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    data::{DataDir, open_lock},
    error::{Error, io},
    grant,
    health::Settings,
    identity::{Identity, readers_of},
    record::Record,
};
use crate::{credential, permission};

/// How long a server may take to become ready; recovering a large store takes its time.
const READY_LIMIT: Duration = Duration::from_mins(2);
/// How long a server may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How long one is given that did not even answer.
const END_LIMIT_SILENT: Duration = Duration::from_secs(2);
/// How long the system may take to clear away a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How often a state is looked at that nobody announces.
const POLL: Duration = Duration::from_millis(20);
/// How often a process is looked at that is no child of ours.
const WATCH: Duration = Duration::from_millis(100);
/// Bytes of the server's last words that an error quotes.
const QUOTE_BYTES_MAX: usize = 600;

/// What a server is started from.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) data: DataDir,
    pub(crate) binary: PathBuf,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) port: u16,
    /// Its process.
    pub(crate) identity: Identity,
    /// `None`: a process that another `up` started.
    child: Option<Child>,
}

impl Server {
    /// Waits for its end. Cancel-safe.
    pub(crate) async fn ended(&mut self) {
        if let Some(child) = &mut self.child
            && child.wait().await.is_ok()
        {
            return;
        }
        while self.identity.is_alive() {
            sleep(WATCH).await;
        }
    }

    /// Ends it: politely, and by force where that does not help in time.
    pub(crate) async fn end(self) {
        self.end_within(END_LIMIT).await;
    }

    async fn end_within(mut self, patience: Duration) {
        self.identity.signal(Signal::SIGTERM);
        if tokio::time::timeout(patience, self.ended()).await.is_err() {
            tracing::warn!(
                pid = self.identity.pid,
                "nats-server does not end; killing it"
            );
            self.identity.signal(Signal::SIGKILL);
            let _ = tokio::time::timeout(KILL_LIMIT, self.ended()).await;
        }
    }
}

/// The server's program with the environment that it runs in: its garbage is collected at half of what lives, not at as much
/// again, unless `GOGC` says otherwise. A thousand sessions need a quarter less memory that way.
pub fn command(binary: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(binary);
    if std::env::var_os("GOGC").is_none() {
        command.env("GOGC", "50");
    }
    command
}

impl Plan {
    /// The credentials of the server's system account.
    pub(crate) fn system(&self) -> PathBuf {
        credential::file(&self.data.credentials(), permission::SYSTEM)
    }

    /// The server that a killed `up` left running, if it is exactly what would be started now. Any other one that uses the
    /// store is ended.
    pub(crate) async fn adopt(&self) -> Result<Option<Server>, Error> {
        let record = Record::load(&self.data);
        if let Some(record) = record
            && let Some(identity) = record.process.filter(Identity::is_alive)
        {
            let server = Server {
                port: record.port,
                identity,
                child: None,
            };
            let why_not = if record.config == grant::config(&self.data)?.digest() {
                self.verify(record.port).await.err()
            } else {
                Some(Error::Unfit {
                    reason: "it was started with other settings".to_owned(),
                })
            };
            let Some(why_not) = why_not else {
                return Ok(Some(server));
            };
            tracing::warn!(
                pid = server.identity.pid,
                reason = %why_not,
                "ending a nats-server that was left running"
            );
            let is_silent = matches!(why_not, Error::Ask(_));
            let patience = if is_silent {
                END_LIMIT_SILENT
            } else {
                END_LIMIT
            };
            server.end_within(patience).await;
        }
        self.end_orphans().await?;
        Ok(None)
    }

    /// Starts a server on `port`, or on a free one, and waits until it is ready and proven fit. It is ended
    /// where it is not, or where `end` is cancelled first.
    pub(crate) async fn launch(
        &self,
        port: Option<u16>,
        end: &CancellationToken,
    ) -> Result<Server, Error> {
        let nats = self.data.nats();
        let lock = self.lock_store().await?;
        clear_ports(&nats);
        // Read anew at each start: workers from outside come and go.
        let config = grant::config(&self.data)?;
        let file = grant::write_config(&self.data, &config, port)?;
        let words = nats.join("start.log");
        let output = fs::File::create(&words).map_err(io("opening the server's output"))?;
        let mut command = command(&self.binary);
        command
            .arg("-c")
            .arg(&file)
            .current_dir(&nats)
            .stdin(Stdio::from(lock))
            .stdout(Stdio::null())
            .stderr(Stdio::from(output))
            .process_group(0); // a Ctrl-C in the terminal is for `up` alone
        let child = tokio::process::Command::from(command)
            .spawn()
            .map_err(io(format!("starting {}", self.binary.display())))?;
        let pid = child.id().unwrap_or_default();
        let identity = Identity::of(pid).ok_or_else(|| self.last_words())?;
        let mut server = Server {
            port: port.unwrap_or_default(),
            identity,
            child: Some(child),
        };
        let ready = tokio::select! {
            ready = self.wait_until_ready(&mut server, config.digest()) => ready,
            () = end.cancelled() => Err(Error::Cancelled),
        };
        match ready {
            Ok(()) => Ok(server),
            Err(error) => {
                server.end().await;
                Err(error)
            }
        }
    }

    /// The port of the last run, if nobody else took it meanwhile.
    pub(crate) fn remembered_port(&self) -> Option<u16> {
        let port = Record::load(&self.data)?.port;
        (port != 0 && TcpListener::bind(("127.0.0.1", port)).is_ok()).then_some(port)
    }

    /// Writes down that a server has ended in order, and where it ran.
    pub(crate) fn record_end(&self, port: u16) -> Result<(), Error> {
        self.record(&Record {
            process: None,
            port,
            config: Digest::ZERO,
        })
    }

    fn record(&self, record: &Record) -> Result<(), Error> {
        let _lock = grant::lock(&self.data)?;
        record.store(&self.data)
    }

    /// Whether the server on `port` is ours and fit.
    pub(crate) async fn verify(&self, port: u16) -> Result<(), Error> {
        Settings::ask(&super::url(port), &self.system())
            .await?
            .check(&self.data.nats())
    }

    /// `config` is the digest of what the server was started with.
    async fn wait_until_ready(&self, server: &mut Server, config: Digest) -> Result<(), Error> {
        let ports = self
            .data
            .nats()
            .join(format!("nats-server_{}.ports", server.identity.pid));
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            if !server.identity.is_alive() {
                return Err(self.last_words());
            }
            if let Some(port) = read_port(&ports) {
                server.port = port;
                break;
            }
            if Instant::now() >= deadline {
                return Err(Error::NotReady { limit: READY_LIMIT });
            }
            sleep(POLL).await;
        }
        // Written before the server is asked: a process that is killed here leaves one that can be adopted.
        self.record(&Record {
            process: Some(server.identity.clone()),
            port: server.port,
            config,
        })?;
        loop {
            match self.verify(server.port).await {
                Err(Error::Ask(_)) if server.identity.is_alive() && Instant::now() < deadline => {
                    sleep(POLL).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// The lock of the store. A server that is just ending is waited for.
    async fn lock_store(&self) -> Result<fs::File, Error> {
        let path = self.data.server_lock();
        let action = || format!("locking {}", path.display());
        let file = open_lock(&path).map_err(io(action()))?;
        let deadline = Instant::now() + KILL_LIMIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(source)) => return Err(io(action())(source)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(Error::Orphan { path });
                }
                Err(TryLockError::WouldBlock) => sleep(POLL).await,
            }
        }
    }

    /// Ends servers that use the store and that nobody wrote down: their `up` was killed between the two.
    async fn end_orphans(&self) -> Result<(), Error> {
        let path = self.data.server_lock();
        let file = open_lock(&path).map_err(io(format!("opening {}", path.display())))?;
        if file.try_lock().is_ok() {
            return Ok(()); // closing the file gives the lock back
        }
        for identity in readers_of(&path) {
            tracing::warn!(
                pid = identity.pid,
                "ending a nats-server that nobody wrote down"
            );
            let server = Server {
                port: 0,
                identity,
                child: None,
            };
            server.end().await;
        }
        Ok(())
    }

    /// Why a server ended at its start, from its own words.
    fn last_words(&self) -> Error {
        let read = |path: PathBuf| fs::read(path).unwrap_or_default();
        let mut words = read(self.data.nats().join("start.log"));
        if words.is_empty() {
            words = read(self.data.log().join("nats-server.log"));
        }
        let words = String::from_utf8_lossy(&words);
        let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        Error::Ended {
            output: text::tail(&line, QUOTE_BYTES_MAX).to_owned(),
        }
    }
}

/// The client port in the file that a server writes when it listens.
fn read_port(path: &Path) -> Option<u16> {
    #[derive(Deserialize)]
    struct Ports {
        nats: Vec<String>,
    }
    let ports: Ports = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    ports.nats.first()?.rsplit(':').next()?.parse().ok()
}

/// Removes what killed servers left, so that a process id that comes again is not taken for one of them.
fn clear_ports(nats: &Path) {
    let Ok(entries) = fs::read_dir(nats) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.path().extension().is_some_and(|e| e == "ports") {
            let _ = fs::remove_file(entry.path());
        }
    }
}
