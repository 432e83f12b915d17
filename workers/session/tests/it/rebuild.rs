//! The projection can be thrown away at any time: it is built anew from the log, and answers the same.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use teamster_protocol::{
    Event, FunctionId, Phase,
    event::{ApprovalDigest, Settled},
    function::session::ListReply,
};
use teamster_session::{Config, worker};
use teamster_testkit::wait;

use crate::{
    ask::turn,
    rig::{
        LIMIT, Rig, Writer, approval, asked, began, created, deleted, finished, interrupted, owner,
        proposed, requested, resolved, said,
    },
};

/// Everything that can be asked, and its answers.
async fn answers(rig: &Rig, names: &[&str]) -> Value {
    let ask = async |function: &str, request: Value| match rig
        .ask::<Value, Value>(function, &request)
        .await
    {
        Ok(reply) => reply,
        Err(fault) => json!({"fault": fault.code, "of": function}),
    };
    let mut all = vec![
        ask("session::list", json!({})).await,
        ask("session::cost", json!({"by": ["session", "model", "day"]})).await,
        ask("session::search", json!({"query": "answer", "limit": 200})).await,
        ask("session::approvals", json!({})).await,
    ];
    for name in names {
        all.push(ask("session::get", json!({"session_id": name})).await);
        all.push(
            ask(
                "session::messages",
                json!({"session_id": name, "limit": 1000}),
            )
            .await,
        );
        all.push(
            ask(
                "session::events",
                json!({"session_id": name, "limit": 1000}),
            )
            .await,
        );
    }
    Value::Array(all)
}

/// Sessions of every kind.
async fn history(rig: &Rig) -> Vec<&'static str> {
    let mut plain = Writer::new(&rig.mesh, "plain");
    plain.commit(Phase::Idle, vec![created("plain")]).await;
    for number in 1..=20 {
        turn(&mut plain, number, "ask", &format!("answer {number}")).await;
    }
    let mut asks = Writer::new(&rig.mesh, "asks");
    asks.commit(
        Phase::Active,
        vec![created("asks"), said("write"), began(1)],
    )
    .await;
    let mut events = proposed(2, 1);
    events.push(requested(1));
    asks.commit(Phase::Parked, events).await;
    asks.commit(
        Phase::Active,
        vec![resolved(1), finished(1, "the answer of a call")],
    )
    .await;
    asks.commit(Phase::Active, vec![interrupted(4, 3, None)])
        .await;
    let mut damaged = Writer::new(&rig.mesh, "damaged");
    damaged.commit(Phase::Idle, vec![created("damaged")]).await;
    damaged.store(b"torn".to_vec()).await;
    damaged.commit(Phase::Idle, vec![said("lost")]).await;
    let mut mended = Writer::new(&rig.mesh, "mended");
    mended.commit(Phase::Idle, vec![created("mended")]).await;
    let kept = mended.prev;
    mended.store(b"torn".to_vec()).await;
    let accepted = Event::LossAccepted {
        by: owner(),
        lost_from: 2,
        kept,
        message: "torn".to_owned(),
        turns: 0,
        spent: Vec::new(),
        unknown: 0,
    };
    mended.n += 1000;
    mended.commit(Phase::Idle, vec![accepted]).await;
    turn(&mut mended, 1, "and", "an answer").await;
    let gone = deleted_session(rig, "gone").await;
    let mut again = deleted_session(rig, "again").await;
    again
        .commit(Phase::Idle, vec![created("a second life")])
        .await;
    turn(&mut again, 2, "ask", "an answer of the second life").await;
    // What comes for a session that is not there makes none of it.
    let mut never = gone;
    never.commit(Phase::Deleted, Vec::new()).await;
    vec!["plain", "asks", "damaged", "mended", "again"]
}

/// A session that asked for a decision and was deleted; of its log the tombstone is left.
async fn deleted_session(rig: &Rig, name: &str) -> Writer {
    let number = if name == "gone" { 11 } else { 12 };
    let mut writer = Writer::new(&rig.mesh, name);
    writer
        .commit(
            Phase::Active,
            vec![created(name), said("an answer that is gone"), began(1)],
        )
        .await;
    let mut events = proposed(2, number);
    events.push(requested(number));
    writer.commit(Phase::Parked, events).await;
    // What came before the deletion is asked about, so that it is projected.
    let _ = answers(rig, &[name]).await;
    let left = ApprovalDigest {
        approval: approval(number),
        function: FunctionId::parse("fs::write").expect("an id"),
        digest: asked().digest(),
        settled: Some(Settled::Withdrawn { at_ms: 3000 }),
    };
    writer
        .commit(Phase::Deleted, vec![deleted(1, vec![left])])
        .await;
    let log = rig.mesh.log();
    let erased = log.erase_before(&writer.session, writer.seq).await;
    assert_eq!(erased.expect("erased"), 2);
    writer
}

