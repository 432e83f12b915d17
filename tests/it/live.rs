//! The configuration changes while a turn runs: by file and in the mesh, at the whole system.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};
use teamster::{
    client::Client,
    config::{
        Source,
        explain::{Status, StatusRequest},
    },
    host::{Host, WORKERS},
};
use teamster_mesh::{
    Connect, Mesh,
    topology::{self, Topology},
};
use teamster_protocol::{
    Event, SessionId,
    function::harness::SendRequest,
    input::{SessionOptions, TurnOptions},
    policy::FunctionPolicy,
};
use teamster_testkit::{
    Nats,
    model::{Gate, ModelServer, Reply, Request, Script},
    wait,
};

use crate::scene::{LIMIT, name, session};

/// A whole mesh whose configuration lies in a directory.
struct Rig {
    client: Client,
    host: Host,
    data: tempfile::TempDir,
    model: ModelServer,
    _nats: Nats,
}

impl Rig {
    async fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let nats = Nats::start().await;
        let connect = Connect {
            url: nats.url(),
            credentials: None,
        };
        let maker = Mesh::connect(&connect, name("topology"))
            .await
            .expect("connects");
        topology::ensure(&maker, &Topology { replicas: 1 })
            .await
            .expect("ensures");
        let model = ModelServer::start(Script::answer(script)).await;
        let data = tempfile::tempdir().expect("a folder");
        std::fs::write(data.path().join("notes.md"), "notes\n").expect("written");
        write(data.path(), &model, 6, 600);
        let source = Source {
            data: data.path().to_owned(),
            model: None,
        };
        let reading = source.read().expect("valid");
        let host = Host::follow(&connect, source, reading, &WORKERS)
            .await
            .expect("hosts");
        let client = Client::connect(&connect).await.expect("connects");
        let missing = client
            .wait_for_workers(&WORKERS, LIMIT)
            .await
            .expect("readable");
        assert_eq!(missing, Vec::<String>::new());
        Self {
            client,
            host,
            data,
            model,
            _nats: nats,
        }
    }

    async fn send(&self, to: &SessionId, text: &str) {
        let workspace = self.data.path().to_string_lossy().into_owned();
        let request = SendRequest {
            session_id: Some(to.clone()),
            message: text.to_owned(),
            idempotency_key: None,
            session: SessionOptions {
                workspace: Some(workspace),
                ..SessionOptions::default()
            },
            options: TurnOptions {
                functions: Some(FunctionPolicy {
                    allow: vec!["fs::*".to_owned()],
                    ..FunctionPolicy::default()
                }),
                ..TurnOptions::default()
            },
        };
        self.client.send(request).await.expect("sent");
    }

    /// Waits until a worker has a value in force.
    async fn until(&self, key: &str, want: Value) {
        let worker = key.split('.').next().expect("a section");
        let function = format!("{worker}::config");
        wait::until(LIMIT, &format!("{key} is {want}"), || async {
            let status: Status = self
                .client
                .operate(&function, &StatusRequest {})
                .await
                .expect("answered");
            status
                .values
                .iter()
                .any(|value| value.key == key && value.value == want)
        })
        .await;
    }

    async fn events(&self, of: &SessionId) -> Vec<Event> {
        let commits = self.client.commits(of).await.unwrap_or_default();
        commits
            .into_iter()
            .flat_map(|(_, commit)| commit.events)
            .collect()
    }

    async fn ended(&self, of: &SessionId, turns: usize) {
        wait::until(LIMIT, &format!("{turns} turns have ended"), || async {
            let events = self.events(of).await;
            let ends = events
                .iter()
                .filter(|event| matches!(event, Event::TurnEnded { .. }));
            ends.count() == turns
        })
        .await;
    }

    /// The most steps of each turn, as the log has it.
    async fn bounds(&self, of: &SessionId) -> Vec<Option<u32>> {
        let mut steps = None;
        let events = self.events(of).await;
        let started = events.iter().filter_map(|event| match event {
            Event::TurnStarted { options, .. } => {
                if let Some(options) = options {
                    steps = options.budget.steps;
                }
                Some(steps)
            }
            _ => None,
        });
        started.collect()
    }

    /// The bounds on output that the model was asked with.
    fn asked(&self) -> Vec<u64> {
        let requests = self.model.requests();
        requests
            .iter()
            .filter_map(|request| request.json()["max_tokens"].as_u64())
            .collect()
    }
}

/// Writes the file as an orchestrator does: a new one beside it that takes its name.
fn write(data: &Path, model: &ModelServer, turns: u32, tokens: u64) {
    let text = format!(
        "harness:\n  default_model: test/model\n  default_max_turns: {turns}\n  max_output_tokens: {tokens}\nrouter:\n  providers:\n    test: {{base_url: '{}'}}\n",
        model.base_url()
    );
    let scratch = data.join("new.yaml");
    std::fs::write(&scratch, text).expect("written");
    std::fs::rename(&scratch, data.join("config.yaml")).expect("renamed");
}

