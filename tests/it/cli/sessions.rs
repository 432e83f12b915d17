//! The verbs on sessions: lists, search, costs, exports that verify by themselves.

use serde_json::Value;
use teamster_testkit::wait;

use super::{
    chat::{script, talking},
    check_failure,
    place::{LIMIT, Place, code, document, finding, lines},
    terminal::Terminal,
};

pub(super) async fn json(place: &Place, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    let output = place.run(&arguments).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), 0, "{arguments:?}: {words}");
    document(&output)
}

fn ids(listed: &Value) -> Vec<&str> {
    let sessions = listed["sessions"].as_array().expect("a list");
    sessions
        .iter()
        .filter_map(|one| one["session"].as_str())
        .collect()
}

#[tokio::test]
async fn what_was_said_is_listed_found_and_added_up() {
    let place = talking();
    let mut up = place.up().await;
    for (session, message) in [
        ("one", &b"a kiwi\n"[..]),
        ("two", b"an apple\nand a pear\n"),
    ] {
        let output = script(&place, &["--session", session], message).await;
        assert_eq!(
            code(&output),
            0,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    lists_and_pages(&place).await;
    search_and_cost(&place).await;
    show_events(&place).await;
    export_and_verify(&place).await;
    named_forked_and_deleted(&place).await;
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}

async fn lists_and_pages(place: &Place) {
    let all = json(place, &["sessions", "ls"]).await;
    assert_eq!(ids(&all), ["two", "one"], "the last used first");
    assert_eq!(
        (&all["sessions"][0]["turns"], &all["next"]),
        (&2.into(), &Value::Null)
    );
    let page = json(place, &["sessions", "ls", "--limit", "1"]).await;
    assert_eq!(ids(&page), ["two"]);
    let next = page["next"].as_str().expect("a place").to_owned();
    let rest = json(place, &["sessions", "ls", "--after", &next]).await;
    assert_eq!((ids(&rest), &rest["next"]), (vec!["one"], &Value::Null));
    let running = json(place, &["sessions", "ls", "--status", "running"]).await;
    assert!(ids(&running).is_empty());
    let told = place.run(&["sessions", "ls"]).await;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        text.lines().count() == 2 && text.starts_with("two  idle"),
        "{text}"
    );
    let wrong = ["sessions", "ls", "--status", "sleepy", "--json"];
    check_failure(&wrong, &place.run(&wrong).await, (2, "cli.usage"));
}

async fn search_and_cost(place: &Place) {
    let found = json(place, &["sessions", "search", "kiwi"]).await;
    let hits = found["hits"].as_array().expect("a list");
    assert!(hits.len() >= 2, "the question and the answer: {found}");
    assert!(hits.iter().all(|hit| hit["session_id"] == "one"), "{found}");
    let nothing = json(place, &["sessions", "search", "kiwi", "--session", "two"]).await;
    assert_eq!(nothing["hits"], serde_json::json!([]));

    let cost = json(place, &["cost", "--by", "session,model", "--since", "1h"]).await;
    let rows = cost["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 2, "{cost}");
    let of = |session: &str| {
        rows.iter()
            .find(|row| row["session"] == session)
            .expect("a row")
    };
    assert_eq!(
        (&of("one")["generations"], &of("two")["generations"]),
        (&1.into(), &2.into())
    );
    assert_eq!(of("one")["model"], "scripted/talk");
    assert_eq!(
        (
            &cost["total"]["generations"],
            &cost["total"]["cost_nano_usd"]
        ),
        (&3.into(), &0.into())
    );
    let before = json(
        place,
        &["cost", "--until", "2020-01-01", "--utc-offset", "-05:00"],
    )
    .await;
    assert_eq!(
        (&before["rows"], &before["total"]["generations"]),
        (&serde_json::json!([]), &0.into())
    );
    let told = place.run(&["cost", "--by", "day"]).await;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        text.starts_with("day")
            && text
                .lines()
                .last()
                .is_some_and(|last| last.starts_with("total")),
        "{text}"
    );
    for wrong in [
        ["cost", "--since", "yesterday", "--json"],
        ["cost", "--by", "mood", "--json"],
        ["cost", "--utc-offset", "2", "--json"],
    ] {
        check_failure(&wrong, &place.run(&wrong).await, (2, "cli.usage"));
    }
}

async fn show_events(place: &Place) {
    let shown = json(
        place,
        &["sessions", "show", "one", "--events", "--last", "2"],
    )
    .await;
    let events = shown["events"].as_array().expect("a list");
    assert_eq!(
        (events.len(), &events[1]["type"]),
        (2, &"turn_ended".into()),
        "{shown}"
    );
    let shown = json(place, &["sessions", "show", "two", "--last", "2"]).await;
    assert_eq!(
        shown["transcript"].as_array().map(Vec::len),
        Some(2),
        "{shown}"
    );
}

async fn export_and_verify(place: &Place) {
    let path = place.file("one.jsonl");
    let file = path.to_str().expect("text");
    let exported = json(place, &["sessions", "export", "one", "-o", file]).await;
    let again = ["sessions", "export", "one", "-o", file, "--json"];
    check_failure(&again, &place.run(&again).await, (2, "cli.exists"));
    let verified = json(place, &["sessions", "verify", file]).await;
    for field in ["session", "commits", "last_sha256"] {
        assert_eq!(exported[field], verified[field], "{field}");
    }
    assert_eq!(
        (&verified["ok"], &verified["first"]),
        (&true.into(), &1.into())
    );

    let piped = place.run(&["sessions", "export", "one"]).await;
    let whole = std::fs::read_to_string(&path).expect("text");
    let (mine, its): (Vec<Value>, Vec<Value>) = (
        lines(&piped),
        whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect(),
    );
    assert_eq!(
        mine[1..],
        its[1..],
        "the same but for the time in the first line"
    );

    let cut = place.file("cut.jsonl");
    let cut = cut.to_str().expect("text");
    let shorter = whole.lines().take(2).collect::<Vec<_>>().join("\n");
    for (text, part) in [
        (whole.replacen("a kiwi", "a pear", 1), "line 2"),
        (shorter, "of"),
        (String::new(), "empty"),
    ] {
        std::fs::write(cut, text).expect("written");
        let arguments = ["sessions", "verify", cut, "--json"];
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, (6, "export.not_verified"));
        assert_eq!(document(&output)["ok"], false);
        let message = document(&output)["error"]["message"].to_string();
        assert!(message.contains(part), "{message}");
    }
    let one_document = ["sessions", "export", "one", "--json"];
    check_failure(
        &one_document,
        &place.run(&one_document).await,
        (2, "cli.usage"),
    );
    let unsure = ["sessions", "rm", "one", "--json"];
    check_failure(&unsure, &place.run(&unsure).await, (2, "cli.unconfirmed"));
}

