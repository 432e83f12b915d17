//! The command line's contract: what stands on standard output, which code a command ends with, whom a second `up` names.

mod anew;
mod apart;
mod chat;
mod config;
mod ends;
mod help;
mod live;
pub mod place;
mod projection;
mod remains;
mod restore;
mod rot;
mod rot_runs;
mod sessions;
mod terminal;
mod trouble;
mod verb;
mod words;
mod workers;

use std::{path::Path, process::Output, time::Duration};

use teamster_testkit::{Process, wait};

use place::{LIMIT, Place, code, document, lines, written_to};

fn check_failure(arguments: &[&str], output: &Output, want: (i32, &str)) {
    let document = document(output);
    let error = &document["error"];
    assert_eq!(
        (code(output), error["code"].as_str()),
        (want.0, Some(want.1)),
        "{arguments:?}: {document}"
    );
    for what in ["message", "hint"] {
        let is_said = error[what].as_str().is_some_and(|said| !said.is_empty());
        assert!(is_said, "{arguments:?}: no {what}: {document}");
    }
    assert!(
        !output.stderr.is_empty(),
        "{arguments:?}: the same in words"
    );
}

/// CLI-1: whatever goes wrong before a mesh is reached, standard output parses and the code is from the table.
#[tokio::test]
async fn cli_1_stdout_parses_whatever_is_missing() {
    let place = Place::new();
    let dead = ["--nats", "nats://127.0.0.1:1"];
    for (arguments, want) in [
        (vec!["sessions", "ls"], (69, "mesh.not_running")),
        (vec!["stop", "s"], (69, "mesh.not_running")),
        (vec!["approvals", "ls"], (69, "mesh.not_running")),
        (vec!["functions", "ls"], (69, "mesh.not_running")),
        (
            vec!["policy", "explain", "fs::write", "{}"],
            (69, "mesh.not_running"),
        ),
        (
            [&["sessions", "ls"], &dead[..]].concat(),
            (69, "mesh.unavailable"),
        ),
        (
            [&["run", "hi"], &dead[..]].concat(),
            (69, "mesh.unavailable"),
        ),
        (
            [&["worker", "router"], &dead[..]].concat(),
            (69, "host.topology"),
        ),
        (vec!["run", " "], (2, "cli.no_message")),
        (
            vec!["run", "hi", "--workspace", "/nowhere/at/all"],
            (2, "cli.workspace"),
        ),
        (
            vec!["run", "hi", "--approvals", "ask"],
            (2, "cli.no_terminal"),
        ),
        (vec!["run", "hi", "--allow", "["], (2, "cli.usage")),
        (vec!["send", "s", "hi", "--deny", ""], (2, "cli.usage")),
        (vec!["run", "hi", "--model", "nope"], (2, "cli.usage")),
        (vec!["run", "hi", "--key", ""], (2, "cli.usage")),
        (
            vec!["approvals", "approve", "apr_1", "--edit", "/nowhere/at/all"],
            (2, "approval.arguments"),
        ),
        (vec!["worker", "gateway"], (2, "host.unknown_worker")),
        (
            [
                &["worker", "router", "--creds", "/nowhere/at/all"],
                &dead[..],
            ]
            .concat(),
            (2, "cli.credentials"),
        ),
        (
            [&["sessions", "ls", "--creds", "/nowhere/at/all"], &dead[..]].concat(),
            (2, "cli.credentials"),
        ),
        (vec!["run", "hi", "--max-cost-usd", "-1"], (2, "cli.usage")),
        (
            vec!["functions", "call", "fs::read", "[1]"],
            (2, "cli.arguments"),
        ),
        (
            vec![
                "worker",
                "gateway",
                "--nats",
                "nats://127.0.0.1:1",
                "--no-ensure",
            ],
            (2, "host.unknown_worker"),
        ),
        (vec!["run", "hi", "--max-turns", "0"], (2, "cli.usage")),
        (vec!["run", "hi", "--max-tokens", "0"], (2, "cli.usage")),
        (vec!["run", "hi", "--max-seconds", "0"], (2, "cli.usage")),
        (
            vec!["sessions", "show", "s", "--last", "0"],
            (2, "cli.usage"),
        ),
        (vec!["approvals", "show", "nope"], (2, "cli.usage")),
        (vec!["sessions", "ls", "--creds", "."], (2, "cli.usage")),
        (vec!["sessions", "verify", "/nowhere/at/all"], (1, "cli.io")),
        (vec!["send", "s", ""], (2, "cli.no_message")),
        (vec!["nonsense"], (2, "cli.usage")),
        (
            vec!["demo", "--nats", "nats://127.0.0.1:1"],
            (2, "cli.usage"),
        ),
    ] {
        for form in ["--json", "--jsonl"] {
            let arguments = [arguments.as_slice(), &[form]].concat();
            check_failure(&arguments, &place.run(&arguments).await, want);
        }
    }
}

