//! A real nats-server for one test: its own process, port and store.

use std::{
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use teamster_mesh::broker::{
    self,
    binary::{Search, locate},
};

use crate::{process::Process, wait};

/// How long a server may take to come up on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How a server is started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether each write is flushed before it is acknowledged, as the product's own broker does.
    pub always: bool,
}

/// A running server without authorization, `JetStream` in a folder of its own. Dropping it kills it and removes the folder.
#[derive(Debug)]
pub struct Nats {
    dir: tempfile::TempDir,
    binary: PathBuf,
    port: u16,
    process: Option<Process>,
}

impl Nats {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// When there is no nats-server, or it does not come up.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts a server on a free port, with options.
    ///
    /// # Panics
    /// When there is no nats-server, or it does not come up.
    pub async fn start_with(options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let sync = if options.always {
            "sync_interval: always"
        } else {
            ""
        };
        let config = format!(
            "listen: \"127.0.0.1:-1\"\nports_file_dir: \"{ports}\"\nmax_payload: {payload}\njetstream {{ store_dir: \"{store}\"\n max_file_store: 4GB\n max_memory_store: 1GB\n {sync} }}\n",
            ports = dir.path().display(),
            store = dir.path().join("store").display(),
            payload = teamster_protocol::limits::PAYLOAD_BYTES_MAX,
        );
        std::fs::write(dir.path().join("first.conf"), &config).expect("a configuration");
        let mut nats = Self {
            binary: server().await,
            dir,
            port: 0,
            process: None,
        };
        nats.spawn("first.conf");
        nats.port = nats.read_port().await;
        let fixed = config.replace("127.0.0.1:-1", &format!("127.0.0.1:{}", nats.port));
        std::fs::write(nats.dir.path().join("again.conf"), fixed).expect("a configuration");
        nats.wait_until_up().await;
        nats
    }

    /// The address for clients.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The address as `host:port`, for a [`crate::proxy::Proxy`].
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The server's process id.
    ///
    /// # Panics
    /// When it is killed.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server runs").pid()
    }

    /// Where the streams are stored.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Kills the server with SIGKILL and waits for its end. What it stored stays.
    ///
    /// # Panics
    /// When it is killed already.
    pub async fn kill(&mut self) {
        let mut process = self.process.take().expect("the server runs");
        process.kill();
        process.ended(START_LIMIT).await;
    }

    /// Stops the server in good order and waits for its end: it writes down what its streams hold.
    ///
    /// # Panics
    /// When it is not running.
    pub async fn stop(&mut self) {
        let mut process = self.process.take().expect("the server runs");
        process.interrupt();
        process.ended(START_LIMIT).await;
    }

    /// Flips a byte of a stored message while the server does not run.
    ///
    /// # Panics
    /// When the server runs, or the stream holds no such message.
    pub fn damage(&self, stream: &str, seq: u64) {
        assert!(self.process.is_none(), "the server is stopped first");
        crate::blocks::damage(&self.store(), stream, seq);
    }

    /// Flips a byte of the last stored message of a subject while the server does not run.
    ///
    /// # Panics
    /// When the server runs, or the stream holds no such message.
    pub fn damage_last(&self, stream: &str, subject: &str) {
        assert!(self.process.is_none(), "the server is stopped first");
        crate::blocks::damage_last(&self.store(), stream, subject);
    }

    /// Starts the server again, on the same port and store; kills it first if it runs.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        if self.process.is_some() {
            self.kill().await;
        }
        self.spawn("again.conf");
        self.wait_until_up().await;
    }

    /// Stops the server's process (SIGSTOP): connections stay, nothing moves.
    ///
    /// # Panics
    /// When it is killed.
    pub fn pause(&self) {
        self.process.as_ref().expect("the server runs").pause();
    }

    /// Lets a paused server go on (SIGCONT).
    ///
    /// # Panics
    /// When it is killed.
    pub fn resume(&self) {
        self.process.as_ref().expect("the server runs").resume();
    }

    /// What the server wrote to its log.
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("nats.log")).unwrap_or_default()
    }

    fn spawn(&mut self, config: &str) {
        let mut command = broker::command(&self.binary);
        command.arg("-c").arg(self.dir.path().join(config));
        self.process = Some(Process::spawn(command, &self.dir.path().join("nats.log")));
    }

    async fn read_port(&self) -> u16 {
        let file = format!("nats-server_{}.ports", self.pid());
        let path = self.dir.path().join(file);
        wait::some(START_LIMIT, "nats-server says its port", || async {
            read_port(&path)
        })
        .await
    }

    async fn wait_until_up(&mut self) {
        let address = self.address();
        wait::until(START_LIMIT, "nats-server takes connections", || {
            let is_up = TcpStream::connect(&address).is_ok();
            async move { is_up }
        })
        .await;
    }
}

/// The server's executable, fetched when there is none.
///
/// # Panics
/// When there is none and it cannot be fetched.
pub async fn server() -> PathBuf {
    match locate(&Search::from_env(), &|_| {}).await {
        Ok(path) => path,
        Err(error) => panic!("{error}"),
    }
}

/// The first client port in a ports file, once it is written whole.
fn read_port(path: &Path) -> Option<u16> {
    #[derive(serde::Deserialize)]
    struct Ports {
        nats: Vec<String>,
    }
    let ports: Ports = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    ports.nats.first()?.rsplit(':').next()?.parse().ok()
}