async fn named_forked_and_deleted(place: &Place) {
    let named = json(place, &["sessions", "rename", "two", "fruit 🍐"]).await;
    assert!(named["commit"].is_u64(), "{named}");
    json(
        place,
        &["sessions", "set-meta", "two", "kind=fruit", "owner=me"],
    )
    .await;
    json(place, &["sessions", "set-meta", "two", "owner="]).await;
    let found = json(place, &["sessions", "ls", "--meta", "kind=fruit"]).await;
    assert_eq!(ids(&found), ["two"]);
    let session = &found["sessions"][0];
    assert_eq!(
        (&session["title"], &session["metadata"]),
        (&"fruit 🍐".into(), &serde_json::json!({"kind": "fruit"}))
    );
    let nobody = json(place, &["sessions", "ls", "--meta", "owner=me"]).await;
    assert!(ids(&nobody).is_empty());

    let before = json(place, &["sessions", "show", "two"]).await;
    let forked = json(
        place,
        &[
            "sessions", "fork", "two", "--id", "copy", "--title", "a copy",
        ],
    )
    .await;
    assert_eq!(forked["session_id"], "copy");
    let again = ["sessions", "fork", "two", "--id", "copy", "--json"];
    assert_eq!(code(&place.run(&again).await), 2, "it exists");
    let shown = json(place, &["sessions", "show", "copy"]).await;
    assert_eq!(
        (&shown["title"], &shown["workspace"]),
        (&"a copy".into(), &before["workspace"])
    );
    assert!(
        shown["transcript"].to_string().contains("an apple"),
        "{shown}"
    );
    let said = script(place, &["--session", "copy"], b"a plum\n").await;
    assert_eq!(String::from_utf8_lossy(&said.stdout), "You said: a plum\n");
    let mut terminal = Terminal::spawn(place, &["chat", "--session", "copy"]);
    terminal.shows("> an apple").await;
    terminal.shows("You said: a plum").await;
    terminal.type_in("/fork\r");
    terminal.shows("forked; copy stays as it is").await;
    terminal.type_in("/title another\r");
    terminal.shows("named").await;
    terminal.type_in("/sessions\r");
    terminal.shows("another").await;
    terminal.type_in("a quince\r");
    terminal.shows("You said: a quince").await;
    terminal.type_in("/quit\r");
    assert!(terminal.ended().await.success());
    let after = json(place, &["sessions", "show", "two"]).await;
    assert_eq!(
        before["transcript"], after["transcript"],
        "the other does not change"
    );

    let spent = json(place, &["cost", "--by", "day,model"]).await;
    let removed = json(place, &["sessions", "rm", "copy", "--yes"]).await;
    assert_eq!(removed["deleted"][0]["session_id"], "copy");
    let listed = json(place, &["sessions", "ls"]).await;
    assert!(!ids(&listed).contains(&"copy"), "{listed}");
    deleted_and_paid_for(place, &spent).await;
    let gone = ["sessions", "rm", "one", "copy", "two", "--yes", "--json"];
    let output = place.run(&gone).await;
    assert_eq!(code(&output), 1, "one of them is gone already");
    assert_eq!(
        document(&output)["deleted"].as_array().map(Vec::len),
        Some(1)
    );
}