/// Of a deleted session nothing is answered but digests of its requests; one that is created anew begins empty.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_deleted_session_digests_are_left() {
    let mut rig = Rig::start().await;
    history(&rig).await;
    for is_first in [true, false] {
        if !is_first {
            rig.serve(None).await;
        }
        let listed: ListReply = rig.ask("session::list", &json!({})).await.expect("a list");
        let names: Vec<&str> = listed
            .sessions
            .iter()
            .map(|one| one.session_id.as_str())
            .collect();
        assert!(
            !names.contains(&"gone") && names.contains(&"again"),
            "{names:?}"
        );
        let again: Value = rig
            .ask("session::get", &json!({"session_id": "again"}))
            .await
            .expect("it is there");
        assert_eq!(
            (&again["messages"], &again["commits"], &again["turns"]),
            (&json!(2), &json!(3), &json!(1))
        );
        let found: Value = rig
            .ask("session::search", &json!({"query": "gone"}))
            .await
            .expect("hits");
        assert_eq!(found["hits"], json!([]));
        let gone = rig
            .ask::<_, Value>("session::events", &json!({"session_id": "gone"}))
            .await
            .expect_err("it is gone");
        assert_eq!(gone.code, "session.not_found");
        for name in ["gone", "again"] {
            let left: Value = rig
                .ask("session::approvals", &json!({"session_id": name}))
                .await
                .expect("a history");
            assert_eq!(left["entries"][0]["type"], json!("digest"), "{left}");
            assert_eq!(left["entries"][0]["settled"]["type"], json!("withdrawn"));
            assert_eq!(left["entries"].as_array().map(Vec::len), Some(1));
        }
    }
}

/// What was taken in commit by commit and what is read in one go give the same answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_projection_built_anew_answers_the_same() {
    let mut rig = Rig::start().await;
    let names = history(&rig).await;
    let kept = answers(&rig, &names).await;
    assert!(!kept.to_string().contains("fault"), "{kept}");
    // The same file again, another file, no file.
    rig.start_worker().await;
    assert_eq!(answers(&rig, &names).await, kept);
    let other = rig.file().with_file_name("other.sqlite");
    rig.serve(Some(other)).await;
    assert_eq!(answers(&rig, &names).await, kept);
    rig.serve(None).await;
    assert_eq!(answers(&rig, &names).await, kept);
}

/// The file is deleted again and again while sessions go on; nothing is lost, and no answer is a part.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_deleted_while_turns_run_loses_nothing() {
    let mut rig = Rig::start().await;
    let names = ["s0", "s1", "s2"];
    let is_done = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for name in names {
        let mut writer = Writer::new(&rig.mesh, name);
        writer.commit(Phase::Idle, vec![created(name)]).await;
        let is_done = Arc::clone(&is_done);
        let asker = rig.asker();
        writers.push(teamster_telemetry::task::spawn("writer", async move {
            let mut number = 0;
            while !is_done.load(Ordering::Acquire) {
                number += 1;
                turn(&mut writer, number, "ask", &format!("answer {number}")).await;
                // Whatever the answer: nobody writes faster than the projection reads for long.
                let one = json!({"session_id": name});
                let _ = asker.ask::<_, Value>("session::get", &one).await;
            }
            writer.n
        }));
    }
    for _ in 0..5 {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = rig.file().into_os_string();
            name.push(suffix);
            let _ = std::fs::remove_file(name);
        }
        wait::until(LIMIT, "the projection is there again", || async {
            let listed = rig.ask::<_, ListReply>("session::list", &json!({})).await;
            match listed {
                Ok(listed) => {
                    assert_eq!(listed.sessions.len(), 3, "a list is never a part");
                    rig.file().exists()
                }
                Err(fault) => {
                    assert_eq!(fault.code, "session.rebuilding");
                    false
                }
            }
        })
        .await;
    }
    is_done.store(true, Ordering::Release);
    let mut commits = 0;
    for writer in writers {
        commits += writer.await.expect("a writer");
    }
    let kept = answers(&rig, &names).await;
    let status: Value = rig
        .ask("session::status", &json!({}))
        .await
        .expect("a status");
    assert_eq!(status["commits"], json!(commits));
    let mode = std::fs::metadata(rig.file()).expect("a file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    rig.serve(None).await;
    assert_eq!(answers(&rig, &names).await, kept);
}

