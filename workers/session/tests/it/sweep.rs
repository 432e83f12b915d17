//! The removal of stored values, and a process that is killed in the middle of it.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use teamster_mesh::serve::serve;
use teamster_protocol::{BlobRef, id::WorkerName};
use teamster_session::{Config, worker};
use teamster_testkit::{Process, Proxy, proxy::Hold, wait};

use crate::{
    rig::{LIMIT, Rig, Writer},
    values::{a_day_goes_by, is_there, naming, noted, notes, put},
};

/// Tells the process of a test where to serve, and which file to use.
const URL: &str = "TEST_SERVE_AT";
const FILE: &str = "TEST_SERVE_FROM";
/// What a process runs that serves.
const SERVES: &str = "sweep::a_worker_serves_from_its_file";
/// How the removal of a value is asked for.
const REMOVAL: &str = "$JS.API.STREAM.MSG.DELETE.BLOBS";
/// How it is asked where a value lies.
const PLACE: &str = "$JS.API.STREAM.MSG.GET.BLOBS";

/// A worker serves from its file, here or, for the tests below, in a process of its own until that is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_from_its_file() {
    if let (Ok(url), Some(file)) = (std::env::var(URL), std::env::var_os(FILE)) {
        let options = teamster_mesh::Connect {
            url,
            credentials: None,
        };
        let name = WorkerName::parse("session").expect("a name");
        let mesh = teamster_mesh::Mesh::connect(&options, name).await;
        let config = Config {
            file: Some(file.into()),
        };
        let worker = worker(&config).expect("a worker");
        let served = serve(mesh.expect("connected"), worker).await;
        let _served = served.expect("served");
        return std::future::pending().await;
    }
    let rig = Rig::start().await;
    let status: Value = rig
        .ask("session::status", &json!({}))
        .await
        .expect("serves");
    assert_eq!(status["sessions"], 0, "{status}");
    assert!(rig.file().exists());
}

/// A worker in a process of its own, behind a gate.
async fn process(
    rig: &Rig,
    hold: impl FnOnce(&Proxy) -> Option<Hold>,
) -> (Process, Proxy, Option<Hold>) {
    let proxy = Proxy::start(rig.nats.address()).await;
    let stop = hold(&proxy);
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", SERVES, "--nocapture"])
        .env(URL, proxy.url())
        .env(FILE, rig.file());
    let output = rig.file().with_extension("out");
    (Process::spawn(command, &output), proxy, stop)
}

/// Starts a worker and kills it (SIGKILL) where it is held.
async fn killed_at(rig: &Rig, hold: impl FnOnce(&Proxy) -> Hold) {
    let (mut process, _proxy, stop) = process(rig, |proxy| Some(hold(proxy))).await;
    let stop = stop.expect("a hold");
    stop.reached(LIMIT).await;
    process.kill();
    process.ended(LIMIT).await;
    // What was held back dies with it.
    stop.cut();
}

async fn all_there(rig: &Rig, values: &[BlobRef]) {
    for value in values {
        assert!(is_there(&rig.mesh, value).await, "it is named, or new");
    }
}

async fn left(rig: &Rig, values: &[BlobRef]) -> usize {
    let mut left = 0;
    for value in values {
        left += usize::from(is_there(&rig.mesh, value).await);
    }
    left
}

async fn some(rig: &Rig, what: &str, count: usize) -> Vec<BlobRef> {
    let mut all = Vec::new();
    for number in 0..count {
        all.push(put(&rig.mesh, &format!("{what} {number}")).await);
    }
    all
}

fn is_empty(file: &Path) -> bool {
    notes(file).is_empty()
}

/// DUR-6: a worker that is killed while it notes values, before it removes one, and when one is removed and it does not know it, loses
/// no value that is named and none that is stored again; the next one goes on and finishes.
#[tokio::test(flavor = "multi_thread")]
async fn dur_6_a_kill_in_the_middle_of_a_sweep_loses_no_named_value_and_the_next_finishes() {
    let rig = Rig::without_worker().await;
    let named = some(&rig, "named", 6).await;
    let unnamed = some(&rig, "lost", 8).await;
    naming(Writer::new(&rig.mesh, "one"), &named).await;
    killed_at(&rig, |proxy| proxy.hold_publish(PLACE, 5)).await;
    assert!(
        is_empty(&rig.file()),
        "what was not looked up whole is not noted"
    );
    let (mut first, _proxy, _) = process(&rig, |_| None).await;
    noted(&rig.file(), &unnamed).await;
    first.kill();
    first.ended(LIMIT).await;
    assert_eq!(left(&rig, &unnamed).await, 8, "a day has not gone by");
    a_day_goes_by(&rig.file());

    for (nth, is_removed, wanted) in [(1, false, 8), (3, false, 6), (2, true, 4), (1, true, 3)] {
        killed_at(&rig, |proxy| {
            if is_removed {
                proxy.hold_answer(REMOVAL, nth)
            } else {
                proxy.hold_publish(REMOVAL, nth)
            }
        })
        .await;
        all_there(&rig, &named).await;
        wait::until(LIMIT, "what was asked for is removed", || async {
            left(&rig, &unnamed).await == wanted
        })
        .await;
    }
    // What is gone and what is still there are stored again: what was noted of these is of another message.
    let old = notes(&rig.file());
    let last = *old.values().max().expect("some are noted");
    assert_eq!(some(&rig, "lost", 8).await, unnamed);
    let all = [unnamed.as_slice(), &some(&rig, "other", 1).await].concat();
    let (mut next, _proxy, _) = process(&rig, |_| None).await;
    wait::until(LIMIT, "what was noted of the old ones is void", || async {
        let now = notes(&rig.file());
        !now.is_empty() && now.values().all(|seq| *seq > last)
    })
    .await;
    next.kill();
    next.ended(LIMIT).await;
    all_there(&rig, &[named.as_slice(), &all].concat()).await;
    let (mut next, _proxy, _) = process(&rig, |_| None).await;
    noted(&rig.file(), &all).await;
    next.kill();
    next.ended(LIMIT).await;
    a_day_goes_by(&rig.file());
    let (_end, _proxy, _) = process(&rig, |_| None).await;
    wait::until(LIMIT, "the sweep is finished", || async {
        left(&rig, &all).await == 0 && is_empty(&rig.file())
    })
    .await;
    all_there(&rig, &named).await;
}
