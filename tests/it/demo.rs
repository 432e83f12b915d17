//! The README's first command, from end to end: real processes, a real kill, the script instead of a model.

use serde_json::Value;

use crate::cli::place::{Place, document};

fn kinds(events: &Value) -> Vec<&str> {
    events
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect()
}

fn count(kinds: &[&str], kind: &str) -> usize {
    kinds.iter().filter(|one| **one == kind).count()
}

#[tokio::test]
async fn the_demo_kills_its_own_process_and_the_turn_goes_on() {
    let place = Place::new();
    let output = place.run(&["demo", "--json"]).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words}");
    let report = document(&output);
    assert_eq!(report["status"], "completed");
    assert_eq!(report["is_scripted"], true);
    assert_ne!(report["killed_pid"], report["resumed_pid"]);
    assert!(
        report["killed_pid"].is_u64() && report["resumed_pid"].is_u64(),
        "{report}"
    );
    let text = report["text"].as_str().expect("text");
    assert!(text.contains("That is the whole tour"), "{text}");

    let kinds = kinds(&report["events"]);
    for (kind, times) in [
        ("turn_started", 1),
        ("approval_requested", 1),
        ("approval_resolved", 1),
        ("call_started", 2),
        ("call_finished", 2),
        ("took_over", 1),
        ("turn_ended", 1),
    ] {
        assert_eq!(count(&kinds, kind), times, "{kind}: {kinds:?}");
    }
    // It says on every screen that no model is at work.
    let screens: Vec<&str> = words
        .lines()
        .filter(|line| line.starts_with("──"))
        .collect();
    assert_eq!(screens.len(), 4, "{words}");
    assert!(
        screens.iter().all(|screen| screen.contains("SCRIPTED")),
        "{screens:?}"
    );
    // Nothing is left behind.
    let data = place.data().join("demo").join("data");
    assert!(!teamster::host::embedded::is_held(&data));
    assert!(teamster::host::embedded::locate(&data).is_none());
}

#[tokio::test]
async fn the_demo_tells_the_whole_story_as_text() {
    let place = Place::new();
    let output = place.run(&["demo"]).await;
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "1 of 5",
        "2 of 5",
        "sha256 ",
        "teamster approvals approve ",
        "3 of 5",
        "kill -9 ",
        "4 of 5",
        "teamster up --data",
        "5 of 5",
        "turn ended: completed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains('\u{1b}'),
        "no escape sequences without a terminal"
    );
}
