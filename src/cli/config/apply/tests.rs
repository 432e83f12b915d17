//! Two that write at once, against a real bucket.

use serde_json::json;
use teamster_mesh::{Connect, topology};
use teamster_testkit::Nats;

use super::*;

struct Rig {
    client: Client,
    // Ends with the rig.
    _nats: Nats,
}

impl Rig {
    async fn new() -> Self {
        let nats = Nats::start().await;
        let connect = Connect {
            url: nats.url(),
            credentials: None,
        };
        let client = Client::connect(&connect).await.expect("connected");
        let topology = topology::Topology { replicas: 1 };
        topology::ensure(client.mesh(), &topology)
            .await
            .expect("ensured");
        Self {
            client,
            _nats: nats,
        }
    }

    /// What two sections would be, beside what is set now.
    async fn planned(&self, harness: &Value, context: &Value) -> Vec<Planned> {
        let wanted = [("context", context), ("harness", harness)]
            .into_iter()
            .map(|(name, tree)| {
                let (kind, _) = known::section(&[name.to_owned()]).expect("there");
                Wanted {
                    kind,
                    worker: known::worker(kind).expect("a name"),
                    tree: tree.clone(),
                }
            })
            .collect();
        plan(&self.client, wanted).await.expect("read")
    }

    async fn set(&self, name: &str, tree: &Value) {
        let worker = WorkerName::parse(name).expect("a name");
        let body = Bytes::from(tree.to_string());
        let configs = self.client.mesh().configs();
        let put = configs.put(&worker, body, "other", None).await;
        assert!(put.expect("written").is_some());
    }

    async fn now(&self, name: &str) -> Option<Value> {
        let worker = WorkerName::parse(name).expect("a name");
        let entry = self.client.mesh().configs().get(&worker).await;
        let body = entry.expect("read")?.body?;
        Some(serde_json::from_slice(&body).expect("json"))
    }
}

/// CONF-1: where somebody else is faster with the second section, the first one is taken back, and it is said so.
#[tokio::test]
async fn conf_1_a_conflict_in_the_middle_of_a_file_leaves_nothing_of_it() {
    let rig = Rig::new().await;
    let (mine, theirs) = (json!({ "max_calls": 4 }), json!({ "max_calls": 9 }));
    let window = json!({ "default_window": 9000 });
    for before in [None, Some(json!({ "default_window": 7000 }))] {
        if let Some(before) = &before {
            rig.set("context", before).await;
        }
        let planned = rig.planned(&mine, &window).await;
        rig.set("harness", &theirs).await;
        let failure = write_all(&rig.client, planned, false)
            .await
            .map(|_| ())
            .expect_err("a conflict");
        assert_eq!(
            (failure.exit, failure.code.as_str()),
            (Exit::TryAgain, "config.conflict")
        );
        assert!(
            failure.message.contains("nothing of the file is set"),
            "{}",
            failure.message
        );
        assert_eq!(rig.now("context").await, before, "taken back");
        assert_eq!(rig.now("harness").await, Some(theirs.clone()), "not lost");
    }
    // Applied again it is set whole.
    let planned = rig.planned(&mine, &window).await;
    let done = write_all(&rig.client, planned, false).await;
    assert_eq!(done.map(|done| done.len()).expect("written"), 2);
    assert_eq!(rig.now("context").await, Some(window));
    assert_eq!(rig.now("harness").await, Some(mine));
}

/// CONF-1: what somebody has changed since is not taken back, and is named.
#[tokio::test]
async fn conf_1_what_others_have_changed_since_is_not_taken_back() {
    let rig = Rig::new().await;
    let planned = rig
        .planned(
            &json!({ "max_calls": 4 }),
            &json!({ "default_window": 9000 }),
        )
        .await;
    let done = write_all(&rig.client, planned, false)
        .await
        .map_err(|failure| failure.message)
        .expect("written");
    let theirs = json!({ "default_window": 5000 });
    rig.set("context", &theirs).await;
    let left = take_back(&rig.client, &done).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with("context (revision "), "{left:?}");
    assert_eq!(rig.now("context").await, Some(theirs));
    assert_eq!(rig.now("harness").await, None);
}

/// CONF-1: of two files that are applied at once each section is one of them, and both sections are of the same.
#[tokio::test]
async fn conf_1_two_files_at_once_leave_one_of_them_whole() {
    let rig = Rig::new().await;
    for round in 0..10_u32 {
        let values = |base: u32| {
            (
                json!({ "max_calls": base + round }),
                json!({ "default_window": base + round }),
            )
        };
        let (first, second) = (values(1000), values(2000));
        let (one, other) = tokio::join!(
            rig.planned(&first.0, &first.1),
            rig.planned(&second.0, &second.1)
        );
        let (one, other) = tokio::join!(
            write_all(&rig.client, one, false),
            write_all(&rig.client, other, false)
        );
        assert!(one.is_ok() != other.is_ok(), "one of them is refused");
        let wanted = if one.is_ok() { first } else { second };
        assert_eq!(rig.now("harness").await, Some(wanted.0));
        assert_eq!(rig.now("context").await, Some(wanted.1));
    }
}
