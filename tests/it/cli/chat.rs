//! `teamster chat`: scripts, a person at a terminal, and a server that is killed under both.

use std::{fs::File, process::Output};

use serde_json::Value;
use teamster_testkit::{Process, wait};
use tokio::process::Command;

use super::{
    check_failure,
    place::{LIMIT, Place, code, document, lines, written_to},
    terminal::Terminal,
};

const SCRIPT: &str = r#"
rules:
  - when: {last_role: user, contains: for ever}
    pace_ms: 2000
    say: one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
  - when: {last_role: user, contains: slow}
    pace_ms: 120
    say: >-
      alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa quebec romeo
      sierra tango uniform victor whiskey xray yankee zulu
  - when: {last_role: user, contains: both}
    say: I ask for two.
    calls:
      - function: fs::write
        arguments: {path: one.md, content: one}
      - function: fs::write
        arguments: {path: two.md, content: two}
  - when: {last_role: user, contains: write}
    say: I ask to write.
    calls:
      - function: fs::write
        arguments: {path: made.md, content: "one\ntwo\n"}
  - when: {last_role: result, outcome: ok}
    say: It is written.
  - when: {last_role: result}
    say: It is not written.
  - when: {last_role: user}
    say: "You said: {message}"
"#;

/// A place whose model is a script that talks.
pub fn talking() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    let script = place.file("talk.yaml");
    std::fs::write(&script, SCRIPT).expect("a file");
    let config = format!(
        "harness: {{default_model: scripted/talk}}\nrouter: {{providers: {{scripted: {{scripts: {{talk: {}}}}}}}}}\n",
        script.display()
    );
    std::fs::write(place.data().join("config.yaml"), config).expect("a file");
    place
}

