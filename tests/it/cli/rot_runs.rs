//! Sessions of whose log a commit came to harm while nothing ran, each in another place: whoever talks with them is told so, and
//! comes to an end whichever commit it was.

use serde_json::Value;
use teamster_protocol::{SessionId, subject};
use teamster_testkit::{blocks, wait};

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

async fn ask(place: &Place, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    let output = place.run(&arguments).await;
    assert_eq!(code(&output), 0, "{arguments:?}: {}", told(&output));
    document(&output)
}

/// SEC-55: what waits for a decision in a session of whose log a commit is lost is shown, or it is said that it may be missing and in
/// which session; nobody is told that there is no such request.
#[tokio::test]
async fn sec_55_a_request_in_a_damaged_log_is_not_taken_for_absent() {
    let place = talking();
    let mut up = place.up().await;
    let mut asked = Vec::new();
    for session in ["first", "last", "sound"] {
        let (output, ran) = run(&place, session, "write").await;
        assert_eq!(code(&output), 3, "{}", told(&output));
        let approval = ran["approvals"][0].as_str().expect("one").to_owned();
        asked.push(approval);
    }
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
    damage(&place, "first", 0);
    damage(&place, "last", usize::MAX);
    let mut up = place.up().await;

    // The end of a log is looked for when the session worker starts.
    let listed = wait::some(LIMIT, "both are named", || async {
        let listed = ask(&place, &["approvals", "ls"]).await;
        (listed["damaged"].as_array()?.len() == 2).then_some(listed)
    })
    .await;
    let waiting: Vec<&Value> = listed["pending"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    let shown: Vec<&str> = waiting
        .iter()
        .filter_map(|one| one["request"]["approval_id"].as_str())
        .collect();
    assert!(
        shown.contains(&asked[0].as_str()) && shown.contains(&asked[2].as_str()),
        "{listed}"
    );
    let output = place.run(&["approvals", "ls"]).await;
    for session in ["first", "last"] {
        let words = format!("sessions accept-loss {session}");
        assert!(told(&output).contains(&words), "{}", told(&output));
    }
    // The session goes on from its snapshot, and so does what is decided.
    let approve = ["approvals", "approve", &asked[0], "--yes", "--json"];
    let output = place.run(&approve).await;
    assert_eq!(code(&output), 0, "{}", told(&output));
    for verb in [&["show"][..], &["approve", "--yes"], &["deny"]] {
        let arguments = [&["approvals"], verb, &[&asked[1], "--json"]].concat();
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, (1, "session.log_damaged"));
        let words = document(&output)["error"]["message"].to_string();
        assert!(words.contains("last"), "{words}");
    }
    for session in ["first", "last"] {
        accept(&place, session).await;
    }
    let listed = wait::some(LIMIT, "one waits", || async {
        let listed = ask(&place, &["approvals", "ls"]).await;
        let is_one = listed["pending"].as_array()?.len() == 1;
        (is_one && listed["damaged"] == serde_json::json!([])).then_some(listed)
    })
    .await;
    assert_eq!(
        listed["pending"][0]["request"]["approval_id"],
        asked[2].as_str()
    );
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// SEC-55: a decision about a request whose session stands still because its log is damaged is refused by name, and so it is not
/// waited for.
#[tokio::test]
async fn sec_55_nothing_is_decided_in_a_session_that_stands_still() {
    let place = talking();
    let mut up = place.up().await;
    let (output, ran) = run(&place, "s", "write").await;
    assert_eq!(code(&output), 3, "{}", told(&output));
    let approval = ran["approvals"][0].as_str().expect("one").to_owned();
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
    damage(&place, "s", 0);
    let snap = subject::snap(&SessionId::parse("s").expect("valid"));
    blocks::damage_last(&store(&place), "SNAP", &snap);
    let mut up = place.up().await;
    let output = wait::some(LIMIT, "it is shown", || async {
        let output = place.run(&["approvals", "show", &approval]).await;
        (code(&output) == 0).then_some(output)
    })
    .await;
    assert!(
        told(&output).contains("session.log_damaged"),
        "{}",
        told(&output)
    );
    for verb in [&["approve", "--yes"][..], &["deny"]] {
        let arguments = [&["approvals"], verb, &[&approval, "--json"]].concat();
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, (1, "session.log_damaged"));
    }
    accept(&place, "s").await;
    let (output, ran) = run(&place, "s", "a grape").await;
    assert_eq!(code(&output), 0, "{ran} {}", told(&output));
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// What a session has spent, as `cost` says it.
async fn spent(place: &Place, session: &str) -> Value {
    let cost = ask(place, &["cost", "--by", "session", "--session", session]).await;
    cost["total"].clone()
}

/// SEC-55: what was spent stays counted, and what a session may do stays allowed, when a commit of it is lost and when that is
/// accepted, also after a restart; what nobody knows is said.
#[tokio::test]
async fn sec_55_a_lost_commit_takes_neither_sums_nor_functions_with_it() {
    let place = talking();
    let mut up = place.up().await;
    let sessions = names("s", 4);
    let mut before = Vec::new();
    for session in &sessions {
        for words in ["a kiwi", "a pear"] {
            let (output, _) = run(&place, session, words).await;
            assert_eq!(code(&output), 0, "{}", told(&output));
        }
        before.push(spent(&place, session).await);
        assert_eq!(before[0]["attempts"], 2);
        assert_eq!(before[0]["unpriced"], 0);
    }
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
    for (at, session) in sessions.iter().enumerate() {
        damage(&place, session, at);
    }
    // Nothing is remembered of what cannot be read.
    std::fs::remove_file(place.data().join("session.sqlite")).expect("a projection");
    let mut up = place.up().await;
    for session in &sessions {
        let cost = ask(&place, &["cost", "--session", session]).await;
        let total = cost["total"]["attempts"].as_u64().expect("a number");
        assert!((1..=2).contains(&total), "{session}: {cost}");
        assert_eq!(cost["total"]["unpriced"], 0, "{session}: {cost}");
        assert_eq!(cost["incomplete"], 1, "{session}: {cost}");
    }
    let words = told(&place.run(&["cost"]).await);
    assert!(
        words.contains("at least: the logs of 4 sessions"),
        "{words}"
    );
    for (session, before) in sessions.iter().zip(&before) {
        accept(&place, session).await;
        // The snapshot knew all of it.
        assert_eq!(spent(&place, session).await, *before, "{session}");
    }
    let cost = ask(&place, &["cost"]).await;
    assert_eq!(cost["incomplete"], 0, "{cost}");
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
    let mut up = place.up().await;
    for session in &sessions {
        let shown = ask(&place, &["sessions", "show", session]).await;
        assert_eq!(shown["turns"], 2, "{shown}");
        assert!(shown["workspace"].is_string(), "{shown}");
        // Asked about, as before, and not denied as something that nobody allowed.
        let (output, ran) = run(&place, session, "write").await;
        assert_eq!(code(&output), 3, "{session}: {ran}");
    }
    let session = sessions[0].as_str();
    let with = spent(&place, session).await;
    ask(&place, &["sessions", "rm", session, "--yes"]).await;
    let left = ask(&place, &["cost", "--by", "session", "--session", session]).await;
    assert_eq!(left["total"]["attempts"], with["attempts"], "{left}");
    assert_eq!(left["total"]["usage"], with["usage"], "{left}");
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

/// SEC-55: who asks once more what became of a message whose beginning is lost is told that nobody knows, before and after the loss is
/// accepted, and does not wait for it.
#[tokio::test]
async fn sec_55_what_became_of_a_lost_message_is_not_waited_for() {
    let place = talking();
    let mut up = place.up().await;
    let again = ["run", "--session", "s", "--key", "k", "--json", "a kiwi"];
    let output = place.run(&again).await;
    assert_eq!(code(&output), 0, "{}", told(&output));
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
    damage(&place, "s", 0);
    let mut up = place.up().await;
    let output = place.run(&again).await;
    check_failure(&again, &output, (1, "session.log_damaged"));
    assert_eq!(document(&output)["deduplicated"], true);
    accept(&place, "s").await;
    let output = place.run(&again).await;
    check_failure(&again, &output, (1, "session.log_damaged"));
    let words = document(&output)["error"]["message"].to_string();
    assert!(words.contains("whose loss was accepted"), "{words}");
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}
