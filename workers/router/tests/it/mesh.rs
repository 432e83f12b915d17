//! The router on a real nats-server: one id, one answer, whoever asks and wherever it runs.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::json;
use teamster_mesh::{
    Connect, Ctx, Mesh,
    connection::Call,
    function::Function,
    serve::{Serving, serve},
    topology::{Topology, ensure},
};
use teamster_protocol::{
    Fault, FunctionId, RequestId, SessionId, Visibility,
    function::router::{
        AbortReply, AbortRequest, ChatRequest, Completion, DeltaKind, Model, ModelsListReply,
        RunQuery,
    },
    id::WorkerName,
    limits,
    message::StopReason,
    subject,
};
use teamster_router::worker;
use teamster_testkit::{
    ModelServer, Nats, Secured,
    model::{Gate, Reply, Script},
    wait,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{LIMIT, config, request, text};

const SESSION: &str = "ses_1";

async fn connect(url: String, credentials: Option<std::path::PathBuf>, name: &str) -> Mesh {
    let name = WorkerName::parse(name).expect("valid");
    Mesh::connect(&Connect { url, credentials }, name)
        .await
        .expect("connected")
}

/// A broker with its streams, a caller's connection, and a served router.
struct Rig {
    nats: Nats,
    caller: Mesh,
    router: Mesh,
    serving: Serving,
}

impl Rig {
    async fn new(server: &ModelServer) -> Self {
        let nats = Nats::start().await;
        let caller = connect(nats.url(), None, "harness").await;
        ensure(&caller, &Topology { replicas: 1 })
            .await
            .expect("ensured");
        let router = connect(nats.url(), None, "router").await;
        let serving = serve(router.clone(), worker(&config(server, "")))
            .await
            .expect("served");
        Self {
            nats,
            caller,
            router,
            serving,
        }
    }

    /// A second router process, whose functions the test calls by hand.
    async fn other(&self, server: &ModelServer) -> Other {
        Other {
            mesh: connect(self.nats.url(), None, "router").await,
            functions: worker(&config(server, "")).functions,
        }
    }
}

struct Other {
    mesh: Mesh,
    functions: Vec<Function>,
}

impl Other {
    async fn call<Reply: DeserializeOwned>(&self, id: &str, body: Bytes) -> Result<Reply, Fault> {
        let function = self
            .functions
            .iter()
            .find(|function| function.contract.id.as_str() == id)
            .expect("served");
        let ctx = Ctx {
            mesh: self.mesh.clone(),
            function: function.contract.id.clone(),
            call: None,
            session: None,
            workspace: None,
            principal: None,
            functions: None,
            deadline: Instant::now() + LIMIT,
            cancel: CancellationToken::new(),
        };
        let answer = wait::within(
            LIMIT,
            "the other router answers",
            (function.handler)(ctx, body),
        )
        .await?;
        Ok(serde_json::from_slice(&answer).expect("a reply"))
    }
}

async fn call<Reply: DeserializeOwned>(
    mesh: &Mesh,
    id: &str,
    body: impl Into<Bytes>,
) -> Result<Reply, Fault> {
    let mut call = Call::new(FunctionId::parse(id).expect("valid"), body);
    call.timeout = LIMIT;
    let answer = mesh.call(call).await?;
    Ok(serde_json::from_slice(&answer).expect("a reply"))
}

fn body(request: &ChatRequest) -> Bytes {
    serde_json::to_vec(request).expect("serialises").into()
}

fn live(id: &str) -> ChatRequest {
    ChatRequest {
        session_id: SessionId::parse(SESSION).ok(),
        ..request(id)
    }
}

fn abort(id: &str) -> Bytes {
    let request_id = RequestId::parse(id).expect("valid");
    serde_json::to_vec(&AbortRequest { request_id })
        .expect("serialises")
        .into()
}

fn streaming(gate: &Gate) -> Script {
    let gate = gate.clone();
    Script::answer(move |_| {
        Reply::stream()
            .text("so far")
            .gate(&gate)
            .text(", done")
            .finish("stop")
            .usage(3, 2)
            .done()
    })
}

#[tokio::test]
async fn a_generation_is_streamed_kept_and_answered_again() {
    let server = ModelServer::start(vec![
        Reply::stream()
            .text("one ")
            .text("two")
            .finish("stop")
            .usage(3, 2)
            .done(),
    ])
    .await;
    let rig = Rig::new(&server).await;
    let session = SessionId::parse(SESSION).expect("valid");
    let asked = live("s.1.1");
    let first: Completion = call(&rig.caller, "router::chat", body(&asked))
        .await
        .expect("answered");
    assert_eq!(
        (first.stop, text(&first).as_str(), first.attempts),
        (StopReason::End, "one two", 1)
    );

    let mut deltas = rig.caller.live().follow(&session).await.expect("followed");
    let mut shown = String::new();
    for index in 0.. {
        let frame = wait::within(LIMIT, "a frame", deltas.next())
            .await
            .expect("a frame");
        assert_eq!((frame.index, &frame.request), (index, &asked.request_id));
        match frame.delta {
            DeltaKind::Text { text } => shown.push_str(&text),
            DeltaKind::Done => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(shown, "one two");

    // Kept before it was told, and answered from memory.
    let kept = rig
        .caller
        .generations()
        .get(&asked.request_id)
        .await
        .expect("read");
    assert_eq!(kept.as_ref(), Some(&first));
    let again: Completion = call(&rig.caller, "router::chat", body(&asked))
        .await
        .expect("answered");
    assert_eq!(again, first);
    // A router that never heard of it finds it where it is kept.
    let other: Completion = rig
        .other(&server)
        .await
        .call("router::complete", body(&asked))
        .await
        .expect("answered");
    assert_eq!(other, first);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_request_that_is_said_to_be_the_first_is_not_looked_for_elsewhere() {
    let server = ModelServer::start(vec![Reply::says("one"), Reply::says("two")]).await;
    let rig = Rig::new(&server).await;
    let asked = ChatRequest {
        is_first: true,
        ..request("s.1.1")
    };
    let first: Completion = call(&rig.caller, "router::chat", body(&asked))
        .await
        .expect("answered");
    // Where it is known already, what the caller says does not matter.
    let again: Completion = call(&rig.caller, "router::chat", body(&asked))
        .await
        .expect("answered");
    assert_eq!((text(&first).as_str(), &again), ("one", &first));
    let other = rig.other(&server).await;
    let wrong: Completion = other
        .call("router::chat", body(&asked))
        .await
        .expect("answered");
    assert_eq!((text(&wrong).as_str(), server.count()), ("two", 2));
}

#[tokio::test]
async fn complete_sends_no_deltas() {
    let server = ModelServer::start(vec![Reply::says("ok"), Reply::says("ok")]).await;
    let rig = Rig::new(&server).await;
    let session = SessionId::parse(SESSION).expect("valid");
    let quiet: Completion = call(&rig.caller, "router::complete", body(&live("s.1.1")))
        .await
        .expect("answered");
    assert_eq!(text(&quiet), "ok");
    let _: Completion = call(&rig.caller, "router::chat", body(&live("s.2.1")))
        .await
        .expect("answered");
    let mut deltas = rig.caller.live().follow(&session).await.expect("followed");
    let first = wait::within(LIMIT, "a frame", deltas.next())
        .await
        .expect("a frame");
    assert_eq!(first.request.as_str(), "s.2.1");
}

#[tokio::test]
async fn a_running_request_is_joined_here_and_from_another_process() {
    let gate = Gate::new();
    let server = ModelServer::start(streaming(&gate)).await;
    let rig = Rig::new(&server).await;
    let other = rig.other(&server).await;
    let asked = live("s.1.1");
    let here = call::<Completion>(&rig.caller, "router::chat", body(&asked));
    let again = call::<Completion>(&rig.caller, "router::chat", body(&asked));
    let there = async {
        gate.reached(LIMIT).await;
        other.call::<Completion>("router::chat", body(&asked)).await
    };
    let subject = subject::generation_run(&asked.request_id);
    let join = || Bytes::from(serde_json::to_vec(&RunQuery::Join).expect("serialises"));
    let opened = async {
        gate.reached(LIMIT).await;
        // A sign of life while it runs.
        let alive = rig
            .caller
            .request(subject.clone(), join(), LIMIT)
            .await
            .expect("a sign of life");
        assert!(alive.is_empty());
        gate.open();
    };
    let (here, again, there, ()) = tokio::join!(here, again, there, opened);
    let here = here.expect("answered");
    assert_eq!(text(&here), "so far, done");
    assert_eq!(
        (&again.expect("joined"), &there.expect("joined")),
        (&here, &here)
    );
    assert_eq!(server.count(), 1);
    // Nobody listens any more.
    wait::until(LIMIT, "the subject is left", || async {
        matches!(
            rig.caller.request(subject.clone(), join(), LIMIT).await,
            Err(teamster_mesh::Error::NoResponders { .. })
        )
    })
    .await;
}

#[tokio::test]
async fn an_abort_from_another_process_ends_it_with_what_was_said() {
    let gate = Gate::new();
    let server = ModelServer::start(streaming(&gate)).await;
    let rig = Rig::new(&server).await;
    let other = rig.other(&server).await;
    let asked = request("s.1.1");
    let generated = call::<Completion>(&rig.caller, "router::chat", body(&asked));
    let aborted = async {
        gate.reached(LIMIT).await;
        other
            .call::<AbortReply>("router::abort", abort("s.1.1"))
            .await
    };
    let (completion, aborted) = tokio::join!(generated, aborted);
    let completion = completion.expect("answered");
    assert!(aborted.expect("answered").aborted);
    assert_eq!(
        (completion.stop, completion.error),
        (StopReason::Aborted, None)
    );
    assert!(completion.usage.estimated);
    wait::until(LIMIT, "the provider's connection is closed", || async {
        server.left() == 1
    })
    .await;
    // What is over or unknown is not aborted.
    for id in ["s.1.1", "s.9.9"] {
        let late: AbortReply = call(&rig.caller, "router::abort", abort(id))
            .await
            .expect("answered");
        assert!(!late.aborted, "{id}");
    }
    // The abort was for good.
    let again: Completion = call(&rig.caller, "router::chat", body(&asked))
        .await
        .expect("answered");
    assert_eq!((again.stop, server.count()), (StopReason::Aborted, 1));
}

#[tokio::test]
async fn a_caller_that_dies_does_not_lose_the_answer() {
    let gate = Gate::new();
    let server = ModelServer::start(streaming(&gate)).await;
    let rig = Rig::new(&server).await;
    let asked = request("s.1.1");
    {
        let generated = call::<Completion>(&rig.caller, "router::chat", body(&asked));
        tokio::select! {
            _ = generated => panic!("the gate is closed"),
            () = gate.reached(LIMIT) => {}
        }
    }
    gate.open();
    let kept = wait::some(LIMIT, "the answer is kept", || async {
        rig.caller
            .generations()
            .get(&asked.request_id)
            .await
            .ok()
            .flatten()
    })
    .await;
    assert_eq!((text(&kept).as_str(), server.count()), ("so far, done", 1));
}

#[tokio::test]
async fn a_cancelled_call_ends_the_request_and_leaves_it_to_be_made_again() {
    let gate = Gate::new();
    let server = ModelServer::start(streaming(&gate)).await;
    let rig = Rig::new(&server).await;
    let asked = request("s.1.1");
    let function = FunctionId::parse("router::chat").expect("valid");
    let mut first = Call::new(function.clone(), body(&asked));
    first.call = Some("call-1".to_owned());
    first.timeout = LIMIT;
    let cancelled = async {
        gate.reached(LIMIT).await;
        rig.caller.cancel_call(&function, "call-1").await;
    };
    let (answer, ()) = tokio::join!(rig.caller.call(first), cancelled);
    if let Ok(answer) = answer {
        let completion: Completion = serde_json::from_slice(&answer).expect("a completion");
        assert_eq!(completion.stop, StopReason::Incomplete);
    }
    wait::until(LIMIT, "the provider's connection is closed", || async {
        server.left() == 1
    })
    .await;
    assert_eq!(
        rig.caller
            .generations()
            .get(&asked.request_id)
            .await
            .expect("read"),
        None
    );
    gate.open();
    let again: Completion = call(&rig.caller, "router::chat", body(&asked))
        .await
        .expect("answered");
    assert_eq!((again.stop, server.count()), (StopReason::End, 2));
}

#[tokio::test]
async fn failures_of_providers_are_answers_and_models_are_known() {
    let server = ModelServer::start(vec![
        Reply::status(401).json(&json!({"error": {"message": "no"}})),
    ])
    .await;
    let rig = Rig::new(&server).await;
    let refused: Completion = call(&rig.caller, "router::chat", body(&request("s.1.1")))
        .await
        .expect("an answer");
    assert_eq!(
        (refused.stop, refused.error.is_some()),
        (StopReason::Error, true)
    );
    let unknown = ChatRequest {
        model: "nobody/m".to_owned(),
        ..request("s.2.1")
    };
    let unknown: Completion = call(&rig.caller, "router::chat", body(&unknown))
        .await
        .expect("an answer");
    assert!(unknown.error.and_then(|error| error.hint).is_some());
    let bad = call::<Completion>(&rig.caller, "router::chat", "{\"model\": 1}")
        .await
        .expect_err("a fault");
    assert_eq!(bad.code, "mesh.bad_request");

    let models: ModelsListReply = call(
        &rig.caller,
        "router::models::list",
        "{\"provider\":\"scripted\"}",
    )
    .await
    .expect("listed");
    assert_eq!(
        models
            .models
            .iter()
            .map(|model| (model.id.as_str(), model.scripted))
            .collect::<Vec<_>>(),
        [("scripted/guided", true)]
    );
    let model: Model = call(
        &rig.caller,
        "router::models::get",
        "{\"model\":\"ollama/any:7b\"}",
    )
    .await
    .expect("known");
    assert_eq!((model.id.as_str(), model.price), ("ollama/any:7b", None));
    let fault = call::<Model>(
        &rig.caller,
        "router::models::get",
        "{\"model\":\"nobody/m\"}",
    )
    .await
    .expect_err("a fault");
    assert_eq!(
        (fault.code.as_str(), fault.hint.is_some()),
        ("router.unknown_model", true)
    );
}

#[tokio::test]
async fn a_router_that_ends_answers_and_keeps_nothing() {
    let gate = Gate::new();
    let server = ModelServer::start(streaming(&gate)).await;
    let Rig {
        nats: _nats,
        caller,
        router: _router,
        serving,
    } = Rig::new(&server).await;
    let asked = request("s.1.1");
    let generated = call::<Completion>(&caller, "router::chat", body(&asked));
    let drained = async {
        gate.reached(LIMIT).await;
        serving.drain().await;
    };
    let (completion, ()) = tokio::join!(generated, drained);
    if let Ok(completion) = completion {
        assert_eq!(completion.stop, StopReason::Incomplete);
    }
    assert_eq!(
        caller
            .generations()
            .get(&asked.request_id)
            .await
            .expect("read"),
        None
    );
}

/// With the permissions of the product: what the router needs is what it may do.
#[tokio::test]
async fn the_router_works_within_its_permissions() {
    let gate = Gate::new();
    let server = ModelServer::start(streaming(&gate)).await;
    let secured = Secured::start().await;
    let join = async |name: &str| connect(secured.url(), Some(secured.credentials()), name).await;
    ensure(&join("topology").await, &Topology { replicas: 1 })
        .await
        .expect("ensured");
    let router = join("router").await;
    let _serving = serve(router.clone(), worker(&config(&server, "")))
        .await
        .expect("served");
    let second = Other {
        mesh: join("router").await,
        functions: worker(&config(&server, "")).functions,
    };
    let harness = join("harness").await;
    let asked = live("s.1.1");
    let generated = call::<Completion>(&harness, "router::chat", body(&asked));
    let joined = async {
        gate.reached(LIMIT).await;
        let joined = second.call::<Completion>("router::chat", body(&asked));
        let opened = async { gate.open() };
        tokio::join!(joined, opened).0
    };
    let (generated, joined) = tokio::join!(generated, joined);
    let generated = generated.expect("answered");
    assert_eq!(text(&generated), "so far, done");
    assert_eq!(joined.expect("joined"), generated);
    assert_eq!(
        harness
            .generations()
            .get(&asked.request_id)
            .await
            .expect("read"),
        Some(generated)
    );
    let person = join("operator").await;
    let mut deltas = person
        .live()
        .follow(&SessionId::parse(SESSION).expect("valid"))
        .await
        .expect("followed");
    assert!(
        wait::within(LIMIT, "a frame", deltas.next())
            .await
            .is_some()
    );
    let aborted: AbortReply = call(&harness, "router::abort", abort("s.9.9"))
        .await
        .expect("answered");
    assert!(!aborted.aborted);
}

#[test]
fn contracts_carry_honest_labels() {
    for function in worker(&teamster_router::Config::default()).functions {
        let contract = &function.contract;
        assert_eq!(contract.visibility, Visibility::Worker, "{}", contract.id);
        assert!(contract.idempotent, "{}", contract.id);
        let is_generation = ["router::chat", "router::complete"].contains(&contract.id.as_str());
        assert_eq!(
            contract.class == teamster_protocol::Class::Egress,
            is_generation,
            "{}",
            contract.id
        );
        assert_eq!(
            contract.timeout() == limits::GENERATION_MAX,
            is_generation,
            "{}",
            contract.id
        );
    }
}
