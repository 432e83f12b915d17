//! The broker outlives the process that holds it, and the next one goes on with it.

use std::{
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::Command,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use teamster_mesh::broker::{DataDir, running};
use teamster_testkit::{Process, wait};

const LIMIT: Duration = Duration::from_mins(1);

/// Kills the server of a data directory when the test ends.
struct Cleanup(DataDir);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(running) = running(&self.0) {
            let _ = kill(pid(running.pid), Signal::SIGKILL);
        }
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).expect("a process id"))
}

fn hold(data: &DataDir, output: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_held-broker"));
    // A group of its own, as a shell gives to what runs in the foreground.
    command.arg(data.root()).process_group(0);
    Process::spawn(command, output)
}

/// The last line that says that a broker is ready.
async fn ready(process: &Process, lines: usize) -> String {
    wait::some(LIMIT, "the broker is ready", || {
        let output = process.output();
        let ready: Vec<&str> = output
            .lines()
            .filter(|line| line.starts_with("ready "))
            .collect();
        let last = (ready.len() >= lines).then(|| ready.last().map(ToString::to_string));
        std::future::ready(last.flatten())
    })
    .await
}

#[tokio::test]
async fn a_killed_holder_leaves_a_server_that_the_next_one_adopts() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = DataDir::open(&dir.path().join("data")).expect("opened");
    let cleanup = Cleanup(data.clone());
    let output = dir.path().join("output");
    let mut first = hold(&data, &output);
    let line = ready(&first, 1).await;
    assert!(line.ends_with("adopted=false"), "{line}");
    assert_eq!(data.holder(), Some(first.pid()));
    let server = running(&data).expect("runs");

    let mut second = hold(&data, &output);
    assert_eq!(second.ended(LIMIT).await.code(), Some(1));
    let told = format!("is in use by another teamster (pid {})", first.pid());
    assert!(second.output().contains(&told), "{}", second.output());

    first.kill();
    first.ended(LIMIT).await;
    assert_eq!(data.holder(), None);
    assert_eq!(
        running(&data),
        Some(server.clone()),
        "the server outlives its holder"
    );

    let mut third = hold(&data, &output);
    let line = ready(&third, 2).await;
    assert!(
        line.ends_with(&format!("{} adopted=true", server.pid)),
        "{line}"
    );

    // Ctrl-C in a terminal goes to the whole foreground group.
    killpg(pid(third.pid()), Signal::SIGINT).expect("sent");
    assert_eq!(third.ended(LIMIT).await.signal(), Some(2));
    assert_eq!(
        running(&data),
        Some(server),
        "a Ctrl-C does not reach the server"
    );
    drop(cleanup);
}