fn spoil(path: &Path, how: &str) {
    let sql = |text: &str| {
        let connection = rusqlite::Connection::open(path).expect("a file");
        connection.execute_batch(text).expect(text);
    };
    match how {
        "garbage" => std::fs::write(path, [7_u8; 5000]).expect("written"),
        "cut" => {
            sql("PRAGMA wal_checkpoint(TRUNCATE);");
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.expect("a file").set_len(5000).expect("cut");
        }
        "empty" => std::fs::write(path, []).expect("written"),
        "older" => sql("PRAGMA user_version = 1;"),
        "of another" => sql("PRAGMA application_id = 1;"),
        "without a table" => sql("DROP TABLE message;"),
        _ => panic!("{how}"),
    }
}

/// A file that cannot be used is replaced, while the worker runs too.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_used_is_replaced() {
    let mut rig = Rig::start().await;
    let names = history(&rig).await;
    let kept = answers(&rig, &names).await;
    for how in [
        "garbage",
        "cut",
        "empty",
        "older",
        "of another",
        "without a table",
    ] {
        rig.stop_worker().await;
        spoil(&rig.file(), how);
        rig.start_worker().await;
        wait::until(LIMIT, "it is built anew", || async {
            answers(&rig, &names).await == kept
        })
        .await;
    }
    let mut plain = Writer::new(&rig.mesh, "more");
    plain.commit(Phase::Idle, vec![created("more")]).await;
    let kept = answers(&rig, &names).await;
    spoil(&rig.file(), "without a table");
    wait::until(LIMIT, "it is built anew while the worker runs", || async {
        answers(&rig, &names).await == kept
    })
    .await;
}

#[test]
fn a_place_that_cannot_hold_a_file_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("folder");
    std::fs::create_dir_all(folder.join("of somebody")).expect("made");
    for path in [folder, dir.path().join("no/such/folder/x")] {
        let config = Config {
            file: Some(path.clone()),
        };
        let Err(error) = worker(&config) else {
            panic!("no worker without a projection");
        };
        assert!(error.to_string().contains(&path.display().to_string()));
    }
}

/// A broker that was set back holds less than was projected; what was there in between is not answered any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_went_back_is_projected_anew() {
    for is_running in [true, false] {
        let mut rig = Rig::start().await;
        let mut one = Writer::new(&rig.mesh, "one");
        one.commit(Phase::Idle, vec![created("one")]).await;
        let before = answers(&rig, &["one"]).await;
        rig.nats.kill().await;
        let copy = tempfile::tempdir().expect("a folder");
        copy_all(&rig.nats.store(), copy.path());
        rig.nats.restart().await;
        let (n, seq, prev) = (one.n, one.seq, one.prev);
        one.commit(Phase::Idle, vec![said("is lost")]).await;
        wait::until(LIMIT, "it is projected", || async {
            answers(&rig, &["one"]).await != before
        })
        .await;
        if !is_running {
            rig.stop_worker().await;
        }
        rig.nats.kill().await;
        std::fs::remove_dir_all(rig.nats.store()).expect("removed");
        copy_all(copy.path(), &rig.nats.store());
        rig.nats.restart().await;
        (one.n, one.seq, one.prev) = (n, seq, prev);
        one.commit(Phase::Idle, vec![said("came instead")]).await;
        if !is_running {
            rig.start_worker().await;
        }
        wait::until(LIMIT, "the other history is answered", || async {
            let now = answers(&rig, &["one"]).await.to_string();
            now.contains("came instead") && !now.contains("is lost") && !now.contains("damaged")
        })
        .await;
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// While a projection is being built, a question is answered whole or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_during_a_rebuild_is_answered_whole_or_not_at_all() {
    let mut rig = Rig::without_worker().await;
    for index in 0..40 {
        let mut writer = Writer::new(&rig.mesh, &format!("s{index}"));
        writer.commit(Phase::Idle, vec![created("x")]).await;
        for _ in 0..15 {
            writer.commit(Phase::Idle, vec![said("word")]).await;
        }
    }
    rig.start_worker().await;
    wait::until(LIMIT, "the list is whole", || async {
        match rig
            .ask::<_, ListReply>("session::list", &json!({"limit": 500}))
            .await
        {
            Ok(listed) => {
                assert_eq!(listed.sessions.len(), 40);
                assert!(listed.sessions.iter().all(|one| one.commits == 16));
                true
            }
            Err(fault) => {
                assert_eq!(fault.code, "session.rebuilding");
                assert!(fault.retry_after_ms.is_some());
                false
            }
        }
    })
    .await;
}
