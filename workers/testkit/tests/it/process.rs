//! A child process under a test's control.

use std::{os::unix::process::ExitStatusExt as _, process::Command, time::Duration};

use teamster_testkit::{Process, wait};

const LIMIT: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("GREETING", "hello");
    command
}

#[tokio::test]
async fn a_process_is_captured_signalled_and_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = dir.path().join("output");
    let mut ended = Process::spawn(shell("echo $GREETING; echo bye >&2; exit 3"), &output);
    assert_eq!(ended.ended(LIMIT).await.code(), Some(3));
    assert_eq!(ended.output(), "hello\nbye\n");
    let mut killed = Process::spawn(shell("echo ready; exec sleep 600"), &output);
    wait::until(LIMIT, "it is ready", || {
        std::future::ready(killed.output().ends_with("ready\n"))
    })
    .await;
    killed.pause();
    assert!(killed.is_running());
    killed.kill();
    assert_eq!(killed.ended(LIMIT).await.signal(), Some(9));
}

#[tokio::test]
async fn a_dropped_process_is_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let process = Process::spawn(shell("exec sleep 600"), &dir.path().join("output"));
    let pid = process.pid();
    drop(process);
    let alive = Command::new("kill").args(["-0", &pid.to_string()]).output();
    assert!(!alive.expect("kill runs").status.success());
}
