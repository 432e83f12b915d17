//! Three real nats-servers that keep streams together, by a configuration that the test gives: each a process of its own with its
//! own port and store.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

use crate::{nats::server, process::Process, wait};

/// How long the servers may take to come up and to find each other on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(2);
/// The names of the servers.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// What protects the routes between them.
const PASSWORD: &str = "routes2only4this8test";

/// The running servers. Dropping it kills them and removes their stores.
#[derive(Debug)]
pub struct Cluster {
    dir: tempfile::TempDir,
    binary: std::path::PathBuf,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    name: &'static str,
    port: u16,
    route: u16,
    process: Option<Process>,
}

impl Cluster {
    /// Starts three servers with the configuration file `config`, which includes `accounts.conf` beside it: its text is
    /// `accounts`. Returns when they have elected a leader.
    ///
    /// # Panics
    /// When there is no nats-server, or they do not come up.
    pub async fn start(config: &Path, accounts: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::copy(config, dir.path().join("cluster.conf")).expect("a configuration");
        std::fs::write(dir.path().join("accounts.conf"), accounts).expect("accounts");
        let ports = free_ports();
        let nodes = NAMES
            .into_iter()
            .zip(ports.chunks(2))
            .map(|(name, ports)| Node {
                name,
                port: *ports.first().expect("two ports"),
                route: *ports.last().expect("two ports"),
                process: None,
            })
            .collect();
        let mut cluster = Self {
            dir,
            binary: server().await,
            nodes,
        };
        for index in 0..NAMES.len() {
            cluster.spawn(index);
        }
        cluster.wait_until_up().await;
        wait::until(START_LIMIT, "the servers elect a leader", || async {
            (0..NAMES.len()).any(|index| {
                cluster
                    .output(index)
                    .contains("cluster new metadata leader")
            })
        })
        .await;
        cluster
    }

    /// The addresses for clients, comma-separated.
    pub fn url(&self) -> String {
        let urls: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("nats://127.0.0.1:{}", node.port))
            .collect();
        urls.join(",")
    }

    /// The server that says last that it leads a stream.
    ///
    /// # Panics
    /// When none says so in time.
    pub async fn leader_of(&self, stream: &str) -> usize {
        let words = format!("new stream leader for 'TEAMSTER > {stream}'");
        wait::some(START_LIMIT, &words, || async {
            let said = |index| {
                let output = self.output(index);
                let last = output.lines().rfind(|line| line.contains(&words))?;
                // `[pid] date time [INF] ...`; dates and times are in order as texts.
                let at = last
                    .split(' ')
                    .skip(1)
                    .take(2)
                    .collect::<Vec<_>>()
                    .join(" ");
                Some((at, index))
            };
            (0..NAMES.len())
                .filter_map(said)
                .max()
                .map(|(_, index)| index)
        })
        .await
    }

    /// Kills a server with SIGKILL and waits for its end. What it stored stays.
    ///
    /// # Panics
    /// When it is killed already.
    pub async fn kill(&mut self, index: usize) {
        let node = self.nodes.get_mut(index).expect("three servers");
        let mut process = node.process.take().expect("the server runs");
        process.kill();
        process.ended(START_LIMIT).await;
    }

    /// Starts a killed server again, on its ports and store.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self, index: usize) {
        self.spawn(index);
        self.wait_until_up().await;
    }

    /// What a server wrote to its log.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn output(&self, index: usize) -> String {
        let name = NAMES.get(index).expect("three servers");
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    fn spawn(&mut self, index: usize) {
        let routes: Vec<(String, String)> = self
            .nodes
            .iter()
            .map(|node| {
                let variable = format!("NATS_ROUTE_{}", node.name.to_uppercase());
                let address = format!("nats-route://route:{PASSWORD}@127.0.0.1:{}", node.route);
                (variable, address)
            })
            .collect();
        let node = self.nodes.get_mut(index).expect("three servers");
        let mut command = Command::new(&self.binary);
        command
            .arg("-c")
            .arg(self.dir.path().join("cluster.conf"))
            .envs(routes)
            .env("NATS_NAME", node.name)
            .env("NATS_LISTEN", format!("127.0.0.1:{}", node.port))
            .env("NATS_STORE", self.dir.path().join(node.name))
            .env("NATS_CLUSTER_LISTEN", format!("127.0.0.1:{}", node.route))
            .env("NATS_CLUSTER_PASSWORD", PASSWORD);
        let log = self.dir.path().join(format!("{}.log", node.name));
        node.process = Some(Process::spawn(command, &log));
    }

    async fn wait_until_up(&self) {
        let running = || self.nodes.iter().filter(|node| node.process.is_some());
        wait::until(START_LIMIT, "the servers take connections", || {
            let is_up = running().all(|node| TcpStream::connect(("127.0.0.1", node.port)).is_ok());
            async move { is_up }
        })
        .await;
    }
}

/// Ports that nobody has now. They are chosen together, so that they differ.
fn free_ports() -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..NAMES.len() * 2)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a free port"))
        .collect();
    listeners
        .iter()
        .map(|listener| listener.local_addr().expect("a port").port())
        .collect()
}
