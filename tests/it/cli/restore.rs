//! What docs/operations.md says of copies of a data directory, with the verbs that a user has.

use std::process::Command;

use teamster_testkit::Process;

use super::{
    chat::{script, talking},
    place::{LIMIT, Place, code, document, finding},
};

async fn say(place: &Place, session: &str, words: &str) {
    let output = script(
        place,
        &["--session", session],
        format!("{words}\n").as_bytes(),
    )
    .await;
    assert_eq!(
        code(&output),
        0,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn stop(mut up: Process) {
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp runs").success());
}

/// SEC-55: an older copy of a whole data directory is one state, heads outside of the logs included: brought back onto nothing it
/// is not called damaged, has the sessions as they were, and goes on.
#[tokio::test]
async fn sec_55_an_older_copy_of_a_data_directory_is_brought_back_and_goes_on() {
    let place = talking();
    let up = place.up().await;
    say(&place, "one", "a kiwi").await;
    say(&place, "two", "an apple").await;
    stop(up).await;
    let kept = place.file("kept");
    copy(&place.data(), &kept);

    let up = place.up().await;
    say(&place, "one", "a pear").await;
    say(&place, "three", "a plum").await;
    stop(up).await;
    std::fs::remove_dir_all(place.data()).expect("it is lost");
    copy(&kept, &place.data());

    let up = place.up().await;
    let listed = document(&place.run(&["sessions", "ls", "--json"]).await);
    let mut turns: Vec<(String, u64)> = listed["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| {
            let name = one["session"].as_str().expect("a text");
            (name.to_owned(), one["turns"].as_u64().expect("a number"))
        })
        .collect();
    turns.sort();
    assert_eq!(turns, [("one".to_owned(), 1), ("two".to_owned(), 1)]);
    let doctor = document(&place.run(&["doctor", "--deep", "--json"]).await);
    assert_eq!(finding(&doctor, "sessions")["state"], "ok", "{doctor}");
    say(&place, "one", "a quince").await;
    let shown = document(&place.run(&["sessions", "show", "one", "--json"]).await);
    let transcript = shown["transcript"].to_string();
    assert_eq!(
        (&shown["status"], &shown["turns"]),
        (&"idle".into(), &2.into())
    );
    assert!(
        transcript.contains("a kiwi")
            && transcript.contains("a quince")
            && !transcript.contains("a pear"),
        "{transcript}"
    );
    stop(up).await;
}
