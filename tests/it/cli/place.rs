//! Where a command runs, and how what it wrote is read.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use teamster_testkit::{Process, wait};
use tempfile::TempDir;
use tokio::process::Command;

/// How long a command may take; the first start may fetch nats-server.
pub const LIMIT: Duration = Duration::from_mins(2);

/// A data directory and a workspace beside it.
pub struct Place {
    root: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let place = Self { root };
        std::fs::create_dir(place.workspace()).expect("a workspace");
        std::fs::write(place.workspace().join("notes.md"), "notes\n").expect("a file");
        place
    }

    pub fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// A file beside both.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A command without a terminal, in the workspace, that sees nothing of the machine's own settings.
    pub fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_teamster"));
        command
            .args(arguments)
            .current_dir(self.workspace())
            .env("TEAMSTER_DATA", self.data())
            .env_remove("TEAMSTER_NATS")
            .env_remove("TEAMSTER_CREDS")
            .env_remove("TEAMSTER_MODEL")
            .stdin(Stdio::null());
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::from(self.command(arguments));
        command.kill_on_drop(true);
        let description = format!("teamster {arguments:?} ends");
        wait::within(LIMIT, &description, command.output())
            .await
            .expect("it starts")
    }

    /// Starts `up` and waits until it says that it listens.
    pub async fn up(&self) -> Process {
        let output = self.file("up.out");
        // What an earlier one said is not taken for what this one says.
        let _ = std::fs::remove_file(&output);
        let process = Process::spawn(self.command(&["up"]), &output);
        wait::until(LIMIT, "up says where it listens", || async {
            process.output().contains("stop       ")
        })
        .await;
        process
    }
}

/// Checks that standard output is exactly one JSON document with a line end, and answers it.
pub fn document(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    assert!(text.ends_with('\n'), "{text:?}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

pub fn lines(output: &Output) -> Vec<Value> {
    String::from_utf8(output.stdout.clone())
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
        .collect()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

/// What `doctor --json` says about one thing.
pub fn finding(doctor: &Value, check: &str) -> Value {
    let findings = doctor["findings"].as_array().expect("findings");
    findings
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap_or_else(|| panic!("no {check}: {doctor}"))
        .clone()
}

/// Runs a command whose standard output goes somewhere else.
pub async fn written_to(place: &Place, arguments: &[&str], out: impl Into<Stdio>) -> Output {
    let mut command = place.command(arguments);
    command.stdout(out).stderr(Stdio::piped());
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    let child = command.spawn().expect("it starts");
    wait::within(
        LIMIT,
        "a command ends whoever reads",
        child.wait_with_output(),
    )
    .await
    .expect("it ends")
}