/// CLI-1: a wrong command line is told with what to type next, and a server that does not answer is named while it is tried.
#[tokio::test]
async fn cli_1_words_say_what_to_type_next() {
    let place = Place::new();
    for (arguments, word) in [
        (vec!["approvals", "show", "nope"], "teamster approvals ls"),
        (
            vec!["sessions", "verify", "/nowhere/at/all"],
            "next: look for a slip",
        ),
        (vec!["worker", "nope"], "next: name some of these"),
        (vec!["send", "s", ""], "next: teamster send s"),
        (vec!["run", ""], "next: teamster run"),
        (
            vec!["sessions", "ls", "--creds", "."],
            "next: add --nats URL",
        ),
        (
            vec!["worker", "router", "--nats", "nats://127.0.0.1:1"],
            "nats://127.0.0.1:1 is tried for 10.0 s",
        ),
    ] {
        let output = place.run(&arguments).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains(word), "{arguments:?}: {words}");
    }
}

#[tokio::test]
async fn cli_1_a_wrong_configuration_names_file_line_and_key() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    std::fs::write(
        place.data().join("config.yaml"),
        "harness:\n  default_modl: x/y\n",
    )
    .expect("a file");
    for arguments in [vec!["run", "hi", "--json"], vec!["up", "--json"]] {
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, (2, "config.invalid"));
        let error = document(&output)["error"].clone();
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("config.yaml, line "), "{message}");
        assert_eq!(
            error["hint"],
            "did you mean `default_model` instead of `default_modl`?"
        );
    }
}

#[tokio::test]
async fn a_data_directory_inside_the_workspace_is_refused() {
    let place = Place::new();
    let inside = place.workspace().join("data");
    let arguments = [
        "run",
        "hi",
        "--json",
        "--data",
        inside.to_str().expect("text"),
    ];
    check_failure(
        &arguments,
        &place.run(&arguments).await,
        (2, "cli.data_in_workspace"),
    );
    assert!(!inside.exists());
}

/// One running mesh, and everything that needs one: starting it twice costs more than reading a longer test.
#[tokio::test]
async fn a_running_mesh_answers_every_verb() {
    let place = Place::new();
    let mut up = place.up().await;

    second_up_says_who_holds_the_directory(&place, &up).await;
    unknown_ids_are_told(&place).await;
    verb::every_verb_ends_by_the_table(&place).await;
    let (session, approval) = appr_6_a_run_without_a_terminal_ends_with_the_approval(&place).await;
    reading_commands_parse(&place, &session, &approval).await;
    live::a_message_behind_an_approval_shows_as_queued(&place).await;
    live::a_run_behind_an_approval_names_it_and_ends(&place).await;
    live::what_a_running_mesh_refuses_says_what_to_type_next(&place).await;
    live::a_bound_on_money_without_a_price_is_told(&place).await;
    live::a_model_that_nobody_has_is_refused_before_anything_is_sent(&place).await;
    live::a_policy_that_comes_later_is_in_force_and_a_bad_one_is_told(&place).await;
    live::a_full_device_fails_a_run(&place).await;
    appr_4_another_digest_approves_nothing(&place, &approval).await;
    a_closed_pipe_is_quiet(&place, &session).await;
    a_waiting_run_ends_when_somebody_decides_elsewhere(&place).await;
    an_approved_call_runs_and_a_stop_ends_the_turn(&place, &session, &approval).await;
    appr_1_an_answer_to_a_dead_request_says_why(&place, &approval).await;

    up.terminate();
    assert!(
        up.ended(Duration::from_mins(1)).await.success(),
        "{}",
        up.output()
    );
}

async fn second_up_says_who_holds_the_directory(place: &Place, up: &Process) {
    let arguments = ["up", "--json"];
    let output = place.run(&arguments).await;
    check_failure(&arguments, &output, (75, "host.held"));
    let message = document(&output)["error"]["message"].to_string();
    assert!(message.contains(&format!("pid {}", up.pid())), "{message}");
}

async fn unknown_ids_are_told(place: &Place) {
    for (arguments, want) in [
        (vec!["sessions", "show", "nope"], "session.not_found"),
        (vec!["sessions", "tail", "nope"], "session.not_found"),
        (vec!["sessions", "accept-loss", "nope"], "session.not_found"),
        (
            vec!["sessions", "accept-loss", "nope", "--yes"],
            "session.not_found",
        ),
        (vec!["approvals", "show", "apr_nope"], "approval.not_found"),
        (
            vec!["approvals", "approve", "apr_nope", "--yes"],
            "approval.not_found",
        ),
        (vec!["stop", "nope"], "session.not_found"),
        (vec!["events", "--session", "nope"], "session.not_found"),
        (vec!["functions", "info", "fs::nope"], "function.unknown"),
        (vec!["functions", "call", "fs::nope"], "function.unknown"),
    ] {
        let arguments = [arguments.as_slice(), &["--json"]].concat();
        check_failure(&arguments, &place.run(&arguments).await, (1, want));
    }
}

