//! What a running mesh tells that is easily kept quiet: what waits, what is not bounded, which policy is in force.

use teamster_testkit::wait;

use super::{
    chat::talking,
    check_failure,
    place::{LIMIT, Place, code, document, finding, written_to},
};

pub(super) async fn a_message_behind_an_approval_shows_as_queued(place: &Place) {
    let show = ["sessions", "show", "keyed", "--json"];
    assert_eq!(document(&place.run(&show).await)["queued"], 0);
    assert_eq!(code(&place.run(&["send", "keyed", "and then?"]).await), 0);
    let shown = document(&place.run(&show).await);
    assert_eq!(
        (&shown["queued"], &shown["status"]),
        (&1.into(), &"waiting".into())
    );
}

/// The message is stored, nobody can be asked, and the turn in front goes no further by itself.
pub(super) async fn a_run_behind_an_approval_names_it_and_ends(place: &Place) {
    let listed = ["approvals", "ls", "--session", "keyed", "--json"];
    let waiting =
        document(&place.run(&listed).await)["pending"][0]["request"]["approval_id"].clone();
    let arguments = ["run", "and now?", "--session", "keyed", "--json"];
    let output = place.run(&arguments).await;
    check_failure(&arguments, &output, (3, "approval.pending"));
    let report = document(&output);
    assert_eq!(
        (&report["status"], &report["approvals"]),
        (&"awaiting_approval".into(), &serde_json::json!([waiting]))
    );
}