/// Two steps a turn; the first generation of the first turn waits at the gate.
fn two_steps(gate: &Arc<Gate>) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    let gate = Arc::clone(gate);
    move |request| {
        if request.is_after_result() {
            return Reply::says("done");
        }
        let call = Reply::stream();
        let call = if request.number == 0 {
            call.gate(&gate)
        } else {
            call
        };
        call.call(0, "c1", "fs__list", "{}")
            .finish("tool_calls")
            .usage(5, 5)
            .done()
    }
}

/// CONF-2: the file is replaced while a turn runs. That turn keeps what it began with to its end, and the next one takes the new.
#[tokio::test]
async fn conf_2_a_file_that_is_replaced_in_a_running_turn_counts_for_the_next_one() {
    let gate = Arc::new(Gate::new());
    let rig = Rig::start(two_steps(&gate)).await;
    let s = session("s");
    rig.send(&s, "first").await;
    wait::until(LIMIT, "the model is asked", || async { gate.is_reached() }).await;
    write(rig.data.path(), &rig.model, 9, 900);
    rig.until("harness.default_max_turns", json!(9)).await;
    gate.open();
    rig.ended(&s, 1).await;
    rig.send(&s, "second").await;
    rig.ended(&s, 2).await;
    assert_eq!(rig.asked(), [600, 600, 900, 900]);
    assert_eq!(rig.bounds(&s).await, [Some(6), Some(9)]);
    rig.host.drain().await;
}

/// CONF-2: a value is set in the mesh while a turn runs; the same, and a hook that becomes required holds at the next call of the
/// running turn already.
#[tokio::test]
async fn conf_2_a_value_that_is_set_in_a_running_turn_counts_for_the_next_one_and_tightens_at_once()
{
    let gate = Arc::new(Gate::new());
    let rig = Rig::start(two_steps(&gate)).await;
    let s = session("s");
    rig.send(&s, "first").await;
    wait::until(LIMIT, "the model is asked", || async { gate.is_reached() }).await;
    let configs = rig.client.mesh().configs();
    let body = r#"{"max_output_tokens": 700, "default_max_turns": 3, "required_hooks": ["approval-gate", "absent"]}"#;
    let put = configs
        .put(
            &name("harness"),
            Bytes::from_static(body.as_bytes()),
            "me",
            None,
        )
        .await;
    put.expect("stored");
    rig.until("harness.max_output_tokens", json!(700)).await;
    gate.open();
    rig.ended(&s, 1).await;
    assert_eq!(rig.asked(), [600, 600]);
    let events = rig.events(&s).await;
    let refused = events.iter().any(|event| {
        serde_json::to_string(event)
            .expect("JSON")
            .contains("gate_unavailable")
    });
    assert!(
        refused,
        "the running turn obeys what became stricter: {events:?}"
    );

    // Everything is taken away again: the file counts.
    configs
        .remove(&name("harness"), "me", None)
        .await
        .expect("stored");
    rig.until("harness.max_output_tokens", json!(600)).await;
    rig.send(&s, "second").await;
    rig.ended(&s, 2).await;
    assert_eq!(rig.asked(), [600, 600, 600, 600]);
    assert_eq!(rig.bounds(&s).await, [Some(6), Some(6)]);
    rig.host.drain().await;
}

/// What is set live is in force from a worker's first call on, and one that cannot be used keeps nobody from starting.
#[tokio::test]
async fn conf_1_what_is_set_before_a_start_counts_from_it_unless_it_cannot_be_used() {
    let rig = Rig::start(|_| Reply::says("hello")).await;
    let configs = rig.client.mesh().configs();
    let put = |worker: &'static str, body: &'static str| {
        let configs = configs.clone();
        async move {
            let (worker, body) = (name(worker), Bytes::from_static(body.as_bytes()));
            let put = configs.put(&worker, body, "me", None).await;
            put.expect("stored");
        }
    };
    put("harness", r#"{"max_output_tokens": 70}"#).await;
    put(
        "router",
        r#"{"providers": {"test": {"base_url": "ftp://nowhere"}}}"#,
    )
    .await;
    let Rig {
        client,
        host,
        data,
        model,
        _nats: nats,
    } = rig;
    host.drain().await;
    let source = Source {
        data: data.path().to_owned(),
        model: None,
    };
    let connect = Connect {
        url: nats.url(),
        credentials: None,
    };
    let reading = source.read().expect("valid");
    let host = Host::follow(&connect, source, reading, &WORKERS)
        .await
        .expect("hosts");
    client
        .wait_for_workers(&WORKERS, LIMIT)
        .await
        .expect("readable");
    let rig = Rig {
        client,
        host,
        data,
        model,
        _nats: nats,
    };
    let s = session("s");
    rig.send(&s, "hi").await;
    rig.ended(&s, 1).await;
    assert_eq!(rig.asked(), [70]);
    let status: Status = rig
        .client
        .operate("router::config", &StatusRequest {})
        .await
        .expect("answered");
    assert_eq!(status.refusals.len(), 1);
    let problem = &status.refusals[0].problem;
    assert!(
        problem.contains("providers.test") && problem.contains("http://"),
        "{problem}"
    );
    rig.host.drain().await;
}
