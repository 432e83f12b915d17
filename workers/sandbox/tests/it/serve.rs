//! Calls from one connection to the worker on another.

use std::sync::Arc;

use serde_json::json;
use teamster_protocol::FaultClass;
use teamster_sandbox::{Config, Protected};
use tokio::task::JoinSet;

use crate::house::House;

fn space() -> tempfile::TempDir {
    tempfile::tempdir().expect("a workspace")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_written_edited_read_and_found_over_the_mesh() {
    let house = House::new(Config::default()).await;
    let (work, other) = (space(), space());
    let at = Some(work.path());
    let content = "one\ntwo 中\n";
    let request = json!({"path": "notes/a.md", "content": content, "create_dirs": true});
    let written = house.call("fs::write", at, request).await.expect("written");
    assert_eq!(written["created"], true);
    let request = json!({"path": "notes/a.md", "old": "one", "new": "1", "expected_sha256": written["sha256"]});
    house.call("fs::edit", at, request).await.expect("edited");
    let page = house
        .call("fs::read", at, json!({"path": "notes/a.md"}))
        .await
        .expect("a page");
    assert_eq!(
        (&page["content"], &page["truncated"]),
        (&json!("1\ntwo 中\n"), &json!(false))
    );
    let found = house
        .call("fs::grep", at, json!({"pattern": "two"}))
        .await
        .expect("a search");
    assert_eq!(
        found["matches"],
        json!([{"path": "notes/a.md", "line": 2, "text": "two 中"}])
    );
    let found = house
        .call("fs::find", at, json!({"glob": "*.md"}))
        .await
        .expect("a search");
    assert_eq!(found["paths"], json!(["notes/a.md"]));
    // Another session's workspace is another world.
    let fault = house
        .call(
            "fs::read",
            Some(other.path()),
            json!({"path": "notes/a.md"}),
        )
        .await
        .expect_err("not here");
    assert_eq!(fault.code, "fs.not_found");
    let listed = house.call("fs::list", Some(other.path()), json!({})).await;
    assert_eq!(listed.expect("a listing")["entries"], json!([]));
    house.serving.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_12_the_workspace_comes_from_the_session_alone() {
    let house = House::new(Config::default()).await;
    let work = space();
    std::fs::write(work.path().join("a.txt"), "x").expect("a file");
    let fault = house
        .call("fs::read", None, json!({"path": "a.txt"}))
        .await
        .expect_err("no workspace");
    assert_eq!(fault.code, "fs.no_workspace");
    assert!(fault.hint.expect("a hint").contains("--workspace"));
    let root = work.path().to_str().expect("a text path");
    for body in [
        json!({"path": "a.txt", "workspace": root}),
        json!({"path": "a.txt", "root": root}),
        json!({"path": 1}),
        json!({}),
    ] {
        let fault = house
            .call("fs::read", None, body.clone())
            .await
            .expect_err("no such field");
        assert_eq!(fault.code, "mesh.bad_request", "{body}");
    }
    let gone = work.path().join("gone");
    let fault = house
        .call("fs::list", Some(&gone), json!({}))
        .await
        .expect_err("gone");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("fs.workspace_gone", FaultClass::Gone)
    );
    assert!(!fault.message.contains(root), "{}", fault.message);
    house.serving.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_60_configured_globs_close_files_to_callers() {
    let protected = Protected::new(vec!["private/**".to_owned()]).expect("valid");
    let house = House::new(Config {
        protected,
        ..Config::default()
    })
    .await;
    let work = space();
    std::fs::create_dir(work.path().join("private")).expect("a directory");
    std::fs::write(work.path().join("private/a.txt"), "hidden").expect("a file");
    let at = Some(work.path());
    let fault = house
        .call("fs::read", at, json!({"path": "private/a.txt"}))
        .await
        .expect_err("closed");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("fs.protected", FaultClass::Denied)
    );
    let found = house
        .call("fs::grep", at, json!({"pattern": "hidden"}))
        .await
        .expect("a search");
    assert_eq!(found["matches"], json!([]));
    house.serving.drain().await;
}

/// More calls than work at once are all answered, and writes of one file follow one another.
#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_are_all_answered() {
    let house = House::new(Config::default()).await;
    let work = space();
    let marks: Vec<String> = (0..40).map(|mark| format!("<{mark}>")).collect();
    std::fs::write(work.path().join("a.txt"), marks.join("\n")).expect("a file");
    let house = Arc::new(house);
    let mut calls = JoinSet::new();
    for mark in &marks {
        let body = json!({"path": "a.txt", "old": mark, "new": format!("{mark} done")});
        let (house, at) = (Arc::clone(&house), work.path().to_owned());
        calls.spawn(async move { house.call("fs::edit", Some(&at), body).await });
    }
    let mut answered = 0;
    for reply in calls.join_all().await {
        assert_eq!(reply.expect("edited")["replacements"], 1);
        answered += 1;
    }
    assert_eq!(answered, marks.len());
    let now = std::fs::read_to_string(work.path().join("a.txt")).expect("a file");
    assert_eq!(now.matches("done").count(), marks.len());
    let house = Arc::into_inner(house).expect("no call runs");
    house.serving.drain().await;
}
