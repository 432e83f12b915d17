//! What remains of a deleted session beside its log.

use std::{path::Path, time::SystemTime};

use teamster_mesh::notice::{Told, Wanted};
use teamster_protocol::{Phase, SessionId, notice::NoticeKind};
use teamster_testkit::wait;

use crate::rig::{LIMIT, Rig, Writer, answered, began, created, deleted, ended, said, session};

/// A word that is nowhere else.
const WORD: &str = "quagmire";

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("fits")
}

/// A session that says the word.
async fn says(rig: &Rig, name: &str) -> Writer {
    let mut writer = Writer::new(&rig.mesh, name);
    writer.at_ms = Some(now_ms());
    let words = format!("{WORD} {}", "and more ".repeat(200));
    writer
        .commit(Phase::Active, vec![created(WORD), said(&words), began(1)])
        .await;
    let answer = answered(2, &words, "p/a", 1, None);
    writer.commit(Phase::Idle, vec![answer, ended(1)]).await;
    writer
}

/// The notices that are kept of a session.
async fn kept(rig: &Rig, session: &SessionId) -> Vec<NoticeKind> {
    let wanted = Wanted {
        session: Some(session.clone()),
        kinds: Vec::new(),
    };
    let mut reading = rig.mesh.notices().follow(&wanted, 0).await.expect("read");
    let mut kinds = Vec::new();
    loop {
        match wait::within(LIMIT, "a notice", reading.next()).await {
            Some(Told::Notice { kind, .. }) => kinds.push(kind),
            Some(Told::CaughtUp) => return kinds,
            Some(Told::Jumped { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Whether a projection's file, or what lies beside it, holds the word.
fn holds(file: &Path) -> bool {
    ["", "-wal", "-shm"].iter().any(|suffix| {
        let mut path = file.as_os_str().to_owned();
        path.push(suffix);
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes
            .windows(WORD.len())
            .any(|window| window == WORD.as_bytes())
    })
}

async fn nothing_remains(rig: &Rig, name: &str) {
    let id = session(name);
    wait::until(LIMIT, "only the deletion can be read", || async {
        kept(rig, &id).await == [NoticeKind::SessionDeleted]
    })
    .await;
    wait::until(LIMIT, "the file holds nothing of it", || async {
        !holds(&rig.file())
    })
    .await;
}

/// DUR-9: with a session go its notices, except that of its deletion, and what the projection's file held of it; also where the worker
/// was away when it was deleted; other sessions keep theirs.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_notices_and_rows_of_a_deleted_session_are_erased() {
    let mut rig = Rig::start().await;
    let mut stays = Writer::new(&rig.mesh, "stays");
    stays.at_ms = Some(now_ms());
    stays.commit(Phase::Idle, vec![created("stays")]).await;
    for is_away in [false, true] {
        let name = if is_away { "away" } else { "there" };
        let mut goes = says(&rig, name).await;
        wait::until(LIMIT, "all notices and rows are there", || async {
            kept(&rig, &goes.session).await.len() == 5 && holds(&rig.file())
        })
        .await;
        if is_away {
            rig.stop_worker().await;
        }
        goes.commit(Phase::Deleted, vec![deleted(1, Vec::new())])
            .await;
        if is_away {
            rig.start_worker().await;
        }
        nothing_remains(&rig, name).await;
    }
    assert_eq!(kept(&rig, &stays.session).await.len(), 1);
}

/// DUR-9: a session that was created anew keeps its own notices.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_notices_of_a_session_created_anew_are_kept() {
    let mut rig = Rig::without_worker().await;
    let mut writer = says(&rig, "s").await;
    writer
        .commit(Phase::Deleted, vec![deleted(1, Vec::new())])
        .await;
    writer.commit(Phase::Idle, vec![created("anew")]).await;
    rig.start_worker().await;
    let want = [NoticeKind::SessionDeleted, NoticeKind::SessionCreated];
    wait::until(LIMIT, "the old notices are gone", || async {
        kept(&rig, &writer.session).await == want
    })
    .await;
    // Looked at once more, by a worker that knows nothing.
    rig.start_worker().await;
    let mut next = Writer::new(&rig.mesh, "next");
    next.at_ms = Some(now_ms());
    next.commit(Phase::Idle, vec![created("x")]).await;
    next.commit(Phase::Deleted, vec![deleted(0, Vec::new())])
        .await;
    nothing_remains(&rig, "next").await;
    assert_eq!(kept(&rig, &writer.session).await, want);
}