/// APPR-6: nobody can be asked, so the call is held, the id is printed, and the code says so.
async fn appr_6_a_run_without_a_terminal_ends_with_the_approval(place: &Place) -> (String, String) {
    let arguments = ["run", "hello", "--json"];
    let output = place.run(&arguments).await;
    check_failure(&arguments, &output, (3, "approval.pending"));
    let document = document(&output);
    assert_eq!(document["status"], "awaiting_approval");
    assert!(
        document["text"]
            .as_str()
            .expect("text")
            .contains("(scripted)")
    );
    let session = document["session"].as_str().expect("a session").to_owned();
    let approval = document["approvals"][0]
        .as_str()
        .expect("an approval")
        .to_owned();

    // The same key is never a second message: the same turn is told again, as text.
    let first = place
        .run(&["run", "hello", "--session", "keyed", "--key", "k"])
        .await;
    let again = place
        .run(&["run", "hello", "--session", "keyed", "--key", "k"])
        .await;
    assert_eq!((code(&first), code(&again)), (3, 3));
    assert_eq!(first.stdout, again.stdout);
    let arguments = [
        "run",
        "something else",
        "--session",
        "keyed",
        "--key",
        "k",
        "--json",
    ];
    let other = place.run(&arguments).await;
    assert_eq!(self::document(&other)["deduplicated"], true);
    let words = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(words.contains("was accepted then"), "{words}");
    let warnings = self::document(&other)["warnings"].to_string();
    assert!(warnings.contains("was accepted then"), "{warnings}");
    assert_eq!(document["deduplicated"], false);
    (session, approval)
}

async fn reading_commands_parse(place: &Place, session: &str, approval: &str) {
    for (arguments, field) in [
        (vec!["sessions", "ls"], "sessions"),
        (vec!["sessions", "show", session], "transcript"),
        (vec!["approvals", "ls"], "pending"),
        (vec!["approvals", "show", approval], "request"),
        (vec!["approvals", "history"], "entries"),
        (vec!["functions", "ls"], "functions"),
        (vec!["functions", "info", "fs::read"], "contract"),
        (
            vec![
                "functions",
                "call",
                "fs::read",
                "{\"path\":\"notes.md\"}",
                "--workspace",
                ".",
            ],
            "reply",
        ),
        (
            vec![
                "policy",
                "explain",
                "fs::write",
                "{\"path\":\"x\",\"content\":\"\"}",
            ],
            "judgement",
        ),
        (vec!["doctor"], "findings"),
    ] {
        let arguments = [arguments.as_slice(), &["--json"]].concat();
        let output = place.run(&arguments).await;
        assert_eq!(
            code(&output),
            0,
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!document(&output)[field].is_null(), "{arguments:?}");
    }
    let tail = place.run(&["sessions", "tail", session, "--jsonl"]).await;
    assert_eq!(code(&tail), 3);
    let events = lines(&tail);
    assert_eq!(events[0]["type"], "session_created");
    assert!(
        events
            .iter()
            .all(|event| event["n"].is_u64() && event["seq"].is_u64() && event["at_ms"].is_u64())
    );
    let explained = document(
        &place
            .run(&[
                "policy",
                "explain",
                "fs::write",
                "{\"path\":\"x\"}",
                "--json",
            ])
            .await,
    );
    assert_eq!(explained["judgement"]["effect"], "ask");
    let invalid = explained["invalid"].as_str().expect("what is missing");
    assert!(invalid.contains("\"content\" is missing"), "{invalid}");
    let shown = place
        .run(&["policy", "explain", "fs::write", "{\"path\":\"x\"}"])
        .await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("arguments  NOT VALID by the function's schema"),
        "{shown}"
    );
}

/// APPR-4: a decision is about the bytes that were seen.
async fn appr_4_another_digest_approves_nothing(place: &Place, approval: &str) {
    let other = "0".repeat(64);
    let arguments = [
        "approvals",
        "approve",
        approval,
        "--digest",
        &other,
        "--json",
    ];
    check_failure(
        &arguments,
        &place.run(&arguments).await,
        (2, "approval.stale_digest"),
    );
    let arguments = ["approvals", "approve", approval, "--json"];
    check_failure(
        &arguments,
        &place.run(&arguments).await,
        (2, "approval.digest_needed"),
    );
    let shown = document(&place.run(&["approvals", "show", approval, "--json"]).await);
    assert!(shown["resolution"].is_null(), "{shown}");
}

