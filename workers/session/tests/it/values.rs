//! Stored values go when no session names them any more, and never before.

use std::collections::BTreeMap;

use rusqlite::Connection;
use teamster_mesh::{Mesh, serve::serve};
use teamster_protocol::{BlobRef, Phase, event::Event};
use teamster_session::{Config, worker};
use teamster_testkit::{Secured, connect, prepare, wait};

use crate::rig::{LIMIT, Rig, Writer, began, created, deleted, kept_whole, proposed, said};

const DAY_MS: i64 = 24 * 3600 * 1000;

pub(crate) async fn put(mesh: &Mesh, text: &str) -> BlobRef {
    let stored = mesh.blobs().put(text.as_bytes().to_vec().into()).await;
    stored.expect("is stored")
}

pub(crate) async fn is_there(mesh: &Mesh, value: &BlobRef) -> bool {
    mesh.blobs().get(value).await.expect("readable").is_some()
}

/// A session with results that are kept whole.
pub(crate) async fn naming(mut writer: Writer, values: &[BlobRef]) -> Writer {
    let name = writer.session.to_string();
    writer
        .commit(Phase::Active, vec![created(&name), said("read"), began(1)])
        .await;
    for (number, value) in (1..).zip(values) {
        let n = writer.n + 1;
        let proposal: Vec<Event> = proposed(n, number);
        writer.commit(Phase::Active, proposal).await;
        let finished = vec![kept_whole(number, *value)];
        writer.commit(Phase::Active, finished).await;
    }
    writer
}

/// What the worker has noted: where each value lies that nobody names.
pub(crate) fn notes(file: &std::path::Path) -> BTreeMap<String, i64> {
    let connection = Connection::open(file).expect("opens");
    let mut statement = connection
        .prepare("SELECT sha256, seq FROM unnamed")
        .expect("a question");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.expect("rows").map(|row| row.expect("a row")).collect()
}

pub(crate) async fn noted(file: &std::path::Path, values: &[BlobRef]) {
    let mut names: Vec<String> = values.iter().map(|one| one.sha256.to_string()).collect();
    names.sort();
    wait::until(LIMIT, "the values are noted", || async {
        notes(file).into_keys().eq(names.iter().cloned())
    })
    .await;
}

/// Lets a day go by for what is noted.
pub(crate) fn a_day_goes_by(file: &std::path::Path) {
    let connection = Connection::open(file).expect("opens");
    let changed = connection.execute("UPDATE unnamed SET since_ms = since_ms - ?1", [DAY_MS]);
    changed.expect("is changed");
}

/// DUR-6: with a session go the values that it alone named, a day later, whatever ends in between; what another session names
/// stays, and so does what was stored again meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn dur_6_values_of_a_deleted_session_go_a_day_later_and_no_others() {
    let mut rig = Rig::without_worker().await;
    let mesh = rig.mesh.clone();
    let kept = put(&mesh, "of a session that stays").await;
    let shared = put(&mesh, "of both").await;
    let own = put(&mesh, "of the one that goes").await;
    let lost = put(&mesh, "stored before a crash").await;
    let again = put(&mesh, "stored twice").await;
    naming(Writer::new(&rig.mesh, "stays"), &[kept, shared]).await;
    let mut goes = naming(Writer::new(&rig.mesh, "goes"), &[shared, own]).await;
    rig.start_worker().await;
    noted(&rig.file(), &[lost, again]).await;
    goes.commit(Phase::Deleted, vec![deleted(1, Vec::new())])
        .await;
    rig.start_worker().await;
    noted(&rig.file(), &[own, lost, again]).await;
    rig.stop_worker().await;
    for value in [kept, shared, own, lost, again] {
        assert!(is_there(&mesh, &value).await, "a day has not gone by");
    }
    let first = notes(&rig.file())[&again.sha256.to_string()];
    assert_eq!(put(&mesh, "stored twice").await, again);
    a_day_goes_by(&rig.file());
    rig.start_worker().await;
    wait::until(LIMIT, "what is due is gone", || async {
        !is_there(&mesh, &own).await
            && !is_there(&mesh, &lost).await
            && notes(&rig.file()).is_empty()
    })
    .await;
    rig.start_worker().await;
    noted(&rig.file(), &[again]).await;
    assert!(
        notes(&rig.file())[&again.sha256.to_string()] > first,
        "it is noted anew"
    );
    for value in [kept, shared, again] {
        assert!(is_there(&mesh, &value).await, "it is named, or new");
    }
}

/// DUR-6: the worker has the rights that it needs for it.
#[tokio::test(flavor = "multi_thread")]
async fn dur_6_the_rights_of_the_worker_are_enough_to_remove_values() {
    let secured = Secured::start().await;
    prepare(&secured).await;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("session.sqlite");
    let harness = connect(&secured, "harness").await;
    let named = put(&harness, "named").await;
    let lost = put(&harness, "lost").await;
    naming(Writer::new(&harness, "one"), &[named]).await;
    let config = Config {
        file: Some(file.clone()),
    };
    let start = async || {
        let mesh = connect(&secured, "session").await;
        let worker = worker(&config).expect("a worker");
        serve(mesh, worker).await.expect("served")
    };
    let served = start().await;
    noted(&file, &[lost]).await;
    served.drain().await;
    a_day_goes_by(&file);
    let _served = start().await;
    wait::until(LIMIT, "what nobody names is gone", || async {
        !is_there(&harness, &lost).await
    })
    .await;
    assert!(is_there(&harness, &named).await);
}
