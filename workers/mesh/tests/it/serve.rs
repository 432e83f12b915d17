//! Serving: memory of calls, cancelling, bounds, panics, drain, and what plain NATS tools see.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use teamster_mesh::{Function, Mesh, Worker, serve::serve};
use teamster_protocol::{FaultClass, limits};
use teamster_testkit::{wait, wait::within};
use tokio::sync::watch;

use crate::fixture::{LIMIT, Reply, call, function, join, mesh, name, open, served, text};

/// A function that says that it runs, and ends when it is let go.
struct Gate {
    started: watch::Sender<u32>,
    is_open: watch::Sender<bool>,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            started: watch::Sender::new(0),
            is_open: watch::Sender::new(false),
        })
    }

    fn function(self: &Arc<Self>, id: &str) -> Function {
        let gate = Arc::clone(self);
        open(id, move |_, request| {
            let gate = Arc::clone(&gate);
            async move {
                gate.started.send_modify(|count| *count += 1);
                let mut is_open = gate.is_open.subscribe();
                let _ = is_open.wait_for(|is| *is).await;
                Ok(Reply { text: request.text })
            }
        })
    }

    async fn running(&self, count: u32) {
        let mut started = self.started.subscribe();
        within(LIMIT, "calls run", started.wait_for(|now| *now >= count))
            .await
            .expect("started");
    }

    fn open(&self) {
        self.is_open.send_replace(true);
    }
}

