//! Three nats-servers that keep each stream three times, two harness processes, and servers and processes that are killed.
//!
//! `TEAMSTER_CLUSTER_ROUNDS` says how often a server and a harness are killed after the planned kill (1).

use std::path::Path;

use serde_json::json;
use teamster::client::Client;
use teamster_mesh::{
    Connect, Mesh,
    broker::{
        DataDir,
        grant::{self, Change, Grant},
    },
    credential,
};
use teamster_protocol::{
    SessionId, event::EndReason, function::harness::SendReply, id::WorkerName, subject,
};
use teamster_testkit::{Cluster, Process};
use tempfile::TempDir;

use crate::{
    evidence::check,
    model::Model,
    operator::{LIMIT, Operator, session},
    outside::Outside,
    world::{SIBLINGS, command, configuration, dump_lines, serving},
};

/// The worker of the functions outside.
const OUTSIDE: &str = "t";

struct Fleet {
    cluster: Cluster,
    model: Model,
    outside: Outside,
    owner: Operator,
    root: TempDir,
}

impl Fleet {
    /// Servers by the configuration that is shipped, with the accounts that the product makes.
    async fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let data = DataDir::open(&root.path().join("data")).expect("a data directory");
        let name = WorkerName::parse(OUTSIDE).expect("valid");
        let file = credential::file(&data.credentials(), OUTSIDE);
        let granted = Grant {
            namespaces: [OUTSIDE.to_owned()].into(),
            key: grant::credentials(&file).expect("credentials"),
        };
        Change::begin(&data)
            .and_then(|mut change| change.put(name.clone(), granted))
            .expect("granted");
        let accounts = grant::accounts(&data).expect("accounts");
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/nats/cluster.conf");
        let cluster = Cluster::start(&shipped, &accounts).await;

        let model = Model::start().await;
        let mut config: serde_json::Value =
            serde_json::from_str(&configuration(&model, &json!({}))).expect("JSON");
        config["mesh"] = json!({"replicas": 3});
        std::fs::write(data.root().join("config.yaml"), config.to_string()).expect("a file");
        let workspace = root.path().join("workspace");
        std::fs::create_dir(&workspace).expect("a workspace");
        std::fs::write(workspace.join("notes.md"), "notes\n").expect("a file");
        let connect = Connect {
            url: cluster.url(),
            credentials: Some(data.credentials()),
        };
        teamster::host::embedded::ensure(
            &connect,
            &teamster_mesh::topology::Topology { replicas: 3 },
        )
        .await
        .expect("streams of three replicas");
        let client = Client::connect(&connect).await.expect("connects");
        let mesh = Mesh::connect(&connect, name).await.expect("connects");
        let reader = Some(client.mesh().clone());
        let outside = Outside::serve_reading(mesh, reader, root.path()).await;
        Self {
            cluster,
            model,
            outside,
            owner: Operator::new(client, workspace),
            root,
        }
    }

    /// Starts workers in a process of their own and waits until they serve.
    async fn worker(&self, names: &[&str]) -> Process {
        let data = self.root.path().join("data");
        let workspace = &self.owner.workspace;
        let mut command = command(names, &self.cluster.url(), &data, workspace);
        command.arg("--creds").arg(data.join("credentials"));
        serving(command, self.root.path()).await
    }

    async fn verify(&self, id: &SessionId, accepted: &[SendReply]) -> usize {
        let effects = self.outside.effects_of(id);
        let evidence = check(&self.owner.client, id, accepted, effects).await;
        evidence.commits.len()
    }
}

/// A failed test says what the workers said.
impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            dump_lines(&self.root.path().join("data"));
            self.owner.dump();
        }
    }
}

fn stream_of(id: &SessionId) -> String {
    let partition = subject::partition(&id.token());
    format!("LOG_{}", subject::log_stream_of(partition))
}

fn rounds() -> usize {
    std::env::var("TEAMSTER_CLUSTER_ROUNDS").map_or(1, |text| {
        text.parse().expect("TEAMSTER_CLUSTER_ROUNDS is a number")
    })
}

/// DUR-3: the server that leads a session's log is killed while a model streams and a call runs that must not run twice. No
/// accepted input is lost, no effect repeated, the order is kept, and the service resumes; then a harness and further servers
/// follow, and again.
#[tokio::test(flavor = "multi_thread")]
async fn dur_3_a_cluster_that_loses_a_server_and_a_harness_loses_nothing_else() {
    let mut fleet = Fleet::start().await;
    let _siblings = fleet.worker(&SIBLINGS).await;
    let mut harnesses = vec![
        fleet.worker(&["harness"]).await,
        fleet.worker(&["harness"]).await,
    ];
    let ids: Vec<SessionId> = (0..4)
        .map(|number| session(&format!("s{number}")))
        .collect();
    let gate = fleet.model.hold("talk s0 0", 0);
    fleet.outside.door.shut();
    let mut accepted: Vec<Vec<SendReply>> = vec![Vec::new(); ids.len()];
    for (index, plan) in ["talk", "slow", "full", "write"].into_iter().enumerate() {
        let text = format!("{plan} s{index} 0");
        accepted[index].push(fleet.owner.send(&ids[index], &text).await);
    }
    gate.reached(LIMIT).await;
    fleet.outside.door.reached(1, LIMIT).await;
    let leader = fleet.cluster.leader_of(&stream_of(&ids[0])).await;
    fleet.cluster.kill(leader).await;
    // What is accepted while a server is missing counts as well.
    accepted[0].push(fleet.owner.send(&ids[0], "read s0 1").await);
    gate.open();
    fleet.outside.door.open();
    for (id, accepted) in ids.iter().zip(&accepted) {
        fleet.owner.settle(id, accepted).await;
    }
    fleet.cluster.restart(leader).await;

    let mut victim = leader;
    for round in 0..rounds() {
        for (index, id) in ids.iter().enumerate() {
            let plan = ["full", "write", "read", "talk"][(index + round) % 4];
            let text = format!("{plan} s{index} again {round}");
            accepted[index].push(fleet.owner.send(id, &text).await);
        }
        victim = (victim + 1) % 3;
        fleet.cluster.kill(victim).await;
        let mut gone = harnesses.remove(0);
        gone.kill();
        gone.ended(LIMIT).await;
        harnesses.push(fleet.worker(&["harness"]).await);
        for (id, accepted) in ids.iter().zip(&accepted) {
            fleet.owner.settle(id, accepted).await;
        }
        fleet.cluster.restart(victim).await;
    }
    let mut commits = 0;
    for (id, accepted) in ids.iter().zip(&accepted) {
        commits += fleet.verify(id, accepted).await;
        let reasons = crate::operator::reasons(&fleet.owner.commits(id).await.expect("a log"));
        assert!(
            reasons.iter().all(|reason| *reason == EndReason::Completed),
            "{id}: {reasons:?}"
        );
    }
    eprintln!("{} rounds, {commits} commits", rounds());
}
