//! The whole mesh on the product's own broker: each user does its work, and the server has nothing to refuse.

use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_mesh::{
    Connect, Ctx, Function, Mesh, Worker,
    bell::Bells,
    connection::Call,
    log, permission,
    serve::{Serving, serve},
    snap::{Mark, Snapshot},
    topology::{self, Topology},
};
use teamster_protocol::{
    ApprovalId, CallId, Contract, Digest, FunctionId, Lane, MessageId, Principal, RequestId,
    SessionId, Visibility,
    function::router::{Completion, Delta, DeltaKind},
    hook::Point,
    id::WorkerName,
    input::ControlKind,
    subject,
};
use teamster_testkit::{Secured, wait};

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

struct House {
    secured: Secured,
}

impl House {
    async fn open() -> Self {
        let house = Self {
            secured: Secured::start().await,
        };
        let topology = house.connect(permission::TOPOLOGY).await;
        topology::ensure(&topology, &Topology { replicas: 1 })
            .await
            .expect("ensured");
        topology::ensure(&topology, &Topology { replicas: 1 })
            .await
            .expect("ensured again");
        house
    }

    async fn connect(&self, user: &str) -> Mesh {
        let options = Connect {
            url: self.secured.url(),
            credentials: Some(self.secured.credentials()),
        };
        let name = WorkerName::parse(user).expect("a name");
        Mesh::connect(&options, name).await.expect("connected")
    }

    /// Serves one function that answers with what it was asked.
    async fn serve(&self, user: &str, function: &str, visibility: Visibility) -> Serving {
        let id = FunctionId::parse(function).expect("an id");
        let mut contract = Contract::new::<Echo, Echo>(id, "Says it again.");
        contract.visibility = visibility;
        let echo = Function::new(contract, |_: Ctx, echo: Echo| async move { Ok(echo) });
        let name = WorkerName::parse(user).expect("a name");
        let worker = Worker::new(name, "For a test.").function(echo);
        serve(self.connect(user).await, worker)
            .await
            .expect("served")
    }

    /// What the server has refused so far, from its own log.
    fn violations(&self) -> Vec<String> {
        let log = self.secured.data().log().join("nats-server.log");
        std::fs::read_to_string(log)
            .expect("a log")
            .lines()
            .filter(|line| line.contains("Violation"))
            .map(str::to_owned)
            .collect()
    }
}

fn session() -> SessionId {
    SessionId::parse("ses_1").expect("an id")
}

fn request() -> RequestId {
    RequestId::of(&session(), 1, 0)
}

fn call(function: &str) -> Call {
    let function = FunctionId::parse(function).expect("an id");
    let mut call = Call::new(function, "{\"text\":\"hello\"}");
    call.timeout = LIMIT;
    call
}

#[tokio::test]
async fn functions_are_served_called_and_listed_within_the_permissions() {
    let house = House::open().await;
    let rows = [
        ("sandbox", "fs::echo", Visibility::Agent),
        ("router", "router::echo", Visibility::Worker),
        ("approval-gate", "approval::echo", Visibility::Operator),
        ("harness", "harness::echo", Visibility::Worker),
    ];
    let mut served = Vec::new();
    for (user, function, visibility) in rows {
        served.push(house.serve(user, function, visibility).await);
    }
    let (harness, operator) = (
        house.connect("harness").await,
        house.connect("operator").await,
    );
    for (_, function, visibility) in rows {
        let mut asked = call(function);
        asked.call = Some("call_1".to_owned());
        let caller = if visibility == Visibility::Operator {
            asked.principal = Some(Principal::parse(permission::OWNER).expect("a principal"));
            &operator
        } else {
            &harness
        };
        let answer = caller.call(asked).await.expect(function);
        assert_eq!(answer.as_ref(), b"{\"text\":\"hello\"}");
        let id = FunctionId::parse(function).expect("an id");
        let known = harness
            .call_outcome(&id, "call_1", LIMIT)
            .await
            .expect("asked");
        assert!(known.expect("remembered").is_ok());
        harness.cancel_call(&id, "call_1").await;
    }
    for reader in [&harness, &operator, &house.connect("approval-gate").await] {
        let registry = reader.registry().await.expect("readable");
        let catalog = registry
            .wait(LIMIT, |catalog| catalog.functions.len() == rows.len())
            .await;
        assert_eq!(catalog.functions.len(), rows.len());
        assert_eq!(catalog.hooks_at(Point::PreTrigger).count(), 0);
    }
    operator
        .registry()
        .await
        .expect("readable")
        .unbind("approval-gate")
        .await
        .expect("removed");
    for serving in served {
        serving.drain().await;
    }
    for mesh in [&harness, &operator] {
        mesh.flush().await.expect("flushed");
    }
    assert_eq!(house.violations(), [""; 0]);
}