fn spawn_call(
    mesh: &Mesh,
    id: &str,
    call_id: Option<&str>,
) -> tokio::task::JoinHandle<Result<Bytes, teamster_protocol::Fault>> {
    let mut call = call(id, "x");
    call.call = call_id.map(str::to_owned);
    let mesh = mesh.clone();
    tokio::spawn(async move { mesh.call(call).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_call_is_joined_and_then_answered_from_memory() {
    let (nats, mesh) = mesh().await;
    let (worker, gate) = (join(&nats, "work").await, Gate::new());
    let functions = vec![gate.function("work::do"), gate.function("work::other")];
    let _serving = served(&worker, "work", functions).await;
    let first = spawn_call(&mesh, "work::do", Some("c1"));
    gate.running(1).await;
    let second = spawn_call(&mesh, "work::do", Some("c1"));
    let asked = tokio::spawn({
        let mesh = mesh.clone();
        async move { mesh.call_outcome(&function("work::do"), "c1", LIMIT).await }
    });
    let foreign = spawn_call(&mesh, "work::other", Some("c1")).await;
    let foreign = foreign.expect("ran").expect_err("a fault");
    assert_eq!(foreign.code, "mesh.call_id_reused");
    gate.open();
    for calling in [first, second] {
        let reply = within(LIMIT, "an answer", calling).await.expect("ran");
        assert_eq!(text(&reply.expect("answered")), "x");
    }
    let outcome = within(LIMIT, "the outcome", asked).await.expect("ran");
    assert_eq!(
        text(&outcome.expect("asked").expect("known").expect("a reply")),
        "x"
    );
    let third = spawn_call(&mesh, "work::do", Some("c1"))
        .await
        .expect("ran");
    assert_eq!(text(&third.expect("answered")), "x");
    assert_eq!(*gate.started.borrow(), 1, "it ran once");
    spawn_call(&mesh, "work::do", None)
        .await
        .expect("ran")
        .expect("answered");
    assert_eq!(*gate.started.borrow(), 2, "without an id each call runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nobody_knows_has_no_outcome() {
    let (nats, mesh) = mesh().await;
    let ask = async |id: &str, call: &str| {
        let function = function(id);
        let outcome = mesh.call_outcome(&function, call, LIMIT);
        within(LIMIT, "the outcome", outcome).await.expect("asked")
    };
    assert_eq!(ask("nobody::here", "c").await, None);
    let gate = Gate::new();
    gate.open();
    let (one, two) = (join(&nats, "work").await, join(&nats, "work").await);
    let _one = served(&one, "work", vec![gate.function("work::do")]).await;
    let _two = served(&two, "work", vec![gate.function("work::do")]).await;
    assert_eq!(ask("work::do", "never").await, None);
    // With the registry at hand the answer does not wait for the time to pass.
    let registry = mesh.registry().await.expect("a registry");
    registry
        .wait(LIMIT, |catalog| catalog.workers.len() == 2)
        .await;
    assert_eq!(ask("work::do", "never").await, None);
    // Whichever of the two served it, its outcome is found.
    spawn_call(&mesh, "work::do", Some("c1"))
        .await
        .expect("ran")
        .expect("answered");
    assert!(matches!(ask("work::do", "c1").await, Some(Ok(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_ends_even_when_its_handler_ignores_it() {
    let (nats, mesh) = mesh().await;
    let (worker, gate) = (join(&nats, "work").await, Gate::new());
    let heeding = open("work::heed", |ctx, _| async move {
        ctx.cancel.cancelled().await;
        Ok(Reply {
            text: "stopped half-way".to_owned(),
        })
    });
    let _serving = served(
        &worker,
        "work",
        vec![gate.function("work::ignore"), heeding],
    )
    .await;
    let ignoring = spawn_call(&mesh, "work::ignore", Some("c1"));
    let heeding = spawn_call(&mesh, "work::heed", Some("c2"));
    gate.running(1).await;
    // A cancellation is not answered: it is repeated until it has reached the call that may just begin.
    let heeded = wait::some(LIMIT, "the heeding call ends", || async {
        mesh.cancel_call(&function("work::heed"), "c2").await;
        heeding.is_finished().then_some(())
    });
    heeded.await;
    assert_eq!(
        text(&heeding.await.expect("ran").expect("answered")),
        "stopped half-way"
    );
    mesh.cancel_call(&function("work::ignore"), "c1").await;
    let fault = within(LIMIT, "the ignoring call ends", ignoring)
        .await
        .expect("ran");
    let fault = fault.expect_err("a fault");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("mesh.cancelled", FaultClass::Gone)
    );
    let outcome = mesh
        .call_outcome(&function("work::ignore"), "c1", LIMIT)
        .await;
    let remembered = outcome
        .expect("asked")
        .expect("known")
        .expect_err("a fault");
    assert_eq!(remembered.code, "mesh.cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_stays_in_its_call() {
    let (_nats, mesh) = mesh().await;
    let panicking = open("bad::panic", |_, request| async move {
        assert!(request.text.is_empty(), "as the test wants it");
        Ok(Reply {
            text: "calm".to_owned(),
        })
    });
    let _serving = served(&mesh, "bad", vec![panicking]).await;
    for _ in 0..3 {
        let fault = mesh
            .call(call("bad::panic", "x"))
            .await
            .expect_err("a fault");
        assert_eq!(
            (fault.code.as_str(), fault.class),
            ("mesh.panic", FaultClass::Internal)
        );
        assert!(!fault.message.contains("as the test wants it"));
    }
    assert_eq!(
        text(&mesh.call(call("bad::panic", "")).await.expect("answered")),
        "calm"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_limit_are_told_to_come_again() {
    let (nats, mesh) = mesh().await;
    let (worker, gate) = (join(&nats, "work").await, Gate::new());
    let _serving = served(&worker, "work", vec![gate.function("work::do")]).await;
    let calls: Vec<_> = (0..limits::REQUESTS_AT_ONCE_MAX)
        .map(|_| spawn_call(&mesh, "work::do", None))
        .collect();
    gate.running(u32::try_from(calls.len()).expect("fits"))
        .await;
    let fault = mesh.call(call("work::do", "x")).await.expect_err("a fault");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("mesh.busy", FaultClass::Busy)
    );
    assert!(fault.retry_after_ms.is_some());
    gate.open();
    for calling in calls {
        within(LIMIT, "an answer", calling)
            .await
            .expect("ran")
            .expect("answered");
    }
    mesh.call(call("work::do", "x"))
        .await
        .expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_finishes_what_runs_and_takes_nothing_new() {
    let (nats, mesh) = mesh().await;
    let (worker, gate) = (join(&nats, "work").await, Gate::new());
    let ended = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ended);
    let served = Worker::new(name("work"), "A worker of a test.")
        .function(gate.function("work::do"))
        .task("background", move |_, cancel| async move {
            cancel.cancelled().await;
            count.fetch_add(1, Ordering::SeqCst);
        });
    let serving = serve(worker, served).await.expect("served");
    let registry = mesh.registry().await.expect("a registry");
    registry
        .wait(LIMIT, |catalog| catalog.workers.len() == 1)
        .await;
    let running = spawn_call(&mesh, "work::do", None);
    gate.running(1).await;
    let draining = tokio::spawn(serving.drain());
    let catalog = registry
        .wait(LIMIT, |catalog| catalog.workers.is_empty())
        .await;
    assert!(catalog.functions.is_empty());
    wait::until(LIMIT, "new calls are refused", || async {
        let mut late = call("work::do", "x");
        late.timeout = Duration::from_millis(100);
        mesh.call(late).await.expect_err("a fault").code == "mesh.no_responders"
    })
    .await;
    assert!(!draining.is_finished());
    assert_eq!(ended.load(Ordering::SeqCst), 0, "tasks end after the calls");
    gate.open();
    let reply = within(LIMIT, "the answer", running).await.expect("ran");
    assert_eq!(text(&reply.expect("answered")), "x");
    within(LIMIT, "the drain", draining).await.expect("drained");
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_nats_tools_find_and_inspect_a_worker() {
    let (nats, mesh) = mesh().await;
    let failing = open("tool::fail", |_, _| async move {
        Err(teamster_protocol::Fault::busy("tool.busy", "later"))
    });
    let working = open("tool::work", |_, request| async move {
        Ok(Reply { text: request.text })
    });
    let mut admin = open("tool::admin", |_, request| async move {
        Ok(Reply { text: request.text })
    });
    Arc::make_mut(&mut admin.contract).visibility = teamster_protocol::Visibility::Operator;
    let _serving = served(&mesh, "tool", vec![working, failing, admin]).await;
    mesh.call(call("tool::work", "x")).await.expect("answered");
    mesh.call(call("tool::fail", "x"))
        .await
        .expect_err("a fault");
    let plain = async_nats::connect(nats.url()).await.expect("connected");
    let ask = async |subject: String| -> serde_json::Value {
        let answer = plain
            .request(subject, Bytes::new())
            .await
            .expect("answered");
        serde_json::from_slice(&answer.payload).expect("JSON")
    };
    let ping = ask("$SRV.PING".to_owned()).await;
    assert_eq!(ping["type"], "io.nats.micro.v1.ping_response");
    assert_eq!(ping["name"], "tool");
    assert_eq!(ping["id"], mesh.incarnation().as_str());
    let info = ask("$SRV.INFO.tool".to_owned()).await;
    assert_eq!(info["type"], "io.nats.micro.v1.info_response");
    assert_eq!(info["endpoints"][2]["subject"], "op.*.tool.admin");
    for endpoint in info["endpoints"].as_array().expect("endpoints") {
        let name = endpoint["name"].as_str().expect("a name");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        assert!(name.chars().all(is_plain), "{name}");
        for schema in ["request", "reply"] {
            let text = endpoint["metadata"][schema].as_str().expect("a schema");
            let schema: serde_json::Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(schema["type"], "object");
        }
    }
    let endpoint = &info["endpoints"][0];
    assert_eq!(endpoint["subject"], "fn.tool.work");
    assert_eq!(endpoint["queue_group"], "q");
    assert_eq!(endpoint["metadata"]["class"], "egress");
    assert_eq!(endpoint["metadata"]["idempotent"], "false");
    assert!(
        endpoint["metadata"]["request"]
            .as_str()
            .expect("text")
            .contains("properties")
    );
    let stats = wait::some(LIMIT, "both calls are counted", || async {
        let stats = ask(format!("$SRV.STATS.tool.{}", mesh.incarnation())).await;
        (stats["endpoints"][1]["num_requests"] == 1).then_some(stats)
    })
    .await;
    assert_eq!(stats["type"], "io.nats.micro.v1.stats_response");
    assert_eq!(stats["endpoints"][0]["num_errors"], 0);
    assert_eq!(stats["endpoints"][1]["num_errors"], 1);
    let last = stats["endpoints"][1]["last_error"].as_str();
    assert!(last.is_some_and(|text| text.contains("tool.busy")));
    assert!(stats["endpoints"][0]["processing_time"].as_u64() > Some(0));
    assert_eq!(stats["endpoints"][2]["num_requests"], 0);
    assert!(
        stats["started"]
            .as_str()
            .is_some_and(|text| text.ends_with('Z'))
    );
    for answer in [&ping, &info, &stats] {
        for field in ["name", "id", "version"] {
            assert!(answer[field].is_string(), "{answer}");
        }
        assert!(answer["metadata"].is_object(), "{answer}");
    }
    // An endpoint answers plain tools too.
    let answer = plain
        .request("fn.tool.work", "{\"text\":\"plain\"}".into())
        .await
        .expect("answered");
    assert_eq!(text(&answer.payload), "plain");
}