/// CLI-1: a reader that goes away is no failure and no noise.
async fn a_closed_pipe_is_quiet(place: &Place, session: &str) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = written_to(place, &["sessions", "show", session, "--jsonl"], writer).await;
    assert_eq!(
        (
            code(&output),
            String::from_utf8_lossy(&output.stderr).as_ref()
        ),
        (0, "")
    );
}

/// APPR-6: with `--approvals wait` the command waits for a decision that is made elsewhere.
async fn a_waiting_run_ends_when_somebody_decides_elsewhere(place: &Place) {
    let arguments = [
        "run",
        "hello",
        "--session",
        "waiting",
        "--approvals",
        "wait",
        "--json",
    ];
    let waiting = place.run(&arguments);
    let deciding = async {
        let list = ["approvals", "ls", "--session", "waiting", "--json"];
        let approval = wait::some(LIMIT, "the call is held", || async {
            let listed = document(&place.run(&list).await);
            listed["pending"][0]["request"]["approval_id"]
                .as_str()
                .map(str::to_owned)
        })
        .await;
        let denied = place
            .run(&[
                "approvals",
                "deny",
                &approval,
                "--reason",
                "not today",
                "--json",
            ])
            .await;
        assert_eq!(code(&denied), 0);
    };
    let (output, ()) = tokio::join!(waiting, deciding);
    let report = document(&output);
    assert_eq!(
        (code(&output), &report["status"]),
        (0, &"completed".into()),
        "{report}"
    );
    assert!(
        report["text"]
            .as_str()
            .expect("text")
            .contains("You said no")
    );
}

async fn an_approved_call_runs_and_a_stop_ends_the_turn(
    place: &Place,
    session: &str,
    approval: &str,
) {
    let shown = document(&place.run(&["approvals", "show", approval, "--json"]).await);
    let digest = shown["request"]["digest"]
        .as_str()
        .expect("a digest")
        .to_owned();
    let approved = place
        .run(&[
            "approvals",
            "approve",
            approval,
            "--digest",
            &digest,
            "--json",
        ])
        .await;
    assert_eq!(
        code(&approved),
        0,
        "{}",
        String::from_utf8_lossy(&approved.stderr)
    );
    let written = place.workspace().join("summary.md");
    wait::until(LIMIT, "the approved file is written", || async {
        written.exists()
    })
    .await;
    assert_eq!(code(&place.run(&["stop", session, "--json"]).await), 0);
    let tail = place.run(&["sessions", "tail", session, "--jsonl"]).await;
    assert_eq!(code(&tail), 130, "the slow answer was stopped");
    let last = lines(&tail).pop().expect("an event");
    assert_eq!(
        (&last["type"], &last["reason"]["type"]),
        (&"turn_ended".into(), &"cancelled".into())
    );
}

/// APPR-1: an answer to a dead request says why, and the list does not show it any longer.
async fn appr_1_an_answer_to_a_dead_request_says_why(place: &Place, approval: &str) {
    let arguments = ["approvals", "deny", approval, "--json"];
    let output = place.run(&arguments).await;
    check_failure(&arguments, &output, (1, "approval.not_pending"));
    assert!(
        document(&output)["error"]["message"]
            .as_str()
            .expect("text")
            .contains("approved by owner")
    );
    let listed = document(&place.run(&["approvals", "ls", "--json"]).await);
    let pending = listed["pending"].as_array().expect("a list");
    assert!(
        pending
            .iter()
            .all(|one| one["request"]["approval_id"] != approval)
    );
}

/// `run` starts a mesh by itself, and with `--approvals deny` says no in the user's name.
#[tokio::test]
async fn run_starts_a_mesh_in_the_background_which_ends_when_it_is_told() {
    let place = Place::new();
    let output = place
        .run(&["run", "hello", "--approvals", "deny", "--jsonl"])
        .await;
    assert_eq!(
        code(&output),
        4,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = lines(&output);
    assert_eq!(
        lines.last().expect("a line")["error"]["code"],
        "approval.denied"
    );
    let kinds: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["type"].as_str())
        .collect();
    for kind in [
        "session_created",
        "delta",
        "approval_requested",
        "approval_resolved",
        "turn_ended",
    ] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    assert!(!place.workspace().join("summary.md").exists());

    let pid = holder(&place.data());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    wait::until(LIMIT, "the mesh in the background ends", || async {
        nix::sys::signal::kill(pid, None).is_err()
    })
    .await;
}

fn holder(data: &Path) -> nix::unistd::Pid {
    let text = std::fs::read_to_string(data.join("up.lock")).expect("a lock");
    nix::unistd::Pid::from_raw(text.trim().parse().expect("a process"))
}
