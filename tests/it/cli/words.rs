//! What a user is told where something unusual lies in the way, and that what is to be typed next does what it says.

use std::{path::Path, process::Output};

use teamster_testkit::{Process, blocks, wait};

use super::{
    chat::{script, talking},
    check_failure,
    place::{LIMIT, Place, code, document, finding, lines},
};

async fn stop(mut up: Process) {
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn words_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

async fn say(place: &Place, session: &str, words: &str) {
    let options = [format!("--session={session}")];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let output = script(place, &options, format!("{words}\n").as_bytes()).await;
    assert_eq!(code(&output), 0, "{}", words_of(&output));
}

/// SEC-55: events whose stored bytes came to harm are named where they stand, in every form, and counted by doctor; those of a deleted
/// session, which are erased, are not taken for damage.
#[tokio::test]
async fn sec_55_damaged_events_are_told_by_events_and_doctor() {
    let place = talking();
    let up = place.up().await;
    say(&place, "gone", "a kiwi").await;
    say(&place, "kept", "a kiwi").await;
    let rm = place.run(&["sessions", "rm", "gone", "--yes"]).await;
    assert_eq!(code(&rm), 0, "{}", words_of(&rm));
    let all = async |options: &[&str]| {
        let arguments = [&["events", "--json"], options].concat();
        document(&place.run(&arguments).await)
    };
    // Of the deleted session nothing is left but that it was deleted.
    wait::until(LIMIT, "its events are erased", || async {
        let of_gone = all(&["--session", "gone"]).await;
        of_gone["events"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    let sound = all(&[]).await;
    assert_eq!(sound["unreadable"], serde_json::json!([]), "{sound}");
    let seqs: Vec<u64> = sound["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["seq"].as_u64())
        .collect();
    assert!(seqs.len() > 5, "{seqs:?}");
    let doctor = document(&place.run(&["doctor", "--json"]).await);
    assert!(!doctor.to_string().contains("stored event"), "{doctor}");
    stop(up).await;
    let (second, third, last) = (seqs[1], seqs[2], seqs[seqs.len() - 1]);
    for seq in [second, third, last] {
        blocks::damage(&place.data().join("nats"), "EVENTS", seq);
    }
    let up = place.up().await;
    let damaged = all(&[]).await;
    let range =
        |from: u64, to: u64| serde_json::json!({"from": from, "to": to, "count": to - from + 1});
    let mut holes = vec![range(second, third)];
    if third + 1 != second + 2 {
        holes = vec![range(second, second), range(third, third)];
    }
    holes.push(range(last, last));
    assert_eq!(damaged["unreadable"], serde_json::json!(holes), "{seqs:?}");
    assert_eq!(
        damaged["events"].as_array().map(Vec::len),
        Some(seqs.len() - 3)
    );
    let after = seqs[seqs.len() - 2].to_string();
    let told = place.run(&["events", "--after", &after]).await;
    assert_eq!(code(&told), 0);
    let words = words_of(&told);
    let want = format!("unreadable: the event {last} is stored and cannot be read");
    assert!(words.contains(&want), "{words}");
    let told = lines(&place.run(&["events", "--after", &after, "--jsonl"]).await);
    assert_eq!(
        told,
        [serde_json::json!({"type": "unreadable", "from": last, "to": last, "count": 1})]
    );
    // Whoever asks for one session is told as well: nobody knows whose they are.
    let one = place.run(&["events", "--session", "kept"]).await;
    let words = words_of(&one);
    assert!(
        words.contains("of which session and kind is not known"),
        "{words}"
    );
    let doctor = document(&place.run(&["doctor", "--json"]).await);
    let events = finding(&doctor, "events");
    assert_eq!(events["state"], "failed");
    let detail = events["detail"].as_str().expect("words");
    assert!(
        detail.starts_with("3 stored events cannot be read"),
        "{detail}"
    );
    assert!(events["hint"].is_string(), "{events}");
    stop(up).await;
}

/// A place beyond the end is one of events that began anew, or a slip: both are told what the end is now.
#[tokio::test]
async fn a_place_beyond_the_end_of_events_is_told_with_the_end() {
    let place = talking();
    let up = place.up().await;
    say(&place, "s", "a kiwi").await;
    let all = document(&place.run(&["events", "--json"]).await);
    let end = all["end"].as_u64().expect("an end");
    let beyond = (end + 1).to_string();
    let ahead = place.run(&["events", "--after", &beyond, "--jsonl"]).await;
    let told = lines(&ahead);
    let resync = serde_json::json!({"type": "resync", "after": end + 1, "first": 1, "end": end});
    assert_eq!(told[0], resync);
    assert_eq!(told.len(), 1 + all["events"].as_array().map_or(0, Vec::len));
    let words = text(&ahead.stderr);
    let says = format!("{beyond} lies beyond the end, which is {end} now");
    assert!(words.contains(&says), "{words}");
    assert!(!words.contains("not kept any more"), "{words}");
    assert!(
        words.contains(&format!("`--after {end} --follow`")),
        "{words}"
    );
    // Nothing is there: the place to go on from is the end, and not what was asked.
    let none = [
        "events",
        "--after",
        &beyond,
        "--kind",
        "meta-changed",
        "--json",
    ];
    let none = document(&place.run(&none).await);
    assert_eq!((&none["last"], &none["end"]), (&end.into(), &end.into()));
    let at_end = document(
        &place
            .run(&["events", "--after", &end.to_string(), "--json"])
            .await,
    );
    assert_eq!(at_end["resync"], false);
    stop(up).await;
}

/// Places that are no data directory are called what they are, and never a full disk.
#[tokio::test]
async fn a_place_that_is_no_data_directory_is_called_what_it_is() {
    let place = Place::new();
    std::fs::write(place.file("file"), "x").expect("written");
    let file = place.file("file").display().to_string();
    for (data, verbs, want) in [
        (file.as_str(), "all", (2, "cli.data_dir")),
        (&format!("{file}/below"), "all", (2, "cli.data_dir")),
        ("/proc/nope", "start", (69, "host.broker")),
        ("/proc/nope", "read", (69, "mesh.not_running")),
    ] {
        let starting = [&["run", "hi"][..], &["up"], &["send", "s", "hi"]];
        let reading = [
            &["sessions", "ls"][..],
            &["events"],
            &["stop", "s"],
            &["approvals", "ls"],
        ];
        let verbs = match verbs {
            "start" => starting.to_vec(),
            "read" => reading.to_vec(),
            _ => [&starting[..], &reading[..]].concat(),
        };
        for verb in verbs {
            let arguments = [verb, &["--data", data, "--json"]].concat();
            let output = place.run(&arguments).await;
            check_failure(&arguments, &output, want);
            let error = document(&output)["error"].clone();
            assert!(error["hint"].is_string(), "{arguments:?}: {error}");
            assert!(!words_of(&output).contains("full"), "{}", words_of(&output));
        }
    }
}

/// What stands in the way of the workers or of the operator names what to move away, and after that all goes on.
#[tokio::test]
async fn what_lies_in_the_place_of_a_file_of_the_data_directory_is_named_and_can_be_moved_away() {
    let place = talking();
    let up = place.up().await;
    say(&place, "s", "a kiwi").await;
    let ls = ["sessions", "ls", "--json"];
    let creds = place.data().join("credentials/operator.creds");
    let kept = std::fs::read(&creds).expect("credentials");
    for damage in [Some(&b"garbage"[..]), None] {
        match damage {
            Some(bytes) => std::fs::write(&creds, bytes).expect("written"),
            None => std::fs::remove_file(&creds).expect("removed"),
        }
        let output = place.run(&ls).await;
        check_failure(&ls, &output, (69, "mesh.credentials"));
        let hint = document(&output)["error"]["hint"].to_string();
        assert!(hint.contains("`kill "), "{hint}");
        assert_eq!(hint.contains("move "), damage.is_some(), "{hint}");
        let doctor = document(&place.run(&["doctor", "--json"]).await);
        let found = finding(&doctor, "credentials");
        assert_eq!(found["state"], "failed", "{found}");
        assert!(found["hint"].is_string(), "{found}");
    }
    std::fs::write(&creds, &kept).expect("written");
    assert_eq!(code(&place.run(&ls).await), 0);
    stop(up).await;
    let projection = place.data().join("session.sqlite");
    std::fs::remove_file(&projection).expect("removed");
    std::fs::create_dir_all(projection.join("mine")).expect("made");
    follow(&place, (69, "mesh.start_failed"), &projection).await;
    std::fs::write(&creds, "garbage").expect("written");
    follow(&place, (69, "mesh.start_failed"), &creds).await;
    // An empty directory is nobody's loss.
    std::fs::remove_file(&projection).expect("removed");
    std::fs::create_dir(&projection).expect("made");
    let up = place.up().await;
    let listed = document(&place.run(&ls).await);
    assert_eq!(listed["sessions"][0]["session"], "s", "{listed}");
    stop(up).await;
}

/// Does what a failed start says, word for word; then it starts.
async fn follow(place: &Place, want: (i32, &str), path: &Path) {
    let ls = ["sessions", "ls", "--json"];
    let output = place.run(&ls).await;
    check_failure(&ls, &output, want);
    let error = document(&output)["error"].clone();
    let message = error["message"].as_str().expect("words");
    assert!(message.contains(&path.display().to_string()), "{message}");
    assert!(!message.contains("next:"), "{message}");
    let hint = error["hint"].as_str().expect("a hint");
    let command = hint.split('`').nth(1).expect("a command");
    assert!(command.starts_with("mv "), "{hint}");
    let moved = std::process::Command::new("sh")
        .args(["-c", command])
        .status();
    assert!(moved.expect("a shell").success(), "{command}");
    let up = place.up().await;
    let listed = document(&place.run(&ls).await);
    assert_eq!(listed["sessions"][0]["session"], "s", "{listed}");
    stop(up).await;
    assert!(path.is_file(), "made anew");
}

/// `--deep` is asked for to have the logs read: where none answers that holds them, that is no success.
#[tokio::test]
async fn a_deep_look_without_a_server_says_that_no_log_was_read() {
    let place = talking();
    let deep = ["doctor", "--deep", "--json"];
    let none = finding(&document(&place.run(&deep).await), "sessions");
    assert_eq!(
        (&none["state"], &none["detail"]),
        (&"ok".into(), &"there are no logs yet".into())
    );
    let up = place.up().await;
    say(&place, "s", "a kiwi").await;
    stop(up).await;
    let output = place.run(&deep).await;
    assert_eq!(code(&output), 1);
    let sessions = finding(&document(&output), "sessions");
    assert_eq!(sessions["state"], "failed", "{sessions}");
    assert!(
        sessions["hint"].to_string().contains("teamster up"),
        "{sessions}"
    );
    let plain = place.run(&["doctor", "--json"]).await;
    assert!(
        !words_of(&plain).contains("were not read"),
        "{}",
        words_of(&plain)
    );
}

/// A session may begin with a dash. What is told to be typed about it is not read as an option.
#[tokio::test]
async fn a_command_about_a_session_that_begins_with_a_dash_can_be_typed() {
    let place = talking();
    let up = place.up().await;
    say(&place, "-x y", "a kiwi").await;
    let sent = place.run(&["send", "--", "-x y", "a pear"]).await;
    let rm = place.run(&["sessions", "accept-loss", "--", "-x y"]).await;
    let mut typed = 0;
    for output in [sent, rm] {
        let words = words_of(&output);
        let commands = words.split("teamster ").skip(1);
        for command in commands {
            let command = command.split(['`', '\n', ';']).next().unwrap_or_default();
            if !command.contains("-x y") {
                continue;
            }
            typed += 1;
            let line = format!("{} {command}", env!("CARGO_BIN_EXE_teamster"));
            let shell = std::process::Command::new("sh")
                .args(["-c", &line])
                .env("TEAMSTER_DATA", place.data())
                .current_dir(place.workspace())
                .output()
                .expect("a shell");
            let said = words_of(&shell);
            assert!([0, 2].contains(&code(&shell)), "{line}: {said}");
            assert!(
                !said.contains("cli.usage") && !said.contains("Usage:"),
                "{line}: {said}"
            );
        }
    }
    assert!(typed >= 3, "{typed}");
    stop(up).await;
}

/// A line that was cut for people says so in words that every way of showing leaves as they are.
#[tokio::test]
async fn what_was_left_out_is_said_without_an_escape() {
    let place = talking();
    let up = place.up().await;
    let arguments = [
        "policy",
        "explain",
        "fs::write",
        r#"{"path":"a.pem","content":""}"#,
    ];
    let explained = words_of(&place.run(&arguments).await);
    assert!(explained.contains("bytes left out]"), "{explained}");
    assert!(!explained.contains("\\u2026"), "{explained}");
    stop(up).await;
}

/// Whatever is wrong with a word of a command, what to type next is said, and the code is that of the table.
#[tokio::test]
async fn a_wrong_word_of_a_command_says_what_to_type_next() {
    let place = talking();
    let up = place.up().await;
    say(&place, "s", "a kiwi").await;
    let file = place.file("file").display().to_string();
    std::fs::write(&file, "x").expect("written");
    let long = "k".repeat(100_000);
    let number = place.file("number.yaml").display().to_string();
    std::fs::write(&number, "harness: {default_model: 5}").expect("written");
    for (arguments, want, says) in [
        (
            &["config", "apply", &number][..],
            (2, "config.refused"),
            "apply it again",
        ),
        (
            &["approvals", "ls", "--session", "none"][..],
            (1, "session.not_found"),
            "sessions ls",
        ),
        (
            &["approvals", "history", "--session", "none"],
            (1, "session.not_found"),
            "sessions ls",
        ),
        (
            &[
                "functions",
                "call",
                "fs::read",
                "{\"path\":\"x\"}",
                "--session",
                "none",
            ],
            (1, "session.not_found"),
            "sessions ls",
        ),
        (
            &["functions", "call", "fs::read", "{\"path\":\"x\"}"],
            (2, "fs.no_workspace"),
            "`--workspace DIR`",
        ),
        (
            &["run", "hi", "--workspace", &file],
            (2, "cli.workspace"),
            "`--workspace DIR`",
        ),
        (
            &["config", "unset", ""],
            (2, "config.key"),
            "config explain",
        ),
        (
            &["config", "get", &long],
            (2, "config.key"),
            "config explain",
        ),
        (
            &["--nats", "http://127.0.0.1:1", "sessions", "ls"],
            (2, "mesh.address"),
            "nats://HOST:PORT",
        ),
        (
            &["--nats", "nats://127.0.0.1:99999", "events"],
            (2, "mesh.address"),
            "nats://HOST:PORT",
        ),
        (
            &["--nats", "http://x", "worker", "router"],
            (2, "host.topology"),
            "nats://HOST:PORT",
        ),
    ] {
        let arguments = [arguments, &["--json"]].concat();
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, want);
        let error = document(&output)["error"].clone();
        let hint = error["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(says), "{arguments:?}: {error}");
        assert!(output.stderr.len() < 10_000, "{}", output.stderr.len());
    }
    for (arguments, says) in [
        (
            &["functions", "ls", "none"][..],
            "`teamster functions ls` lists all",
        ),
        (
            &["sessions", "tail", "s", "--after", "999"],
            "nothing stands behind 999 yet",
        ),
        (&["config", "apply", "/dev/null"], "nothing was changed"),
    ] {
        let output = place.run(arguments).await;
        assert_eq!(code(&output), 0, "{arguments:?}");
        let words = text(&output.stderr);
        assert!(words.contains(says), "{arguments:?}: {words}");
    }
    stop(up).await;
}
