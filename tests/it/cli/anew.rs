//! A session that is created anew under the name of a deleted one, as the commands show it.

use serde_json::{Value, json};
use teamster_testkit::wait;

use super::{
    chat::{script, talking},
    check_failure,
    place::{LIMIT, Place, code, lines},
    sessions::json,
};

/// Deletes a session while its call waits for a person, and begins another one under its name.
async fn begun_anew(place: &Place) -> Value {
    let asked = ["run", "write it", "--session", "s", "--json"];
    let output = place.run(&asked).await;
    assert_eq!(
        code(&output),
        3,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let removed = json(place, &["sessions", "rm", "s", "--yes"]).await;
    assert_eq!(removed["deleted"][0]["session_id"], "s");
    let buried = json(place, &["sessions", "show", "s"]).await;
    assert_eq!(
        (&buried["status"], &buried["turns"], &buried["transcript"]),
        (&json!("deleted"), &json!(1), &json!([])),
        "{buried}"
    );
    let again = json(place, &["run", "good morning", "--session", "s"]).await;
    assert_eq!(again["text"], "You said: good morning");
    again
}

/// DUR-9: every command that reads a session shows the new one alone: its transcript, turns, commits, tokens and money; an export of
/// it verifies; a fork takes nothing of the old one.
#[tokio::test]
async fn dur_9_commands_show_nothing_of_the_session_that_had_the_name_before() {
    let place = talking();
    let mut up = place.up().await;
    let run = begun_anew(&place).await;
    shows(&place, &run).await;
    forks_and_exports(&place).await;
    let history = script(&place, &["--session", "s"], b"/history\n").await;
    let text = String::from_utf8_lossy(&[history.stdout, history.stderr].concat()).into_owned();
    assert!(
        text.contains("> good morning") && !text.contains("write") && !text.contains("cancelled"),
        "{text}"
    );
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

async fn shows(place: &Place, run: &Value) {
    let shown = json(place, &["sessions", "show", "s"]).await;
    let roles: Vec<&str> = shown["transcript"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["role"].as_str())
        .collect();
    assert_eq!(roles, ["user", "assistant", "end"], "{shown}");
    assert_eq!(shown["turns"], 1);
    assert_eq!(shown["usage"], run["usage"], "{shown}");
    let info = wait::some(LIMIT, "it is listed as it is shown", || async {
        let listed = json(place, &["sessions", "ls"]).await;
        let one = listed["sessions"][0].clone();
        (one["turns"] == 1 && one["commits"] == shown["commits"]).then_some(one)
    })
    .await;
    assert_eq!(info["usage"], shown["usage"]);
    let own = json(place, &["cost", "--session", "s"]).await;
    assert_eq!(own["total"]["generations"], 1, "{own}");
    let all = json(place, &["cost", "--by", "session"]).await;
    let rows = all["rows"].as_array().expect("a list");
    let deleted: Vec<bool> = rows.iter().map(|row| row["deleted"] == true).collect();
    assert_eq!(
        (deleted, &all["total"]["generations"]),
        (vec![false, true], &json!(2)),
        "{all}"
    );
}

async fn forks_and_exports(place: &Place) {
    let output = place
        .run(&["sessions", "show", "s", "--events", "--jsonl"])
        .await;
    let events = lines(&output);
    let began = |event: &&Value| event["type"] == "session_created";
    let first = events.iter().find(began).expect("it began")["n"]
        .as_u64()
        .expect("a number");
    for at in [1, first - 1] {
        let at = at.to_string();
        let fork = ["sessions", "fork", "s", "--at", &at, "--json"];
        check_failure(&fork, &place.run(&fork).await, (2, "session.no_commit"));
    }
    json(place, &["sessions", "fork", "s", "--id", "copy"]).await;
    // A fork under the name of a deleted session shows what it took over.
    json(place, &["sessions", "rm", "copy", "--yes"]).await;
    json(place, &["sessions", "fork", "s", "--id", "copy"]).await;
    let copy = json(place, &["sessions", "show", "copy"]).await;
    let texts = copy["transcript"].to_string();
    assert!(
        texts.contains("good morning") && !texts.contains("write"),
        "{copy}"
    );
    let path = place.file("s.jsonl");
    let path = path.to_str().expect("text");
    json(place, &["sessions", "export", "s", "-o", path]).await;
    let whole = std::fs::read_to_string(path).expect("text");
    assert!(!whole.contains("write it") && whole.contains("good morning"));
    let verified = json(place, &["sessions", "verify", path]).await;
    assert_eq!(
        (&verified["ok"], &verified["first"]),
        (&json!(true), &json!(first - 1))
    );
}