/// Runs `chat` with these bytes as its standard input.
pub async fn script(place: &Place, arguments: &[&str], input: &[u8]) -> Output {
    let path = place.file("input");
    std::fs::write(&path, input).expect("a file");
    let mut command = place.command(&[&["chat"], arguments].concat());
    command.stdin(File::open(&path).expect("a file"));
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    wait::within(LIMIT, "a script ends", command.output())
        .await
        .expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[tokio::test]
async fn cli_1_a_script_is_answered_line_by_line() {
    let place = talking();
    let mut up = place.up().await;

    let output = script(
        &place,
        &["--session", "first"],
        b"hello\n\none\\\ntwo\n\"\"\"\nblock\n\"\"\"\n//slash\n/cost\n\x1b[2J\xc2\x9b2Jesc",
    )
    .await;
    assert_eq!(
        code(&output),
        0,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        said(&output),
        "You said: hello\nYou said: one\ntwo\nYou said: block\nYou said: /slash\nYou said: \\u{1b}[2J\\u{9b}2Jesc\n"
    );

    the_code_is_that_of_the_last_turn(&place).await;
    what_cannot_be_meant_ends_a_script(&place).await;
    lines_and_documents_parse(&place).await;
    the_last_session_goes_on(&place).await;

    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

async fn the_code_is_that_of_the_last_turn(place: &Place) {
    let deny = ["--approvals", "deny", "--json", "--session", "denied"];
    let output = script(place, &deny, b"write\n").await;
    assert_eq!(code(&output), 4);
    let output = script(place, &deny, b"write\nhello\n").await;
    let told = document(&output);
    assert_eq!(code(&output), 0, "{told}");
    assert_eq!(told["turns"].as_array().map(Vec::len), Some(2));
    assert_eq!(told["turns"][0]["error"]["code"], "approval.denied");
    assert_eq!(told["turns"][1]["text"], "You said: hello");

    let arguments = ["chat", "--json", "--session", "held"];
    let output = script(place, &arguments[1..], b"write\nhello\n\nhow are you").await;
    check_failure(&arguments, &output, (3, "approval.pending"));
    assert_eq!(document(&output)["turns"][0]["status"], "awaiting_approval");
    // What was meant to follow is not dropped in silence.
    let error = &document(&output)["error"];
    let words = error["message"].as_str().expect("words");
    assert!(
        words.ends_with("2 further lines of the input (from line 2 on) were not sent"),
        "{words}"
    );
    let next = error["hint"].as_str().expect("a hint");
    assert!(
        next.ends_with("send the rest with: teamster chat --session=held"),
        "{next}"
    );
    let output = script(place, &["--session", "held as text"], b"write\n").await;
    let last = said(&output).lines().last().map(str::to_owned);
    assert!(
        last.is_some_and(|line| line.starts_with("apr_")),
        "{}",
        said(&output)
    );
}

async fn what_cannot_be_meant_ends_a_script(place: &Place) {
    let long = [vec![b'x'; 200_000], b"\n".to_vec()].concat();
    for (input, want) in [
        (&b"\n/nonsense\nhello\n"[..], "cli.command"),
        (b"\"\"\"\nhello\n", "cli.open_message"),
        (b"\xff\xfe\n", "cli.stdin"),
        (&long, "cli.message_too_long"),
    ] {
        let arguments = ["chat", "--json", "--session", "wrong"];
        let output = script(place, &arguments[1..], input).await;
        check_failure(&arguments, &output, (2, want));
        assert_eq!(document(&output)["turns"], serde_json::json!([]));
        let told = document(&output)["error"]["message"].to_string();
        let unread = match want {
            "cli.command" => Some("line 2 of the input: there is no command /nonsense"),
            "cli.open_message" => None,
            _ => Some("line 1 of the input: "),
        };
        assert_eq!(told.contains("were not read"), unread.is_some(), "{told}");
        assert!(told.contains(unread.unwrap_or_default()), "{told}");
    }
}

async fn lines_and_documents_parse(place: &Place) {
    // A delta comes at most once, and not at all where the answer is stored before the reader has begun.
    wait::until(LIMIT, "deltas are shown", || async {
        let output = script(place, &["--jsonl"], b"hello\n").await;
        let kinds: Vec<String> = lines(&output)
            .iter()
            .filter_map(|line| line["type"].as_str().map(str::to_owned))
            .collect();
        let has = |kind: &str| kinds.iter().any(|one| one == kind);
        assert!(has("session_created") && has("turn_ended"), "{kinds:?}");
        has("delta")
    })
    .await;
    let nothing = script(place, &["--json"], b"").await;
    assert_eq!(
        (code(&nothing), &document(&nothing)["turns"]),
        (0, &serde_json::json!([]))
    );

    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    std::fs::write(place.file("input"), "hello\nhello again\n").expect("a file");
    let mut command = place.command(&["chat", "-q"]);
    command
        .stdin(File::open(place.file("input")).expect("a file"))
        .stdout(writer)
        .stderr(std::process::Stdio::piped());
    let child = Command::from(command).spawn().expect("it starts");
    let output = wait::within(LIMIT, "it ends", child.wait_with_output())
        .await
        .expect("it ends");
    assert_eq!((code(&output), output.stderr.len()), (0, 0));
}

async fn the_last_session_goes_on(place: &Place) {
    let first = document(&script(place, &["--json", "--session", "newest"], b"hello\n").await);
    let again = document(&script(place, &["--json", "--last"], b"and on\n").await);
    assert_eq!(
        (&first["session"], &again["session"]),
        (&"newest".into(), &"newest".into())
    );
    let arguments = ["chat", "--last", "--json", "--session", "x"];
    check_failure(
        &arguments,
        &script(place, &arguments[1..], b"").await,
        (2, "cli.usage"),
    );
}

/// Waits until no turn of the session runs.
async fn is_idle(place: &Place, session: &str) {
    wait::until(LIMIT, "no turn runs", || async {
        let shown = document(&place.run(&["sessions", "show", session, "--json"]).await);
        shown["status"] == "idle"
    })
    .await;
}

/// Waits until the session is known to have had so many turns, which follows its log within moments.
async fn has_turns(place: &Place, session: &str, turns: u64) {
    wait::until(LIMIT, "the turns are counted", || async {
        let shown = document(&place.run(&["sessions", "show", session, "--json"]).await);
        shown["turns"] == turns
    })
    .await;
}

#[tokio::test]
async fn a_person_talks_steers_and_decides_in_place() {
    let place = talking();
    let mut up = place.up().await;
    let mut terminal = Terminal::spawn(&place, &["chat", "--session", "me"]);
    terminal.shows("/help lists").await;
    terminal.type_in("hello\n");
    terminal.shows("You said: hello").await;
    terminal.shows("completed · 1 step").await;

    steer(&mut terminal).await;
    // The second message joined the second turn.
    has_turns(&place, "me", 2).await;
    decide(&place, &mut terminal).await;
    stop(&mut terminal).await;

    terminal.type_in("\x04");
    assert!(terminal.ended().await.success());
    terminal
        .shows("come back with: teamster chat --session=me")
        .await;
    assert!(terminal.is_as_before());

    let mut again = Terminal::spawn(&place, &["chat", "--last", "--no-color"]);
    again.shows("> count for ever").await;
    again.type_in("/model\n/status\n/cost\nhello again\n");
    for text in [
        "model of the session: scripted/talk",
        "status     idle",
        "5 turns",
        "You said: hello again",
    ] {
        again.shows(text).await;
    }
    again.type_in("/quit\n");
    assert!(again.ended().await.success());
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// What is typed while text streams is not torn, joins the turn, and the text stands there whole.
async fn steer(terminal: &mut Terminal) {
    terminal.type_in("slow please\n");
    terminal.shows("bravo charlie").await;
    terminal.type_in("more");
    wait::until(LIMIT, "the line is drawn", || async {
        terminal.last_row() == "(steers) > more"
    })
    .await;
    let before = terminal.written().len();
    terminal.type_in("\x1b[D\x1b[Dx\x7f");
    wait::until(LIMIT, "the line is drawn again", || async {
        terminal.written().len() > before && terminal.last_row() == "(steers) > more"
    })
    .await;
    terminal.type_in("\x05over\n");
    terminal.shows("You said: moreover").await;
    let page = terminal
        .page()
        .replace('\n', "")
        .replace("(steers) > more", "");
    for word in ["alpha", "mike", "zulu"] {
        assert_eq!(page.matches(word).count(), 1, "{word}: {page}");
    }
    terminal.shows_times("completed · ", 2).await;
}

async fn decide(place: &Place, terminal: &mut Terminal) {
    terminal.type_in("write it\n");
    terminal.shows("run exactly this?").await;
    terminal.shows("sha256").await;
    terminal.type_in("d\n");
    terminal.shows("  | two").await;
    terminal.type_in("ok\n");
    terminal.shows("? ok").await;
    assert!(!place.workspace().join("made.md").exists());
    terminal.type_in("y\n");
    terminal.shows("It is written.").await;
    assert!(place.workspace().join("made.md").exists());
    terminal.shows_times("completed · ", 3).await;

    terminal.type_in("write it again\n");
    wait::until(LIMIT, "the second question", || async {
        terminal.last_row().starts_with("run exactly this?")
    })
    .await;
    terminal.interrupt();
    terminal
        .shows("is not decided; /approvals asks again")
        .await;
    terminal.type_in("/approvals\n");
    wait::until(LIMIT, "asked again", || async {
        terminal.last_row().starts_with("run exactly this?")
    })
    .await;
    terminal.type_in("n not now\n");
    terminal.shows("It is not written.").await;
    terminal.shows_times("completed · ", 4).await;
}

/// Ctrl-C once asks, twice stops. On a slow machine the second may come too late; then it asks once more.
async fn stop(terminal: &mut Terminal) {
    terminal.type_in("count for ever\n");
    terminal.shows("one two").await;
    let asks = |terminal: &Terminal| terminal.page().matches("Ctrl-C once more within").count();
    let asked = asks(terminal);
    while !terminal.page().contains("stopping the turn") {
        let before = asks(terminal);
        terminal.interrupt();
        wait::until(LIMIT, "Ctrl-C is heard", || async {
            asks(terminal) > before || terminal.page().contains("stopping the turn")
        })
        .await;
    }
    assert!(asks(terminal) > asked, "the first only asks");
    terminal.shows("cancelled · 1 step").await;
}

/// WEB-1: a server that is killed while an answer streams costs no text and repeats none.
#[tokio::test]
async fn web_1_a_killed_server_costs_no_text_and_doubles_none() {
    let place = talking();
    let mut up: Process = place.up().await;
    let mut terminal = Terminal::spawn(&place, &["chat", "--session", "cut"]);
    terminal.type_in("slow please\n");
    terminal.shows("bravo charlie").await;
    let server = server(&place);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(server).expect("a process"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    terminal.shows("completed · 1 step").await;
    let page = terminal.page();
    let text = page.replace('\n', " ");
    assert_eq!(text.matches("zulu").count(), 1, "{page}");
    // Where the answer had to be begun again and came otherwise, that is said.
    let begun = 1 + text.matches("was cut off").count();
    assert_eq!(text.matches("alpha").count(), begun, "{page}");
    terminal.type_in("hello\n");
    terminal.shows("You said: hello").await;
    terminal.type_in("\x04");
    assert!(terminal.ended().await.success());
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// What is pasted is one message; an editor gets the terminal for itself; a decision elsewhere gives the typed line back.
#[tokio::test]
async fn a_person_pastes_edits_and_is_overtaken() {
    let place = talking();
    let mut up = place.up().await;
    let editor = place.file("editor");
    std::fs::write(&editor, "#!/bin/sh\nsed -i s/made.md/edited.md/ \"$1\"\n").expect("a file");
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("set");
    let editor = editor.to_str().expect("text");
    let environment = [("VISUAL", editor), ("EDITOR", editor)];
    let mut terminal = Terminal::spawn_with(&place, &["chat", "--session", "me"], &environment);
    terminal.shows("/help lists").await;
    terminal.type_in("\x1b[200~two\r\nlines\rat once\x1b[201~\r");
    terminal.shows("You said: two\nlines\nat once").await;
    // Forty lines are one message too, and one that begins with a slash is no command.
    let lines: Vec<String> = (1..=40).map(|line| format!("/line {line}")).collect();
    terminal.type_in(&format!("\x1b[200~{}\x1b[201~\r", lines.join("\n")));
    terminal
        .shows(&format!("You said: {}", lines.join("\n")))
        .await;
    terminal.go_on();
    terminal.type_in("write it\n");
    terminal.shows("run exactly this?").await;
    terminal.type_in("e\n");
    terminal.shows("edited by owner").await;
    terminal.shows("It is written.").await;
    assert!(
        place.workspace().join("edited.md").exists() && !place.workspace().join("made.md").exists()
    );
    terminal.shows_times("completed · ", 2).await;

    terminal.type_in("write once more\n");
    terminal.shows_times("run exactly this?", 1).await;
    let list = ["approvals", "ls", "--json"];
    let approval = wait::some(LIMIT, "the call is held", || async {
        let listed = document(&place.run(&list).await);
        listed["pending"][0]["request"]["approval_id"]
            .as_str()
            .map(str::to_owned)
    })
    .await;
    terminal.type_in("half a li");
    assert_eq!(code(&place.run(&["approvals", "deny", &approval]).await), 0);
    terminal.shows("denied by owner through cli").await;
    terminal.shows("It is not written.").await;
    terminal.type_in("\x15/quit\n");
    assert!(terminal.ended().await.success());
    assert!(terminal.is_as_before());
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// A terminal that does not mark what is pasted sends line after line: what is not taken of them is named, each one. And however the
/// chat ends, the terminal marks no pastes afterwards.
#[tokio::test]
async fn no_pasted_line_is_lost_without_a_word_and_the_terminal_is_given_back() {
    const LINES: usize = 200;
    let place = talking();
    let mut up = place.up().await;
    let mut terminal = Terminal::spawn(&place, &["chat", "--session", "me"]);
    terminal.shows("/help lists").await;
    terminal.type_in("slow\n");
    terminal.shows("alpha").await;
    let lines: Vec<String> = (0..LINES)
        .map(|line| format!("line {line:03}.\n"))
        .collect();
    terminal.type_in(&lines.concat());
    let last = format!("line {:03}.", LINES - 1);
    terminal.shows(&format!("not sent: {last}")).await;
    terminal.shows("press Up").await;
    let sent = wait::some(LIMIT, "what was taken arrives", || async {
        let shown = place.run(&["sessions", "show", "me", "--json"]).await;
        let shown = document(&shown).to_string();
        let of = |line: usize| format!("line {line:03}.");
        let page = terminal.page();
        let is_told = |line: usize| page.contains(&format!("not sent: {}", of(line)));
        let sent = (0..LINES).filter(|line| shown.contains(&of(*line)));
        let sent: Vec<usize> = sent.collect();
        let is_whole = (0..LINES).all(|line| sent.contains(&line) != is_told(line));
        is_whole.then_some(sent)
    })
    .await;
    assert!(sent.len() >= 32 && sent.len() < LINES, "{sent:?}");
    assert_eq!(terminal.page().matches("cli.too_many_waiting").count(), 1);

    // A second terminal, ended by the key that ends a program at once.
    let mut other = Terminal::spawn(&place, &["chat"]);
    other.shows("/help lists").await;
    other.quit();
    other.ended().await;
    terminal.type_in("/quit\n");
    terminal.ended().await;
    for ended in [&terminal, &other] {
        assert!(ended.is_as_before());
        wait::until(LIMIT, "pastes are marked no longer", || async {
            let written = ended.written();
            let marked = written.rfind("\x1b[?2004h").expect("marked");
            written.rfind("\x1b[?2004l") > Some(marked)
        })
        .await;
    }
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// Nothing of the mesh is left: the next message starts it, and the conversation goes on.
#[tokio::test]
async fn a_person_goes_on_after_the_whole_mesh_was_killed() {
    let place = talking();
    let mut terminal = Terminal::spawn(&place, &["chat", "--session", "me"]);
    terminal.type_in("hello\n");
    terminal.shows("You said: hello").await;
    // What is shown may not be stored yet; a turn that is cut would take the next message in.
    has_turns(&place, "me", 1).await;
    is_idle(&place, "me").await;
    let up = super::holder(&place.data());
    let server = nix::unistd::Pid::from_raw(i32::try_from(server(&place)).expect("a process"));
    for pid in [up, server] {
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    }
    wait::until(LIMIT, "the mesh is gone", || async {
        teamster::host::embedded::holder(&place.data()).is_none()
    })
    .await;
    terminal.type_in("are you there?\n");
    terminal.shows("You said: are you there?").await;
    terminal.type_in("\x04");
    assert!(terminal.ended().await.success());
    has_turns(&place, "me", 2).await;
    let pid = super::holder(&place.data());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    wait::until(LIMIT, "the mesh ends", || async {
        nix::sys::signal::kill(pid, None).is_err()
    })
    .await;
}

fn server(place: &Place) -> u64 {
    let record =
        std::fs::read(place.data().join("nats/server.json")).expect("a record of the server");
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    record["process"]["pid"].as_u64().expect("a process")
}

/// CLI-1: a conversation whose output cannot be written says so.
#[tokio::test]
async fn cli_1_a_chat_needs_a_mesh_and_a_workspace() {
    let place = Place::new();
    for (arguments, want) in [
        (
            vec!["chat", "--nats", "nats://127.0.0.1:1"],
            (69, "mesh.unavailable"),
        ),
        (
            vec!["chat", "--workspace", "/nowhere/at/all"],
            (2, "cli.workspace"),
        ),
        (vec!["chat", "--approvals", "ask"], (2, "cli.no_terminal")),
        (vec!["chat", "--model", "nope"], (2, "cli.usage")),
    ] {
        for form in ["--json", "--jsonl"] {
            let arguments = [arguments.as_slice(), &[form]].concat();
            check_failure(&arguments, &place.run(&arguments).await, want);
        }
    }
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("a device");
    let output = written_to(&place, &["chat", "--help"], full).await;
    assert_eq!(code(&output), 1);
}