/// CLI-1: what the mesh or a worker refuses has a next step for a shell.
pub(super) async fn what_a_running_mesh_refuses_says_what_to_type_next(place: &Place) {
    let outside = r#"{"argv":["true"],"files":[{"path":"../x","content":""}]}"#;
    for (arguments, hint) in [
        (
            vec!["config", "set", "harness.default_max_turns", "abc"],
            "teamster config explain harness.default_max_turns",
        ),
        (
            vec!["config", "unset", "harness.nothing"],
            "teamster config explain harness",
        ),
        (
            vec!["functions", "call", "fs::read", "{}"],
            "teamster functions info fs::read",
        ),
        (
            vec![
                "functions",
                "call",
                "sandbox::exec",
                r#"{"argv":[]}"#,
                "--workspace",
                ".",
            ],
            "teamster functions info sandbox::exec",
        ),
        (
            vec![
                "functions",
                "call",
                "sandbox::exec",
                outside,
                "--workspace",
                ".",
            ],
            "below the workspace",
        ),
        (
            vec!["sessions", "fork", "keyed", "--id", "keyed"],
            "another --id",
        ),
        (
            vec!["sessions", "accept-loss", "keyed"],
            "teamster sessions accept-loss --yes keyed",
        ),
    ] {
        let arguments = [arguments.as_slice(), &["--json"]].concat();
        let told = document(&place.run(&arguments).await);
        let next = told["error"]["hint"].as_str().unwrap_or_default();
        assert!(next.contains(hint), "{arguments:?}: {told}");
    }
    let key = "router.providers.scripted.scripts.y";
    let told = document(
        &place
            .run(&["config", "set", key, "/nowhere/at/all", "--json"])
            .await,
    );
    let message = told["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("/nowhere/at/all"), "{told}");
}

#[tokio::test]
async fn what_waits_what_is_stopped_and_what_is_gone_is_told() {
    let place = talking();
    let mut up = place.up().await;
    all_open_requests_are_named(&place).await;
    a_stop_says_what_begins_next(&place).await;
    a_message_to_a_deleted_session_says_that_it_begins_anew(&place).await;
    a_printed_command_is_safe_to_paste(&place).await;
    a_request_has_one_form_and_outlives_its_session_by_name(&place).await;
    what_is_just_answered_does_not_wait(&place).await;
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// Three verbs show a request in one form; once its session is deleted, that is said, and not that there never was one.
async fn a_request_has_one_form_and_outlives_its_session_by_name(place: &Place) {
    let run = ["run", "write", "--session", "asks", "--json"];
    let id = document(&place.run(&run).await)["approvals"][0].clone();
    let id = id.as_str().expect("an id");
    let json = async |arguments: &[&str]| {
        let arguments = [arguments, &["--json"]].concat();
        document(&place.run(&arguments).await)
    };
    let listed = json(&["approvals", "ls", "--session", "asks"]).await["pending"][0].clone();
    let shown = json(&["approvals", "show", id]).await;
    assert_eq!(listed["request"], shown["request"], "{listed}");
    assert!(listed["request"]["digest"].is_string(), "{listed}");
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect();
        keys.retain(|key| key != "v" && key != "type");
        keys
    };
    assert_eq!(keys(&listed), keys(&shown));
    let past = json(&["approvals", "history", "--session", "asks"]).await["entries"][0].clone();
    assert_eq!(past["request"], shown["request"], "{past}");

    assert_eq!(
        code(&place.run(&["sessions", "rm", "asks", "--yes"]).await),
        0
    );
    for arguments in [
        ["approvals", "show", id, "--json"].as_slice(),
        &["approvals", "approve", id, "--yes", "--json"],
        &["approvals", "deny", id, "--json"],
    ] {
        let output = place.run(arguments).await;
        check_failure(arguments, &output, (1, "approval.session_deleted"));
        let hint = document(&output)["error"]["hint"].to_string();
        assert!(
            hint.contains("teamster approvals history --session=asks"),
            "{hint}"
        );
    }
    let stop = ["stop", "asks", "--json"];
    check_failure(&stop, &place.run(&stop).await, (1, "session.not_found"));
}

/// A message whose answer has just ended is held a moment longer by the queue; it does not wait.
async fn what_is_just_answered_does_not_wait(place: &Place) {
    for _ in 0..5 {
        let chat = super::chat::script(place, &["--session", "quick"], b"text\n/status\n").await;
        let words = String::from_utf8_lossy(&chat.stderr).into_owned();
        assert!(words.contains("turn "), "the status was shown: {words}");
        assert!(!words.contains("queued"), "{words}");
        let shown = document(&place.run(&["sessions", "show", "quick", "--json"]).await);
        assert_eq!(shown["queued"], 0, "{shown}");
    }
}

/// CLI-1: a command that is printed means to a shell what it says, whatever a session is called.
async fn a_printed_command_is_safe_to_paste(place: &Place) {
    const ID: &str = "x; touch y #";
    let quoted = format!("'{ID}'");
    let (mut commands, mut plain) = (0, Vec::new());
    let mut look = |arguments: &[&str], output: &std::process::Output| {
        for text in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(text).into_owned();
            for line in text.lines() {
                let Some((_, after)) = line.split_once("teamster ") else {
                    continue;
                };
                let named = after.matches(ID).count();
                commands += named;
                if named != after.matches(&quoted).count() {
                    plain.push(format!("{arguments:?}: {line}"));
                }
            }
        }
    };
    for arguments in [
        ["run", "write", "--session", ID].as_slice(),
        &["run", "more", "--session", ID],
        &["send", ID, "and more"],
        &["send", ID, ""],
        &["sessions", "show", ID],
        &["sessions", "fork", ID, "--id", "; rm -rf"],
        &["sessions", "fork", ID, "--at", "99"],
        &["sessions", "accept-loss", ID],
        &["sessions", "rm", ID],
        &["sessions", "tail", ID],
        &["sessions", "export", ID],
        &["approvals", "ls"],
        &["approvals", "history", "--session", ID],
        &["stop", ID],
        &["run", "last", "--session", ID, "--approvals", "deny"],
        &["run", "again", "--session", ID, "--model", "nobody/x"],
        &["sessions", "rm", ID, "--yes"],
        &["sessions", "show", ID],
        &["sessions", "tail", ID],
    ] {
        look(arguments, &place.run(arguments).await);
    }
    let chat = super::chat::script(place, &["--session", ID], b"text\n").await;
    look(&["chat"], &chat);
    assert_eq!(plain, Vec::<String>::new());
    assert!(
        commands >= 8,
        "commands with the id were printed: {commands}"
    );
}

