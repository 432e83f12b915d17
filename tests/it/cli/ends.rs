//! What a user is told of logs that lost their end, and of a store from which logs are gone.

use serde_json::Value;
use teamster_protocol::{SessionId, subject};
use teamster_testkit::{blocks, wait};

use super::{
    check_failure,
    place::{LIMIT, Place, code, document, finding},
    rot::{places, say, stop, store, words_of},
};
use crate::cli::chat::talking;

/// A session of another name whose log lies in the same stream.
fn neighbour(of: &str) -> String {
    let stream = |name: &str| {
        let id = SessionId::parse(name).expect("valid");
        subject::log_stream_of(subject::partition(&id.token()))
    };
    let mut names = (0..).map(|n| format!("next-{n}"));
    names.find(|name| stream(name) == stream(of)).expect("one")
}

async fn deep(place: &Place) -> Value {
    let output = place.run(&["doctor", "--deep", "--json"]).await;
    finding(&document(&output), "sessions")
}

/// Every verb says of a session that its end is missing; what is exported does not verify; after the acceptance it goes on.
async fn tells_and_goes_on(place: &Place, session: &str) {
    wait::until(LIMIT, "it is listed as damaged", || async {
        let arguments = ["sessions", "ls", "--status", "damaged", "--json"];
        let listed = document(&place.run(&arguments).await)["sessions"].clone();
        listed[0]["session"] == session && listed[1].is_null()
    })
    .await;
    let shown = place.run(&["sessions", "show", session, "--json"]).await;
    assert_eq!(document(&shown)["status"], "damaged");
    let why = document(&shown)["damage"].to_string();
    assert!(why.contains("was stored at sequence"), "{why}");
    let found = deep(place).await;
    assert_eq!(found["state"], "failed", "{found}");
    let run = place
        .run(&["run", "--session", session, "more", "--json"])
        .await;
    check_failure(&["run"], &run, (1, "session.log_damaged"));
    let file = place.file(&format!("{session}.jsonl"));
    let file = file.to_str().expect("text");
    let exported = place
        .run(&["sessions", "export", session, "-o", file])
        .await;
    assert_eq!(code(&exported), 0, "{}", words_of(&exported));
    let verified = place.run(&["sessions", "verify", file, "--json"]).await;
    check_failure(&["verify"], &verified, (6, "export.not_verified"));
    let accepted = place
        .run(&["sessions", "accept-loss", session, "--yes"])
        .await;
    assert_eq!(code(&accepted), 0, "{}", words_of(&accepted));
    say(place, session, "a fig").await;
    let found = deep(place).await;
    assert_eq!(found["state"], "ok", "{found}");
}

/// SEC-55: the head of a stored commit is damaged. The server contradicts itself then, and would lose what is stored next in that
/// stream: it is made to read it anew, a new session in it is whole, and the damaged one is told and goes on.
#[tokio::test]
async fn sec_55_a_damaged_head_of_a_commit_harms_no_session_but_its_own() {
    let place = talking();
    let up = place.up().await;
    say(&place, "hit", "a kiwi").await;
    say(&place, "hit", "a pear").await;
    stop(up).await;
    let (stream, seqs) = places(&place, "hit");
    blocks::damage_head(&store(&place), &stream, seqs[seqs.len() / 2]);
    let up = place.up().await;
    let next = neighbour("hit");
    say(&place, &next, "a kiwi").await;
    tells_and_goes_on(&place, "hit").await;
    stop(up).await;
    let up = place.up().await;
    say(&place, &next, "a pear").await;
    let shown = place.run(&["sessions", "show", &next, "--json"]).await;
    assert_eq!(document(&shown)["turns"], 2);
    stop(up).await;
}

/// SEC-55: a log that lost its last commit while nothing ran reads like a younger one, and is told as damaged all the same.
#[tokio::test]
async fn sec_55_a_log_that_lost_its_end_is_told_by_every_verb() {
    let place = talking();
    let up = place.up().await;
    say(&place, "hit", "a kiwi").await;
    stop(up).await;
    let (stream, seqs) = places(&place, "hit");
    let last = seqs.last().expect("some");
    blocks::cut(&store(&place), &stream, *last);
    let up = place.up().await;
    tells_and_goes_on(&place, "hit").await;
    stop(up).await;
}

/// SEC-55: a store from which a log stream is gone, or everything, is not begun anew in silence; who says that it is to be gone on
/// without is told which sessions are damaged.
#[tokio::test]
async fn sec_55_a_store_that_lost_its_logs_is_not_begun_anew_in_silence() {
    let place = talking();
    let up = place.up().await;
    say(&place, "hit", "a kiwi").await;
    stop(up).await;
    let (stream, _) = places(&place, "hit");
    let nats = place.data().join("nats");
    let lost = place.file("lost");
    let streams = std::fs::read_dir(nats.join("jetstream")).expect("accounts");
    let account = streams.flatten().next().expect("an account").path();
    let folder = account.join("streams").join(&stream);
    for gone in [nats.join("jetstream"), folder.clone()] {
        std::fs::rename(&gone, &lost).expect("moved");
        let output = place.run(&["up", "--json"]).await;
        check_failure(&["up"], &output, (1, "host.store_lost"));
        assert!(words_of(&output).contains(&stream), "{}", words_of(&output));
        let found = document(&place.run(&["doctor", "--json"]).await);
        assert_eq!(finding(&found, "store")["state"], "failed", "{found}");
        if gone.exists() {
            std::fs::remove_dir_all(&gone).expect("removed");
        }
        std::fs::rename(&lost, &gone).expect("moved back");
    }
    let up = place.up().await;
    say(&place, "hit", "a pear").await;
    stop(up).await;
    std::fs::rename(&folder, &lost).expect("moved");
    std::fs::remove_file(place.data().join("store.json")).expect("removed");
    let up = place.up().await;
    tells_and_goes_on(&place, "hit").await;
    stop(up).await;
}
