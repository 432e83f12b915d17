//! Workers apart from each other, a mesh that ends by itself, and what `doctor` tells.

use std::{process::Output, time::Duration};

use serde_json::Value;
use teamster::host::embedded::{holder, locate};
use teamster_testkit::{Nats, Process, wait};
use tokio::process::Command;

use super::{
    check_failure,
    place::{LIMIT, Place, code, document},
};

/// Workers of one mesh in two processes against a server that somebody else runs.
#[tokio::test]
async fn workers_run_apart_against_a_foreign_server() {
    let place = Place::new();
    let nats = Nats::start().await;
    let url = nats.url();
    let server = ["--nats", url.as_str()];
    let spawn = |name: &str, workers: &[&str]| {
        let arguments = [&["worker"], workers, &server].concat();
        Process::spawn(place.command(&arguments), &place.file(name))
    };
    let mut gate = spawn("gate.out", &["sandbox", "approval-gate"]);
    wait::until(LIMIT, "the first two workers serve", || async {
        gate.output().contains("stop with Ctrl-C")
    })
    .await;
    let lonely = [&["run", "hello", "--json"], &server[..]].concat();
    check_failure(&lonely, &place.run(&lonely).await, (69, "mesh.no_workers"));

    let mut harness = spawn("harness.out", &["router", "harness"]);
    wait::until(LIMIT, "the other two workers serve", || async {
        harness.output().contains("stop with Ctrl-C")
    })
    .await;
    let output = place.run(&lonely).await;
    check_failure(&lonely, &output, (3, "approval.pending"));
    for process in [&mut harness, &mut gate] {
        process.interrupt();
        let ended = process.ended(Duration::from_mins(1)).await;
        assert!(ended.success(), "{}", process.output());
    }
}