async fn all_open_requests_are_named(place: &Place) {
    for message in ["both", "and more"] {
        let arguments = ["run", message, "--session", "two", "--json"];
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, (3, "approval.pending"));
        let report = document(&output);
        let approvals = report["approvals"].as_array().expect("a list");
        assert_eq!(approvals.len(), 2, "{report}");
        let told = report["error"]["message"].as_str().expect("text");
        for approval in approvals {
            assert!(told.contains(approval.as_str().expect("text")), "{told}");
        }
    }
    let output = place.run(&["run", "text", "--session", "two"]).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        text.lines().filter(|line| line.starts_with("apr_")).count(),
        2,
        "{text}"
    );
    // A no in the user's name is a no to all of them, and the messages behind them are answered.
    let arguments = [
        "run",
        "last",
        "--session",
        "two",
        "--approvals",
        "deny",
        "--json",
    ];
    let denied = place.run(&arguments).await;
    assert_eq!(
        code(&denied),
        4,
        "{}",
        String::from_utf8_lossy(&denied.stderr)
    );
}

async fn a_stop_says_what_begins_next(place: &Place) {
    let running = |output: std::process::Output| document(&output)["status"] == "running";
    assert_eq!(code(&place.run(&["send", "slow", "for ever"]).await), 0);
    wait::until(LIMIT, "the slow answer has begun", || async {
        running(place.run(&["sessions", "show", "slow", "--json"]).await)
    })
    .await;
    let alone = place.run(&["stop", "slow"]).await;
    let words = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(!words.contains("begins a new turn"), "{words}");
    wait::until(LIMIT, "the turn has ended", || async {
        !running(place.run(&["sessions", "show", "slow", "--json"]).await)
    })
    .await;
    let idle = place.run(&["stop", "slow"]).await;
    let text = String::from_utf8_lossy(&idle.stdout).into_owned();
    assert!(text.contains("nothing is stopped"), "{text}");

    assert_eq!(code(&place.run(&["send", "next", "for ever"]).await), 0);
    wait::until(LIMIT, "the slow answer has begun", || async {
        running(place.run(&["sessions", "show", "next", "--json"]).await)
    })
    .await;
    assert_eq!(code(&place.run(&["send", "next", "hello"]).await), 0);
    let stopped = place.run(&["stop", "next"]).await;
    let words = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(words.contains("1 message in its queue"), "{words}");
    assert!(words.contains("begins a new turn"), "{words}");
}

async fn a_message_to_a_deleted_session_says_that_it_begins_anew(place: &Place) {
    let run = [
        "run",
        "write",
        "--session",
        "gone",
        "--approvals",
        "deny",
        "--json",
    ];
    let remove = ["sessions", "rm", "gone", "--yes"];
    let first = document(&place.run(&run).await);
    assert_eq!(first["warnings"], serde_json::json!([]), "{first}");
    for verb in ["run", "send", "chat"] {
        let removed = place.run(&remove).await;
        assert_eq!(
            code(&removed),
            0,
            "{}",
            String::from_utf8_lossy(&removed.stderr)
        );
        let output = match verb {
            "run" => place.run(&run).await,
            "send" => place.run(&["send", "gone", "write", "--json"]).await,
            _ => super::chat::script(place, &["--session", "gone", "--json"], b"write\n").await,
        };
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            words.contains("session gone was deleted on"),
            "{verb}: {words}"
        );
        if verb != "chat" {
            let warned = document(&output)["warnings"][0].to_string();
            assert!(warned.contains("was deleted on"), "{verb}: {warned}");
        }
        // It has what every new session has: functions, and a workspace for them.
        wait::until(LIMIT, "the new session asks for its write", || async {
            let history = document(
                &place
                    .run(&["approvals", "history", "--session", "gone", "--json"])
                    .await,
            );
            let entries = history["entries"].as_array().cloned().unwrap_or_default();
            entries
                .iter()
                .any(|entry| entry["request"]["function"] == "fs::write")
        })
        .await;
        let shown = document(&place.run(&["sessions", "show", "gone", "--json"]).await);
        assert!(shown["workspace"].is_string(), "{verb}: {shown}");
    }
}

