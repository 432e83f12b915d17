//! What a worker can make the server store under a log or a snapshot, and that it harms nobody.

use bytes::Bytes;
use serde_json::{Value, json};
use teamster_mesh::{
    Mesh,
    log::{From, Stored},
    snap::{Mark, Snapshot},
};
use teamster_protocol::{Digest, SessionId, subject};
use teamster_testkit::{wait, wait::within};

use crate::{
    fixture::{LIMIT, session},
    secured::{join, secured},
    user::User,
};

/// The stream that holds a session's log.
fn stream(session: &SessionId) -> String {
    let partition = subject::partition(&session.token());
    format!("LOG_{}", subject::log_stream_of(partition))
}

/// The sequence of the last message on a subject, whatever it is; 0: none.
async fn last(operator: &User, stream: &str, subject: &str) -> u64 {
    let get = json!({"last_by_subj": subject});
    let answer = operator
        .ask(&format!("$JS.API.STREAM.MSG.GET.{stream}"), get)
        .await;
    let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
    answer["message"]["seq"].as_u64().unwrap_or(0)
}

/// A worker has the server's answer to its own registration stored somewhere else, and sees that it is.
async fn aim(worker: &User, operator: &User, stream: &str, subject: &str) {
    let before = last(operator, stream, subject).await;
    worker
        .publish("$KV.registry.worker.sandbox.zz", Some(subject))
        .await;
    wait::until(LIMIT, "an answer under a subject of others", || async {
        last(operator, stream, subject).await > before
    })
    .await;
}

async fn last_of_each(mesh: &Mesh) -> Vec<Bytes> {
    let mut follow = mesh
        .log()
        .follow(From::LastOfEach, false)
        .await
        .expect("a reader");
    let mut bodies = Vec::new();
    while let Some(found) = within(LIMIT, "a commit", follow.next()).await {
        bodies.push(found.expect("readable").1.body);
    }
    bodies
}

/// SEC-56: an answer of the server in a log, before, between and behind its commits, is no commit: who reads passes it by, and
/// who commits goes on.
#[tokio::test(flavor = "multi_thread")]
async fn sec_56_an_answer_of_the_server_in_a_log_is_no_commit() {
    let secured = secured().await;
    let (harness, operator) = (
        join(&secured, "harness").await,
        join(&secured, "operator").await,
    );
    let (sandbox, looker) = (
        User::connect(&secured, "sandbox").await,
        User::connect(&secured, "operator").await,
    );
    let s = session("s");
    let (stream, subject) = (stream(&s), subject::log(&s));
    let log = harness.log();

    aim(&sandbox, &looker, &stream, &subject).await;
    aim(&sandbox, &looker, &stream, &subject).await;
    assert_eq!(operator.log().tail(&s).await.expect("read"), None);
    assert_eq!(last_of_each(&operator).await, [""; 0]);
    let one = log.commit(&s, Bytes::from("one"), 0).await.expect("stored");

    aim(&sandbox, &looker, &stream, &subject).await;
    let first = Stored {
        seq: one,
        body: Bytes::from("one"),
    };
    let tail = operator.log().tail(&s).await.expect("read");
    assert_eq!(tail.as_ref(), Some(&first));
    assert_eq!(last_of_each(&operator).await, ["one"]);
    let noise = last(&looker, &stream, &subject).await;
    let read = operator.log().read(&s, 0, noise).await.expect("read");
    assert_eq!(read, [first]);
    let two = log
        .commit(&s, Bytes::from("two"), one)
        .await
        .expect("stored");
    assert!(two > noise, "it was committed behind the noise");
    assert_eq!(log.read(&s, 0, two).await.expect("read").len(), 2);

    aim(&sandbox, &looker, &stream, &subject).await;
    let mut follow = operator.log().follow_session(&s, 0).await.expect("reader");
    let tail = log.tail(&s).await.expect("read").expect("a tail");
    assert_eq!((tail.seq, tail.body), (two, Bytes::from("two")));
    assert_eq!(last(&looker, &stream, &subject).await, two, "taken out");
    // The same commit again, after its answer was lost, is still known.
    aim(&sandbox, &looker, &stream, &subject).await;
    let again = log.commit(&s, Bytes::from("two"), one).await;
    assert_eq!(again.expect("known"), two);
    let three = log.commit(&s, Bytes::from("three"), two).await;
    three.expect("stored");
    for want in ["one", "two", "three"] {
        let found = within(LIMIT, "a commit", follow.next()).await;
        let (_, stored) = found.expect("goes on").expect("readable");
        assert_eq!(stored.body, want);
    }
    assert_eq!(sandbox.refusals(), [""; 0], "nothing of it was forbidden");
}

/// SEC-56: who may read logs can have a commit of one session stored again under another, and it is no commit there.
#[tokio::test(flavor = "multi_thread")]
async fn sec_56_a_copied_commit_is_no_commit_of_another_session() {
    let secured = secured().await;
    let harness = join(&secured, "harness").await;
    let (gate, looker) = (
        User::connect(&secured, "approval-gate").await,
        User::connect(&secured, "operator").await,
    );
    let (from, to) = (session("from"), session("to"));
    let log = harness.log();
    let seq = log.commit(&from, Bytes::from("{}"), 0).await;
    let get: &'static str = Box::leak(
        json!({"seq": seq.expect("stored")})
            .to_string()
            .into_boxed_str(),
    );
    let direct = format!("$JS.API.DIRECT.GET.{}", stream(&from));
    gate.publish_with(&direct, Some(&subject::log(&to)), get)
        .await;
    wait::until(LIMIT, "the copy", || async {
        last(&looker, &stream(&to), &subject::log(&to)).await > 0
    })
    .await;
    assert_eq!(log.tail(&to).await.expect("read"), None);
    let own = log.commit(&to, Bytes::from("own"), 0).await;
    own.expect("stored");
}

/// SEC-56: an answer of the server in place of a snapshot is none; the next snapshot takes its place.
#[tokio::test(flavor = "multi_thread")]
async fn sec_56_an_answer_of_the_server_is_no_snapshot() {
    let secured = secured().await;
    let harness = join(&secured, "harness").await;
    let (sandbox, looker) = (
        User::connect(&secured, "sandbox").await,
        User::connect(&secured, "operator").await,
    );
    let s = session("s");
    aim(&sandbox, &looker, "SNAP", &subject::snap(&s)).await;
    assert_eq!(harness.snaps().get(&s).await.expect("read"), None);
    let mark = Mark {
        n: 1,
        seq: 1,
        hash: Digest::of("x"),
    };
    let snapshot = Snapshot { mark, state: None };
    harness.snaps().put(&s, &snapshot).await.expect("sent");
    wait::until(LIMIT, "the snapshot", || async {
        harness.snaps().get(&s).await.expect("read") == Some(snapshot.clone())
    })
    .await;
}
