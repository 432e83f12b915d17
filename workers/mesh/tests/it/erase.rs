//! Erasing what a log holds before a deletion.

use bytes::Bytes;
use teamster_mesh::{Mesh, log::CommitError};
use teamster_protocol::SessionId;
use teamster_testkit::Nats;

use crate::fixture::{mesh, session};

async fn write(mesh: &Mesh, session: &SessionId, words: &str, commits: u64) -> Vec<u64> {
    let mut seqs = Vec::new();
    for n in 0..commits {
        let last = seqs.last().copied().unwrap_or(0);
        let body = Bytes::from(format!("{words} {n}"));
        let seq = mesh.log().commit(session, body, last).await;
        seqs.push(seq.expect("stored"));
    }
    seqs
}

async fn kept(mesh: &Mesh, session: &SessionId, last: u64) -> Vec<u64> {
    let stored = mesh.log().read(session, 0, last).await.expect("read");
    stored.iter().map(|one| one.seq).collect()
}

/// DUR-9: what lies before a deletion is gone, of this session alone; again changes nothing, and the fence stands where it stood.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_what_lies_before_a_deletion_is_erased_and_nothing_else() {
    let (_nats, mesh) = mesh().await;
    let (a, b) = (session("a"), session("b"));
    let seqs = write(&mesh, &a, "a", 40).await;
    let others = write(&mesh, &b, "b", 5).await;
    let (keep, last) = (seqs[30], seqs[39]);
    assert_eq!(mesh.log().erase_before(&a, keep).await.expect("erased"), 30);
    assert_eq!(kept(&mesh, &a, last).await, seqs[30..]);
    assert_eq!(kept(&mesh, &b, others[4]).await, others);
    assert_eq!(mesh.log().erase_before(&a, keep).await.expect("erased"), 0);
    let late = mesh
        .log()
        .commit(&a, Bytes::from_static(b"late"), keep)
        .await;
    assert!(matches!(late, Err(CommitError::Fenced { tail }) if tail == last));
    let next = mesh
        .log()
        .commit(&a, Bytes::from_static(b"next"), last)
        .await;
    assert!(next.expect("stored") > last);
}

/// A log that does not hold the deletion is another one than was known: nothing of it is erased.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_nothing_is_erased_where_the_deletion_is_not_there() {
    let (_nats, mesh) = mesh().await;
    let a = session("a");
    let seqs = write(&mesh, &a, "a", 3).await;
    let other = write(&mesh, &session("b"), "b", 1).await;
    for seq in [seqs[2] + 100, other[0].max(seqs[2] + 1)] {
        assert!(mesh.log().erase_before(&a, seq).await.is_err());
    }
    assert_eq!(kept(&mesh, &a, seqs[2]).await, seqs);
}

/// DUR-9: the bytes of an erased commit are overwritten on the disk, not only forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_erased_bytes_are_not_on_the_disk_any_more() {
    let (nats, mesh) = mesh().await;
    let a = session("a");
    let secret = "the-secret-of-a-session";
    let seqs = write(&mesh, &a, secret, 3).await;
    let last = write_after(&mesh, &a, seqs[2]).await;
    assert!(holds(&nats, secret));
    mesh.log().erase_before(&a, last).await.expect("erased");
    assert!(!holds(&nats, secret));
}

async fn write_after(mesh: &Mesh, session: &SessionId, last: u64) -> u64 {
    let body = Bytes::from_static(b"deleted");
    mesh.log()
        .commit(session, body, last)
        .await
        .expect("stored")
}

/// Whether any file of the server holds these words.
fn holds(nats: &Nats, words: &str) -> bool {
    let mut folders = vec![nats.store()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path)
                .unwrap_or_default()
                .windows(words.len())
                .any(|window| window == words.as_bytes())
            {
                return true;
            }
        }
    }
    false
}