#[tokio::test]
async fn a_session_lives_within_the_permissions() {
    let house = House::open().await;
    let (harness, s) = (house.connect("harness").await, session());
    let (lanes, log) = (harness.lanes(), harness.log());
    let mut bells = Bells::open(&harness, 8).await.expect("opened");
    let id = MessageId::of_input(&s, "in", "key");
    lanes
        .send(&s, &id, Bytes::from_static(b"{}"))
        .await
        .expect("queued");
    let ring = wait::within(LIMIT, "the bell", bells.next())
        .await
        .expect("a ring");
    ring.progress().await;
    assert!(lanes.next(&s, Lane::In, 0).await.expect("read").is_some());
    assert_eq!(lanes.waiting(&s).await.expect("counted"), 1);
    let first = log
        .commit(&s, Bytes::from_static(b"one"), 0)
        .await
        .expect("committed");
    let second = log
        .commit(&s, Bytes::from_static(b"two"), first)
        .await
        .expect("committed");
    assert_eq!(log.read(&s, 0, second).await.expect("read").len(), 2);
    assert_eq!(
        log.tail(&s).await.expect("read").expect("there").seq,
        second
    );
    let snapshot = Snapshot {
        mark: Mark {
            n: 2,
            seq: second,
            hash: Digest::of("two"),
        },
        state: None,
    };
    harness.snaps().put(&s, &snapshot).await.expect("written");
    wait::until(LIMIT, "the snapshot", || async {
        harness.snaps().get(&s).await.expect("read").as_ref() == Some(&snapshot)
    })
    .await;
    lanes.remove(Lane::In, ring.seq).await;
    ring.ack().await;
    bells.release();
    let approval = ApprovalId::of(&CallId::of(&request(), 0, 1), 0, 1);
    lanes
        .set_timer(&s, &approval, 1, Bytes::from_static(b"{}"))
        .await
        .expect("set");
    lanes.cancel_timer(&s, &approval).await.expect("removed");
    lanes.kick(&s, "test").await.expect("rung");
    lanes.sessions().await.expect("listed");
    house
        .connect("router")
        .await
        .flush()
        .await
        .expect("flushed");
    harness.flush().await.expect("flushed");
    assert_eq!(house.violations(), [""; 0]);
}

#[tokio::test]
async fn the_log_is_followed_and_decided_within_the_permissions() {
    let house = House::open().await;
    let (harness, s) = (house.connect("harness").await, session());
    harness
        .log()
        .commit(&s, Bytes::from_static(b"one"), 0)
        .await
        .expect("committed");
    for user in ["approval-gate", "operator", "harness"] {
        let mesh = house.connect(user).await;
        let mut follow = mesh
            .log()
            .follow(log::From::LastOfEach, true)
            .await
            .expect("opened");
        let next = wait::within(LIMIT, "a commit", follow.next()).await;
        assert_eq!(next.expect("open").expect("read").1.body.as_ref(), b"one");
        let mut one = mesh.log().follow_session(&s, 0).await.expect("opened");
        let next = wait::within(LIMIT, "a commit", one.next()).await;
        assert_eq!(next.expect("open").expect("read").1.body.as_ref(), b"one");
        mesh.log().read(&s, 0, 1).await.expect("read");
        mesh.flush().await.expect("flushed");
    }
    let gate = house.connect("approval-gate").await;
    let id = MessageId::of_input(&s, "ctl", "key");
    let decide = gate
        .lanes()
        .control(&s, ControlKind::Decide, &id, Bytes::new())
        .await;
    decide.expect("queued");
    gate.flush().await.expect("flushed");
    assert_eq!(house.violations(), [""; 0]);
}

#[tokio::test]
async fn a_generation_is_kept_and_shown_within_the_permissions() {
    let house = House::open().await;
    let (router, harness) = (
        house.connect("router").await,
        house.connect("harness").await,
    );
    let operator = house.connect("operator").await;
    let completion: Completion = serde_json::from_value(serde_json::json!({
        "parts": [], "stop": "end", "usage": {}, "model": "a/b", "attempts": 1,
    }))
    .expect("a completion");
    let mut deltas = operator.live().follow(&session()).await.expect("opened");
    let delta = Delta {
        request: request(),
        index: 0,
        delta: DeltaKind::Text {
            text: "hello".to_owned(),
        },
    };
    router
        .live()
        .publish(&session(), &delta)
        .await
        .expect("published");
    let shown = wait::within(LIMIT, "a delta", deltas.next()).await;
    assert_eq!(shown, Some(delta));
    router
        .generations()
        .put(&request(), &completion)
        .await
        .expect("kept");
    for reader in [&router, &harness] {
        wait::until(LIMIT, "the completion", || async {
            reader
                .generations()
                .get(&request())
                .await
                .expect("read")
                .as_ref()
                == Some(&completion)
        })
        .await;
    }
    harness.generations().remove(&session()).await;
    let mut questions = router
        .subscribe(subject::generation_run(&request()))
        .await
        .expect("heard");
    router.flush().await.expect("flushed");
    harness
        .publish(subject::generation_run(&request()), Bytes::new())
        .await
        .expect("asked");
    wait::within(LIMIT, "a question", questions.next())
        .await
        .expect("a question");
    for mesh in [&router, &harness, &operator] {
        mesh.flush().await.expect("flushed");
    }
    assert_eq!(house.violations(), [""; 0]);
}