pub(super) async fn a_bound_on_money_without_a_price_is_told(place: &Place) {
    for (model, told) in [("ollama/nobody-priced-this", 1), ("scripted/guided", 0)] {
        let arguments = [
            "send",
            "money",
            "hi",
            "--model",
            model,
            "--max-cost-usd",
            "1",
            "--json",
        ];
        let output = place.run(&arguments).await;
        assert_eq!(code(&output), 0);
        let warnings = document(&output)["warnings"].clone();
        assert_eq!(
            warnings.as_array().map(Vec::len),
            Some(told),
            "{model}: {warnings}"
        );
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(words.contains("bounds nothing"), told == 1, "{words}");
    }
}

pub(super) async fn a_policy_that_comes_later_is_in_force_and_a_bad_one_is_told(place: &Place) {
    let path = place.data().join("policy.yaml");
    let explain = [
        "policy",
        "explain",
        "fs::write",
        "{\"path\":\"x\"}",
        "--json",
    ];
    for (text, effect, note) in [
        (
            Some("{version: 1, layers: [{name: workspace}], defaults: {write: deny}}"),
            "deny",
            None,
        ),
        (Some("version: 1\nlayer: []\n"), "deny", Some("line 2")),
        (None, "ask", Some("is gone")),
    ] {
        match text {
            Some(text) => std::fs::write(&path, text).expect("written"),
            None => std::fs::remove_file(&path).expect("removed"),
        }
        wait::until(LIMIT, "the gate has seen the policy file", || async {
            let reply = document(&place.run(&explain).await);
            let told = reply["note"].as_str();
            reply["judgement"]["effect"] == effect
                && match note {
                    Some(note) => told.is_some_and(|told| told.contains(note)),
                    None => told.is_none(),
                }
        })
        .await;
        let live = finding(
            &document(&place.run(&["doctor", "--json"]).await),
            "policy-live",
        );
        // Nobody names the file, so that to remove it is how it is taken back.
        let state = match (note, text) {
            (None, _) => "ok",
            (Some(_), Some(_)) => "failed",
            (Some(_), None) => "warning",
        };
        assert_eq!(live["state"], state, "{live}");
    }
}

pub(super) async fn a_full_device_fails_a_run(place: &Place) {
    for form in [
        ["--approvals", "deny"].as_slice(),
        &["--approvals", "deny", "--json"],
    ] {
        let arguments = [&["run", "hello"], form].concat();
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device");
        let output = written_to(place, &arguments, full).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!([1, 4].contains(&code(&output)), "{words}");
        assert!(words.contains("cannot write to standard output"), "{words}");
    }
}

/// A model that no provider has can only fail: its message is refused like any other wrong argument, and nothing is stored.
pub(super) async fn a_model_that_nobody_has_is_refused_before_anything_is_sent(place: &Place) {
    for (arguments, says) in [
        (
            ["run", "hi", "--session", "modelless", "--model", "nobody/x"],
            "no provider called",
        ),
        (
            [
                "run",
                "hi",
                "--session",
                "modelless",
                "--model",
                "scripted/x",
            ],
            "no script called",
        ),
        (
            [
                "send",
                "modelless",
                "hi",
                "--max-calls",
                "3",
                "--model=nobody/x",
            ],
            "no provider called",
        ),
        (
            [
                "chat",
                "--session",
                "modelless",
                "--approvals",
                "deny",
                "--model=nobody/x",
            ],
            "no provider called",
        ),
    ] {
        let arguments = [&arguments[..], &["--json"]].concat();
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, (2, "router.unknown_model"));
        let told = document(&output)["error"].clone();
        assert!(told["message"].to_string().contains(says), "{told}");
        assert!(told["hint"].to_string().contains("scri"), "{told}");
    }
    let chat = super::chat::script(place, &["--json"], b"/model nobody/x\nhello\n").await;
    check_failure(&["chat", "--json"], &chat, (2, "router.unknown_model"));
    assert_eq!(document(&chat)["turns"], serde_json::json!([]));
    let shown = place
        .run(&["sessions", "show", "modelless", "--json"])
        .await;
    check_failure(&["sessions", "show"], &shown, (1, "session.not_found"));
}
