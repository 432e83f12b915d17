//! What is in the user's way before and after a mesh runs: wrong files, full devices, killed processes.

use std::{
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Stdio,
};

use teamster_testkit::wait;
use tokio::process::Command;

use super::{
    check_failure, holder,
    place::{LIMIT, Place, code, document, finding, written_to},
};

/// CLI-1: a policy file is a file of its own, so that is what the start and `doctor` name.
#[tokio::test]
async fn cli_1_a_wrong_policy_names_its_file_line_and_key() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    let path = place.data().join("policy.yaml");
    std::fs::write(&path, "version: 1\nlayer: []\n").expect("a file");
    let arguments = ["up", "--json"];
    let output = place.run(&arguments).await;
    check_failure(&arguments, &output, (2, "host.policy"));
    let error = document(&output)["error"].clone();
    let hint = error["hint"].as_str().expect("a hint");
    assert!(
        hint.contains("policy.yaml") && !hint.contains("config.yaml"),
        "{hint}"
    );

    let doctor = place.run(&["doctor", "--json"]).await;
    assert_eq!(code(&doctor), 1);
    let finding = finding(&document(&doctor), "policy");
    for said in [error["message"].as_str(), finding["detail"].as_str()] {
        let said = said.expect("a message");
        for part in ["policy.yaml", "line 2", "did you mean `layers`"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert_eq!(finding["state"], "failed");

    std::fs::write(
        place.data().join("config.yaml"),
        "approval-gate: {policy_file: mine.yaml}\n",
    )
    .expect("a file");
    let output = place.run(&arguments).await;
    check_failure(&arguments, &output, (2, "config.policy_file"));
    assert!(
        document(&output)["error"]["message"]
            .to_string()
            .contains("mine.yaml")
    );
}

/// CLI-1: what cannot be written is no success, in whatever form.
#[tokio::test]
async fn cli_1_a_full_device_is_a_failure() {
    let place = Place::new();
    for arguments in [
        &["--help"][..],
        &["--version", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["doctor", "--jsonl"],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device");
        let output = written_to(&place, arguments, full).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), 1, "{arguments:?}: {words}");
        assert!(
            words.contains("cannot write to standard output"),
            "{arguments:?}: {words}"
        );
    }
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_used_is_named_without_its_log() {
    let place = Place::new();
    std::fs::write(place.data(), "a file").expect("a file");
    for arguments in [["up", "--json"].as_slice(), &["run", "hi", "--json"]] {
        let output = place.run(arguments).await;
        check_failure(arguments, &output, (2, "cli.data_dir"));
        let error = document(&output)["error"].clone();
        assert!(error["message"].to_string().contains("data"), "{error}");
        assert!(!error["hint"].to_string().contains("log"), "{error}");
    }
}

/// Whose data directory it is stands in the words, and no mesh is started beside theirs. Where the tests have no right to be somebody
/// else, their own directory is closed to them.
#[tokio::test]
async fn a_data_directory_of_somebody_else_is_told_by_its_owner() {
    const STRANGER: u32 = 12_345;
    let place = Place::new();
    let is_root = nix::unistd::geteuid().is_root();
    let mut up = place.up().await;
    let rights = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    let program = place.file("teamster");
    let built = Path::new(env!("CARGO_BIN_EXE_teamster"));
    if std::fs::hard_link(built, &program).is_err() {
        std::fs::copy(built, &program).expect("copied");
    }
    if is_root {
        rights(place.data().parent().expect("a place"), 0o755);
    } else {
        rights(&place.data(), 0o000);
    }
    let verbs: [&[&str]; 4] = [
        &["sessions", "ls", "--json"],
        &["run", "hi", "--json"],
        &["doctor", "--json"],
        &["config", "get", "--json"],
    ];
    for arguments in verbs {
        let mut command = std::process::Command::new(&program);
        command
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null());
        command.env("TEAMSTER_DATA", place.data());
        if is_root {
            command.uid(STRANGER).gid(STRANGER);
        }
        let output = wait::within(LIMIT, "it ends", Command::from(command).output()).await;
        let output = output.expect("it starts");
        check_failure(arguments, &output, (2, "cli.data_dir"));
        let error = document(&output)["error"].clone();
        let (says, next) = if is_root {
            ("belongs to root, and the user 12345", "run this as root")
        } else {
            ("its mode of 000", "chmod u+rwX")
        };
        assert!(error["message"].to_string().contains(says), "{error}");
        assert!(error["hint"].to_string().contains(next), "{error}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!words.contains("starting"), "{words}");
    }
    rights(&place.data(), 0o700);
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// What a user does after a kill: reads the log, which needs nobody but the broker, and runs the next message at once.
#[tokio::test]
async fn after_a_kill_the_log_is_read_without_a_harness_and_the_next_run_starts_one() {
    let place = Place::new();
    let mut up = place.up().await;
    let held = place
        .run(&["run", "hello", "--session", "held", "--json"])
        .await;
    assert_eq!(code(&held), 3);
    up.kill();
    up.ended(LIMIT).await;
    for arguments in [
        ["sessions", "show", "held", "--json"].as_slice(),
        &["sessions", "tail", "held", "--json"],
    ] {
        let output = place.run(arguments).await;
        assert!(
            [0, 3].contains(&code(&output)),
            "{arguments:?}: {}",
            document(&output)
        );
        assert!(
            teamster::host::embedded::holder(&place.data()).is_none(),
            "{arguments:?} started a mesh"
        );
    }
    let next = place
        .run(&["run", "hello", "--approvals", "deny", "--json"])
        .await;
    assert_eq!(code(&next), 4, "{}", document(&next));
    let pid = holder(&place.data());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    wait::until(LIMIT, "the mesh in the background ends", || async {
        nix::sys::signal::kill(pid, None).is_err()
    })
    .await;
}