/// Whoever waits for a turn brings a killed mesh back, and the held call with it.
#[tokio::test]
async fn a_waiting_run_starts_a_killed_mesh_again() {
    let place = Place::new();
    let arguments = [
        "run",
        "hello",
        "--session",
        "s",
        "--approvals",
        "wait",
        "--json",
    ];
    let waiting = place.run(&arguments);
    let killing = async {
        let list = ["approvals", "ls", "--json"];
        let approval = wait::some(LIMIT, "the call is held", || async {
            let listed = document(&place.run(&list).await);
            listed["pending"][0]["request"]["approval_id"]
                .as_str()
                .map(str::to_owned)
        })
        .await;
        let data = place.data();
        let first = holder(&data).expect("a mesh");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(first).expect("a process"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
        let second = wait::some(LIMIT, "the mesh is started again", || async {
            holder(&data).filter(|pid| *pid != first)
        })
        .await;
        let denied = place.run(&["approvals", "deny", &approval, "--json"]).await;
        assert_eq!(
            code(&denied),
            0,
            "{}",
            String::from_utf8_lossy(&denied.stderr)
        );
        second
    };
    let (output, second) = tokio::join!(waiting, killing);
    let report = document(&output);
    assert_eq!(
        (code(&output), &report["status"]),
        (0, &"completed".into()),
        "{report}"
    );
    let pid = nix::unistd::Pid::from_raw(i32::try_from(second).expect("a process"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    wait::until(LIMIT, "the mesh ends", || async {
        holder(&place.data()).is_none()
    })
    .await;
}

#[tokio::test]
async fn a_mesh_that_nobody_needs_ends_by_itself() {
    let place = Place::new();
    let output = place.run(&["up", "--idle-exit", "1s", "--json"]).await;
    assert_eq!(
        code(&output),
        0,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let started = document(&output);
    assert_eq!(
        (&started["model"], &started["is_scripted"]),
        (&"scripted/guided".into(), &true.into())
    );
}

/// LEAK-2: a key is named, never shown; files that others can read are told.
#[tokio::test]
async fn leak_2_doctor_names_keys_and_open_files_and_shows_no_secret() {
    const SECRET: &str = "zq9-secret";
    let place = Place::new();
    let doctor = |model: &str| {
        let mut command = place.command(&["doctor", "--json"]);
        command
            .env("OPENAI_API_KEY", SECRET)
            .env("TEAMSTER_MODEL", model);
        Command::from(command).output()
    };
    let finding = |output: &Output, check: &str| {
        let found = document(output)["findings"]
            .as_array()
            .expect("findings")
            .clone();
        found
            .into_iter()
            .find(|one| one["check"] == check)
            .expect("a finding")
    };
    for (model, state) in [
        ("openai/x", "ok"),
        ("scripted/guided", "ok"),
        ("openrouter/x", "failed"),
        ("nope/x", "failed"),
    ] {
        let output = doctor(model).await.expect("it starts");
        let whole = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(!String::from_utf8_lossy(&whole).contains(SECRET));
        assert_eq!(finding(&output, "model")["state"], state, "{model}");
        assert_eq!(code(&output), i32::from(state == "failed"));
    }

    let ended = place.run(&["up", "--idle-exit", "1s"]).await;
    assert_eq!(code(&ended), 0);
    let seed = place.data().join("credentials").join("operator.creds");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&seed, open).expect("changed");
    let output = doctor("scripted/guided").await.expect("it starts");
    let found = finding(&output, "credentials");
    assert_eq!((code(&output), &found["state"]), (1, &"failed".into()));
    assert!(
        found["detail"]
            .as_str()
            .expect("text")
            .contains("operator.creds"),
        "{found}"
    );
}

/// SBX-3: what a host lacks is said before a command is refused for it, by name and with what to do.
#[tokio::test]
async fn sbx_3_doctor_names_the_layer_that_is_missing() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    // A helper that enters nothing: no layer holds.
    std::fs::write(
        place.data().join("config.yaml"),
        "sandbox: {helper: /bin/true}\n",
    )
    .expect("a file");
    let output = place.run(&["doctor", "--json"]).await;
    let found = super::place::finding(&document(&output), "sandbox");
    assert_eq!((code(&output), &found["state"]), (1, &"failed".into()));
    let detail = found["detail"].as_str().expect("text");
    assert!(
        detail.starts_with("commands are refused: ") && detail.contains("_ns is missing"),
        "{found}"
    );
    assert!(
        found["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
        "{found}"
    );
}

/// CTX-1: that a window is assumed is said before a session has grown into it.
#[tokio::test]
async fn ctx_1_doctor_says_whether_a_window_is_known() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    for (config, state, words) in [
        ("", "warning", "8192 tokens are assumed"),
        (
            "context: {default_window: 4096}\n",
            "warning",
            "4096 tokens",
        ),
        (
            "context: {windows: {\"ollama/qwen3:8b\": 32768}}\n",
            "ok",
            "32768 tokens",
        ),
        (
            "router: {providers: {ollama: {models: {\"qwen3:8b\": {context_window: 40960}}}}}\n",
            "ok",
            "40960 tokens",
        ),
    ] {
        let text = format!("harness: {{default_model: \"ollama/qwen3:8b\"}}\n{config}");
        std::fs::write(place.data().join("config.yaml"), text).expect("a file");
        let output = place.run(&["doctor", "--json"]).await;
        let found = super::place::finding(&document(&output), "window");
        assert_eq!(found["state"], state, "{found}");
        assert!(
            found["detail"].as_str().expect("text").contains(words),
            "{found}"
        );
        let command = "teamster config set 'context.windows.\"ollama/qwen3:8b\"' TOKENS";
        let hint = found["hint"].as_str().unwrap_or_default();
        assert_eq!(hint.contains(command), state == "warning", "{found}");
    }
}

/// A session whose harness was killed is shown as interrupted, in lists as well, and not as running; it goes on where a
/// harness starts.
#[tokio::test]
async fn a_session_without_a_harness_is_interrupted_and_not_running() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    let script = place.file("slow.yaml");
    let words = "word ".repeat(120);
    std::fs::write(
        &script,
        format!("rules:\n  - say: \"{words}\"\n    pace_ms: 1000\n    slow_on_first_try: true\n"),
    )
    .expect("a file");
    let config = format!(
        "harness: {{default_model: scripted/slow}}\nrouter: {{providers: {{scripted: {{scripts: {{slow: {}}}}}}}}}\n",
        script.display()
    );
    std::fs::write(place.data().join("config.yaml"), config).expect("a file");
    let nats = Nats::start().await;
    let url = nats.url();
    let server = ["--nats", url.as_str()];
    let spawn = |name: &str, workers: &[&str]| {
        let arguments = [&["worker"], workers, &server].concat();
        Process::spawn(place.command(&arguments), &place.file(name))
    };
    let is_up = |process: &Process| process.output().contains("stop with Ctrl-C");
    let others = spawn("others.out", &["sandbox", "approval-gate", "session"]);
    wait::until(LIMIT, "the other workers serve", || async {
        is_up(&others)
    })
    .await;
    let harness = spawn("harness.out", &["harness", "router"]);
    wait::until(LIMIT, "the harness serves", || async { is_up(&harness) }).await;
    let ask = |arguments: &[&'static str]| {
        let arguments = [arguments, &["--json"], &server].concat();
        let place = &place;
        async move { document(&place.run(&arguments).await) }
    };
    ask(&["send", "s", "go"]).await;
    let status = |wanted: &'static str| {
        let ask = &ask;
        wait::until(LIMIT, wanted, move || async move {
            ask(&["sessions", "show", "s"]).await["status"] == wanted
        })
    };
    status("running").await;
    assert_eq!(
        ask(&["sessions", "ls"]).await["sessions"][0]["status"],
        "running"
    );
    harness.kill();
    status("interrupted").await;
    for (wanted, count) in [("interrupted", 1), ("running", 0)] {
        let listed = ask(&["sessions", "ls", "--status", wanted]).await;
        let sessions = listed["sessions"].as_array().expect("a list");
        assert_eq!(sessions.len(), count, "{wanted}: {listed}");
        assert!(sessions.iter().all(|session| session["status"] == wanted));
    }
    let shown = place
        .run(&[&["sessions", "show", "s"], &server[..]].concat())
        .await;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        text.contains("interrupted; goes on when a harness starts"),
        "{text}"
    );
    let again = spawn("again.out", &["harness", "router"]);
    status("idle").await;
    drop((again, others));
}

