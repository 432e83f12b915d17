//! The product's own broker for one test: generated credentials and permissions, and a supervisor that can be crashed.

use std::path::PathBuf;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use teamster_mesh::broker::{Broker, DataDir, Options, running};

use crate::guard::Guard;

/// A broker in a data directory of its own. Dropping it kills the server and removes the directory.
#[derive(Debug)]
pub struct Secured {
    data: DataDir,
    broker: Option<Broker>,
    _guard: Guard,
    _dir: tempfile::TempDir,
}

impl Secured {
    /// Starts a broker in a new data directory.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let data = DataDir::open(dir.path()).expect("a data directory");
        let guard = Guard::of_record(&data.root().join("nats/server.json"));
        let mut secured = Self {
            data,
            broker: None,
            _guard: guard,
            _dir: dir,
        };
        secured.start_again().await;
        secured
    }

    /// Starts a broker where one was stopped or crashed.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_again(&mut self) {
        match Broker::start(&self.data, Options::default()).await {
            Ok(broker) => self.broker = Some(broker),
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        }
    }

    /// The running broker.
    ///
    /// # Panics
    /// When it is stopped or crashed.
    pub fn broker(&self) -> &Broker {
        self.broker.as_ref().expect("the broker runs")
    }

    /// The data directory.
    pub fn data(&self) -> &DataDir {
        &self.data
    }

    /// The address for clients.
    ///
    /// # Panics
    /// When it is stopped or crashed.
    pub fn url(&self) -> String {
        self.broker().url()
    }

    /// Where `<user>.creds` lie.
    pub fn credentials(&self) -> PathBuf {
        self.data.credentials()
    }

    /// Ends the supervision as a SIGKILL of `up` would: the server is left running.
    pub fn crash(&mut self) {
        self.broker = None;
    }

    /// Ends broker and server in order.
    ///
    /// # Panics
    /// When it is stopped or crashed already.
    pub async fn stop(&mut self) {
        self.broker.take().expect("the broker runs").stop().await;
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.broker = None; // or it would start the server again
        if let Some(running) = running(&self.data)
            && let Ok(pid) = i32::try_from(running.pid)
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