/// A deleted session is shown as that, is not damaged, and what it spent stays in the sums.
async fn deleted_and_paid_for(place: &Place, spent: &Value) {
    let after = json(place, &["cost", "--by", "day,model"]).await;
    assert_eq!(
        (&after["rows"], &after["total"]),
        (&spent["rows"], &spent["total"])
    );
    let by_session = json(place, &["cost", "--by", "session"]).await;
    let rows = by_session["rows"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["session"] == "copy");
    assert_eq!(row.expect("a row")["deleted"], true, "{by_session}");
    assert_eq!(rows.iter().filter(|row| row["deleted"] == true).count(), 1);
    let shown = json(place, &["sessions", "show", "copy"]).await;
    assert_eq!(
        (&shown["status"], &shown["transcript"], &shown["turns"]),
        (&"deleted".into(), &serde_json::json!([]), &1.into()),
        "{shown}"
    );
    assert!(
        shown["deleted_by"].is_string() && shown["usage"] == row.expect("a row")["usage"],
        "{shown}"
    );
    let text = place.run(&["sessions", "show", "copy"]).await;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("status     deleted\n") && !text.contains("1970"),
        "{text}"
    );
    for deep in [&["doctor"][..], &["doctor", "--deep"]] {
        let found = document(&place.run(&[deep, &["--json"]].concat()).await);
        let sessions = finding(&found, "sessions");
        assert_eq!(sessions["state"], "ok", "{sessions}");
        let detail = sessions["detail"].as_str().expect("a text");
        let how = if deep.len() == 2 {
            "were read"
        } else {
            "knows"
        };
        assert!(
            detail.starts_with("none of 3") && detail.contains(how),
            "{detail}"
        );
        let streams = finding(&found, "streams")["detail"].to_string();
        assert!(streams.contains("1 deleted"), "{streams}");
    }
}

/// WEB-1: who was away reads on behind the last sequence, each event once; who is ahead of what there is is told so.
#[tokio::test]
async fn web_1_events_go_on_behind_a_sequence() {
    let place = talking();
    let mut up = place.up().await;
    for session in ["one", "two"] {
        let output = script(&place, &["--session", session], b"hello\n").await;
        assert_eq!(code(&output), 0);
    }
    let ends = ["events", "--kind", "turn-completed"];
    let all = wait::some(LIMIT, "both turns are told", || async {
        let ended = json(&place, &ends).await;
        let count = ended["events"].as_array().map(Vec::len);
        if count == Some(2) {
            Some(json(&place, &["events"]).await)
        } else {
            None
        }
    })
    .await;
    let events = all["events"].as_array().expect("a list");
    let seqs: Vec<u64> = events
        .iter()
        .filter_map(|one| one["seq"].as_u64())
        .collect();
    assert!(seqs.is_sorted() && seqs.len() == events.len(), "{seqs:?}");
    let ids: std::collections::BTreeSet<&str> =
        events.iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids.len(), events.len(), "each once");
    let kinds = |events: &[Value]| -> Vec<String> {
        events
            .iter()
            .filter_map(|one| one["kind"].as_str().map(str::to_owned))
            .collect()
    };
    for kind in [
        "session-created",
        "turn-started",
        "message-added",
        "turn-completed",
    ] {
        assert!(
            kinds(events).iter().any(|one| one == kind),
            "{kind}: {:?}",
            kinds(events)
        );
    }

    let middle = seqs[seqs.len() / 2].to_string();
    let rest = json(&place, &["events", "--after", &middle]).await;
    assert_eq!(
        rest["events"].as_array().map(Vec::as_slice),
        events.get(seqs.len() / 2 + 1..)
    );
    assert_eq!(
        (&rest["resync"], &rest["last"]),
        (&false.into(), &all["last"])
    );
    let one = json(&place, &["events", "--session", "one"]).await;
    let mine = one["events"].as_array().expect("a list");
    assert!(
        !mine.is_empty() && mine.iter().all(|event| event["session"] == "one"),
        "{one}"
    );
    let ahead = json(&place, &["events", "--after", "1000000"]).await;
    assert_eq!(
        (&ahead["resync"], &ahead["events"]),
        (&true.into(), &all["events"])
    );

    let mut following = Terminal::spawn(&place, &["events", "--follow", "--after", &middle]);
    following.shows("turn-completed").await;
    assert_eq!(
        code(&script(&place, &["--session", "three"], b"hello\n").await),
        0
    );
    following.shows("turn ended: completed").await;
    following.shows(" three  ").await;
    following.interrupt();
    assert_eq!(following.ended().await.code(), Some(130));
    for wrong in [
        ["events", "--kind", "turn", "--json"],
        ["events", "--follow", "--quiet", "--json"],
    ] {
        check_failure(&wrong, &place.run(&wrong).await, (2, "cli.usage"));
    }
    up.terminate();
    assert!(up.ended(LIMIT).await.success(), "{}", up.output());
}
