//! What a user is told, with the verbs that a user has, of sessions whose stored bytes came to harm while nothing ran.

use std::process::Output;

use serde_json::Value;
use teamster_protocol::{SessionId, subject};
use teamster_testkit::{Process, blocks, wait};

use super::{
    chat::{script, talking},
    check_failure,
    place::{LIMIT, Place, code, document, finding},
};

pub async fn stop(mut up: Process) {
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

pub async fn say(place: &Place, session: &str, words: &str) {
    let options = ["--session", session];
    let output = script(place, &options, format!("{words}\n").as_bytes()).await;
    assert_eq!(code(&output), 0, "{}", words_of(&output));
}

pub fn words_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The place of a session's log: its stream and the sequences in it.
pub fn places(place: &Place, session: &str) -> (String, Vec<u64>) {
    let id = SessionId::parse(session).expect("valid");
    let k = subject::log_stream_of(subject::partition(&id.token()));
    let stream = format!("LOG_{k}");
    let seqs = blocks::sequences(&store(place), &stream, &subject::log(&id));
    (stream, seqs)
}

pub fn store(place: &Place) -> std::path::PathBuf {
    place.data().join("nats")
}

async fn doctor(place: &Place, options: &[&str]) -> Value {
    let arguments = [&["doctor", "--json"], options].concat();
    finding(&document(&place.run(&arguments).await), "sessions")
}

/// SEC-55: one session's last commit, another's first and a third's in the middle cannot be read. Each is told as damaged with its
/// place by every verb and by doctor, none is taken for absent or holds the others up, and after the acceptance each runs, its
/// export verifies and doctor is quiet.
#[tokio::test]
async fn sec_55_damaged_sessions_are_told_by_every_verb_and_go_on_after_the_acceptance() {
    let place = talking();
    let up = place.up().await;
    for session in ["last", "first", "middle", "sound"] {
        say(&place, session, "a kiwi").await;
        say(&place, session, "a pear").await;
    }
    stop(up).await;
    let mut seqs = Vec::new();
    for session in ["last", "first", "middle"] {
        let (stream, all) = places(&place, session);
        let at = match session {
            "last" => all.len() - 1,
            "first" => 0,
            _ => all.len() / 2,
        };
        blocks::damage(&store(&place), &stream, all[at]);
        let snap = subject::snap(&SessionId::parse(session).expect("valid"));
        let snapshots = blocks::sequences(&store(&place), "SNAP", &snap);
        for seq in snapshots.into_iter().filter(|_| session == "middle") {
            blocks::damage(&store(&place), "SNAP", seq);
        }
        seqs.push(all);
    }
    let up = place.up().await;
    told(&place).await;
    say(&place, "sound", "an apple").await;
    for session in ["last", "first", "middle"] {
        accepted(&place, session).await;
    }
    for options in [&["--deep"][..], &[]] {
        let sessions = doctor(&place, options).await;
        assert_eq!(sessions["state"], "ok", "{sessions}");
    }
    let listed = document(
        &place
            .run(&["sessions", "ls", "--status", "damaged", "--json"])
            .await,
    );
    assert_eq!(listed["sessions"], serde_json::json!([]));
    stop(up).await;
}

/// What is said of the three before anything is accepted.
async fn told(place: &Place) {
    // Nothing comes behind an end that cannot be read: the session worker looks for such ends when it starts.
    wait::until(LIMIT, "the one is listed as damaged", || async {
        let output = place
            .run(&["sessions", "ls", "--status", "damaged", "--json"])
            .await;
        let listed = document(&output)["sessions"].clone();
        listed[0]["session"] == "last" && listed[1].is_null()
    })
    .await;
    // What was projected before it came to harm is found by who reads all logs, and doctor says so.
    for (options, want) in [
        (
            &[][..],
            "1 of 4 are damaged, the first is last (as the session worker knows; `teamster doctor --deep` reads all logs",
        ),
        (&["--deep"], "3 of 4 are damaged, the first is first"),
    ] {
        let sessions = doctor(place, options).await;
        assert_eq!(sessions["state"], "failed", "{sessions}");
        let words = sessions["detail"].as_str().expect("words");
        assert!(words.contains(want), "{words}");
    }
    let damaged = ["first", "last", "middle"];
    for session in damaged {
        let shown = place.run(&["sessions", "show", session, "--json"]).await;
        let words = words_of(&shown);
        let shown = document(&shown);
        assert_eq!(shown["status"], "damaged", "{session}: {words}");
        let damage = shown["damage"].as_str().expect("what is wrong");
        assert!(damage.contains("with damaged bytes"), "{damage}");
        assert!(shown["transcript"].to_string().contains("a pear"));
        assert!(words.contains("accept-loss"), "{words}");
        let run = ["run", "--session", session, "--json", "hello"];
        check_failure(&run, &place.run(&run).await, (1, "session.log_damaged"));
        let rm = ["sessions", "rm", session, "--yes", "--json"];
        check_failure(&rm, &place.run(&rm).await, (1, "session.log_damaged"));
        let fork = ["sessions", "fork", session, "--json"];
        check_failure(&fork, &place.run(&fork).await, (1, "session.log_damaged"));
        let unsure = ["sessions", "accept-loss", session, "--json"];
        let output = place.run(&unsure).await;
        check_failure(&unsure, &output, (2, "harness.confirm_needed"));
        assert!(words_of(&output).contains("1 stored message cannot be read"));
        let file = format!("{session}.before");
        let export = place
            .run(&[
                "sessions",
                "export",
                session,
                "-o",
                place.file(&file).to_str().expect("text"),
            ])
            .await;
        assert_eq!(code(&export), 0, "{}", words_of(&export));
        let words = words_of(&export);
        assert!(words.contains("cannot be read"), "{words}");
        assert!(words.contains("accept-loss"), "{words}");
    }
}

async fn accepted(place: &Place, session: &str) {
    let output = place
        .run(&["sessions", "accept-loss", session, "--yes", "--json"])
        .await;
    assert_eq!(code(&output), 0, "{}", words_of(&output));
    let reply = document(&output);
    assert_eq!(reply["loss"]["unreadable"], 1, "{reply}");
    if session == "last" {
        assert_eq!(
            reply["loss"]["commits"], 0,
            "nothing readable is given up: {reply}"
        );
    }
    say(place, session, "a quince").await;
    let shown = document(&place.run(&["sessions", "show", session, "--json"]).await);
    assert_eq!(shown["status"], "idle");
    let transcript = shown["transcript"].to_string();
    assert!(transcript.contains("a pear") && transcript.contains("a quince"));
    let file = place.file(&format!("{session}.export"));
    let file = file.to_str().expect("text");
    let exported = place
        .run(&["sessions", "export", session, "-o", file])
        .await;
    let words = words_of(&exported);
    assert_eq!(code(&exported), 0, "{words}");
    assert!(!words.contains("accept-loss"), "{words}");
    let verified = place.run(&["sessions", "verify", file]).await;
    let words = words_of(&verified);
    assert_eq!(code(&verified), 0, "{words}");
    assert_eq!(words.contains("given up"), session == "first", "{words}");
    let again = ["sessions", "accept-loss", session, "--yes", "--json"];
    check_failure(&again, &place.run(&again).await, (2, "session.log_sound"));
}
