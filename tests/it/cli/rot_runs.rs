//! Sessions of whose log a commit came to harm while nothing ran, each in another place: whoever talks with them is told so, and
//! comes to an end whichever commit it was.

use serde_json::Value;
use teamster_protocol::{SessionId, subject};
use teamster_testkit::blocks;

use super::{
    chat::{script, talking},
    check_failure,
    place::{LIMIT, Place, code, document},
};

fn store(place: &Place) -> std::path::PathBuf {
    place.data().join("nats")
}

/// Damages the commit of a session's log that is named by its place, the first if there is none. How many commits there are.
fn damage(place: &Place, session: &str, at: usize) -> usize {
    let id = SessionId::parse(session).expect("valid");
    let k = subject::log_stream_of(subject::partition(&id.token()));
    let stream = format!("LOG_{k}");
    let seqs = blocks::sequences(&store(place), &stream, &subject::log(&id));
    blocks::damage(&store(place), &stream, seqs[at.min(seqs.len() - 1)]);
    seqs.len()
}

fn told(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn run(place: &Place, session: &str, words: &str) -> (std::process::Output, Value) {
    let output = place
        .run(&["run", "--session", session, "--json", words])
        .await;
    let document = document(&output);
    (output, document)
}

async fn accept(place: &Place, session: &str) -> Value {
    let accept = ["sessions", "accept-loss", session, "--yes", "--json"];
    let output = place.run(&accept).await;
    assert_eq!(code(&output), 0, "{session}: {}", told(&output));
    document(&output)
}

fn names(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{kind}{at}")).collect()
}

/// SEC-55: whichever commit of a session is damaged, a message to it is answered or refused by name, with a warning, before and
/// after the loss is accepted, also where the session waits for a person.
#[tokio::test]
async fn sec_55_a_run_ends_whichever_commit_is_damaged() {
    let place = talking();
    let mut up = place.up().await;
    let (idle, held) = (names("idle", 8), names("held", 6));
    for session in &idle {
        for words in ["a kiwi", "a pear"] {
            let (output, _) = run(&place, session, words).await;
            assert_eq!(code(&output), 0, "{}", told(&output));
        }
    }
    for session in &held {
        let (output, _) = run(&place, session, "write").await;
        assert_eq!(code(&output), 3, "{}", told(&output));
    }
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
    let mut ends = Vec::new();
    for sessions in [&idle, &held] {
        for (at, session) in sessions.iter().enumerate() {
            let commits = damage(&place, session, at);
            ends.push(at + 1 >= commits);
        }
    }
    assert!(ends.iter().any(|is_end| !is_end), "not only ends are lost");
    let mut up = place.up().await;
    for (session, is_end) in idle.iter().chain(&held).zip(ends) {
        let is_held = session.starts_with("held");
        let (output, ran) = run(&place, session, "a quince").await;
        // Of a session that waits there may be no snapshot behind the damage.
        if is_end || (is_held && code(&output) == 1) {
            check_failure(&["run", "--json"], &output, (1, "session.log_damaged"));
        } else {
            let want = if is_held { 3 } else { 0 };
            assert_eq!(code(&output), want, "{session}: {ran} {}", told(&output));
            let words = told(&output);
            assert_eq!(words.matches("is damaged").count(), 1, "{words}");
            assert!(words.contains(&format!("accept-loss {session}")), "{words}");
            assert!(ran["warnings"].to_string().contains("is damaged"), "{ran}");
            let sent = place.run(&["send", session, "--json", "a plum"]).await;
            assert!(told(&sent).contains("is damaged"), "{}", told(&sent));
            let chat = script(&place, &["--session", session], b"").await;
            assert!(told(&chat).contains("is damaged"), "{}", told(&chat));
        }
        accept(&place, session).await;
        let (output, ran) = run(&place, session, "a grape").await;
        assert_eq!(code(&output), 0, "{session}: {ran} {}", told(&output));
        assert_eq!(ran["status"], "completed", "{session}: {ran}");
        assert!(!told(&output).contains("is damaged"), "{}", told(&output));
    }
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}