/// Credentials of another user than the operator: each verb says so and which to take, and none waits until its time is over.
#[tokio::test]
async fn another_users_credentials_are_told_by_every_verb() {
    let place = Place::new();
    let mut up = place.up().await;
    let url = locate(&place.data()).expect("it runs").url;
    let creds = place.data().join("credentials").join("router.creds");
    let server = [
        "--nats",
        &url,
        "--creds",
        creds.to_str().expect("text"),
        "--json",
    ];
    for verb in [
        &["sessions", "ls"][..],
        &["sessions", "show", "s"],
        &["run", "hello"],
        &["functions", "ls"],
        &["workers", "ls"],
        &["approvals", "ls"],
        &["events"],
        &["cost"],
        &["config", "get", "harness"],
    ] {
        let arguments = [verb, &server].concat();
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, (69, "mesh.credentials"));
        let hint = document(&output)["error"]["hint"].to_string();
        assert!(hint.contains("operator.creds"), "{verb:?}: {hint}");
    }
    let doctor = document(&place.run(&[&["doctor"], &server[..]].concat()).await);
    let findings = doctor["findings"].as_array().expect("findings").iter();
    let failed: Vec<&Value> = findings
        .filter(|finding| finding["state"] == "failed")
        .collect();
    let [broker] = failed.as_slice() else {
        panic!("one cause is told once: {doctor}");
    };
    assert!(
        broker["hint"].to_string().contains("operator.creds"),
        "{broker}"
    );
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}
