//! Kills of `teamster up`, which is everything in one process: the server that it leaves behind is adopted by the next one.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use teamster::client::Client;
use teamster_mesh::Connect;
use teamster_protocol::{
    Event, SessionId, event::EndReason, function::harness::SendReply, message::ResultKind,
};
use teamster_testkit::{Process, wait};
use tempfile::TempDir;

use crate::{
    evidence::{Evidence, check},
    model::Model,
    operator::{LIMIT, Operator, session},
    world::configuration,
};

/// A data directory, a workspace, and a model. The server in it is ended with it.
struct Home {
    model: Model,
    root: TempDir,
}

impl Home {
    async fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let home = Self {
            model: Model::start().await,
            root,
        };
        for folder in [home.data(), home.workspace()] {
            std::fs::create_dir(folder).expect("a directory");
        }
        std::fs::write(home.file(), "notes\n").expect("a file");
        let text = configuration(&home.model, &serde_json::json!({}));
        std::fs::write(home.data().join("config.yaml"), text).expect("a configuration");
        home
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// The file that is edited.
    fn file(&self) -> PathBuf {
        self.workspace().join("notes.md")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).expect("a file")
    }

    /// Starts `up`, waits until it serves, and connects.
    async fn up(&self, number: u32) -> (Process, Operator) {
        self.up_in(&self.data(), number).await
    }

    /// The same in another data directory.
    async fn up_in(&self, data: &Path, number: u32) -> (Process, Operator) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_teamster"));
        command
            .args(["up", "--data"])
            .arg(data)
            .current_dir(self.workspace())
            .env_remove("TEAMSTER_NATS")
            .env_remove("TEAMSTER_CREDS")
            .env_remove("TEAMSTER_MODEL")
            .stdin(Stdio::null());
        let mut up = Process::spawn(command, &self.root.path().join(format!("up-{number}")));
        wait::until(LIMIT, "up says where it listens", || {
            let text = up.output();
            assert!(up.is_running(), "up ended: {text}");
            async move { text.contains("stop       ") }
        })
        .await;
        let text = up.output();
        let url = text
            .lines()
            .find_map(|line| line.strip_prefix("listening  "))
            .expect("an address");
        let connect = Connect {
            url: url.to_owned(),
            credentials: Some(data.join("credentials")),
        };
        let client = Client::connect(&connect).await.expect("connects");
        (up, Operator::new(client, self.workspace()))
    }

    /// The process id of the server.
    fn server(&self) -> u64 {
        server(&self.data()).expect("a record of the server")
    }
}

fn server(data: &Path) -> Option<u64> {
    let record = std::fs::read(data.join("nats/server.json")).ok()?;
    let record: Value = serde_json::from_slice(&record).ok()?;
    record["process"]["pid"].as_u64()
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(pid) = server(&self.data()) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}

async fn kill(up: &mut Process) {
    assert!(
        up.is_running(),
        "it is killed while it runs: {}",
        up.output()
    );
    up.kill();
    up.ended(LIMIT).await;
}

async fn verify(owner: &Operator, id: &SessionId, accepted: &[SendReply]) -> Evidence {
    check(&owner.client, id, accepted, Vec::new()).await
}

/// DUR-1, DUR-3: `up` is killed in mid-stream, then while a decision is pending, then in the stream after the edit. Each time
/// the next one adopts the server and goes on; the file is edited once.
#[tokio::test(flavor = "multi_thread")]
async fn dur_3_up_is_killed_again_and_again_in_one_turn() {
    let home = Home::new().await;
    let id = session("s");
    let (first, last) = (home.model.hold("edit it", 0), home.model.hold("edit it", 1));

    let (mut up, owner) = home.up(1).await;
    let server = home.server();
    let accepted = [owner.send(&id, "edit it").await];
    first.reached(LIMIT).await;
    kill(&mut up).await;
    drop(owner);

    let (mut up, owner) = home.up(2).await;
    assert_eq!(home.server(), server, "the server is adopted");
    let pending = owner.pending(&id).await;
    assert_eq!(home.text(), "notes\n");
    kill(&mut up).await;
    drop(owner);

    let (mut up, owner) = home.up(3).await;
    let again = owner.pending(&id).await;
    assert_eq!(
        (&again.approval_id, again.digest),
        (&pending.approval_id, pending.digest)
    );
    owner.approve(&again).await;
    last.reached(LIMIT).await;
    assert_eq!(home.text(), "notes, notes\n");
    kill(&mut up).await;
    drop(owner);

    let (mut up, owner) = home.up(4).await;
    assert_eq!(owner.finish(&id, 1).await, [EndReason::Completed]);
    let evidence = verify(&owner, &id, &accepted).await;
    assert_eq!(evidence.outcomes(), [ResultKind::Ok]);
    assert_eq!(home.text(), "notes, notes\n");
    let events = evidence.commits.iter().flat_map(|commit| &commit.events);
    let takeovers = events
        .filter(|event| matches!(event, Event::TookOver { .. }))
        .count();
    assert_eq!(takeovers, 2, "a turn that waits is not taken over");
    assert_eq!(home.server(), server);
    up.terminate();
    assert!(up.ended(LIMIT).await.success());
}

/// BUS-2: the server of `up` is killed under it; it is started again, and the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn bus_2_the_server_of_up_is_killed_under_it() {
    let home = Home::new().await;
    let id = session("s");
    let gate = home.model.hold("talk", 0);
    let (mut up, owner) = home.up(1).await;
    let server = home.server();
    let accepted = [owner.send(&id, "talk").await];
    gate.reached(LIMIT).await;
    let killed = Command::new("kill")
        .args(["-9", &server.to_string()])
        .status()
        .expect("kill runs");
    assert!(killed.success());
    wait::until(LIMIT, "the server is started again", || async {
        home.server() != server
    })
    .await;
    gate.open();
    assert_eq!(owner.finish(&id, 1).await, [EndReason::Completed]);
    verify(&owner, &id, &accepted).await;
    up.terminate();
    assert!(up.ended(LIMIT).await.success());
}

/// What operations.md says of copies: a stopped data directory is copied whole, and its sessions go on from the copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_stopped_data_directory_goes_on() {
    let home = Home::new().await;
    let id = session("s");
    let (mut up, owner) = home.up(1).await;
    let mut accepted = vec![owner.send(&id, "edit it").await];
    let pending = owner.pending(&id).await;
    drop(owner);
    up.terminate();
    assert!(up.ended(LIMIT).await.success());
    let copy = home.root.path().join("copy");
    let copied = Command::new("cp")
        .arg("-a")
        .args([&home.data(), &copy])
        .status()
        .expect("cp runs");
    assert!(copied.success());
    std::fs::remove_dir_all(home.data()).expect("the first one is lost");

    let (mut up, owner) = home.up_in(&copy, 2).await;
    let again = owner.pending(&id).await;
    assert_eq!(
        (&again.approval_id, again.digest),
        (&pending.approval_id, pending.digest)
    );
    owner.approve(&again).await;
    assert_eq!(owner.finish(&id, 1).await, [EndReason::Completed]);
    accepted.push(owner.send(&id, "talk").await);
    owner.finish(&id, 2).await;
    verify(&owner, &id, &accepted).await;
    assert_eq!(home.text(), "notes, notes\n");
    up.terminate();
    assert!(up.ended(LIMIT).await.success());
}
