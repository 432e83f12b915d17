//! The administration of sessions where the broker knows each worker by its own key and lets it do its part alone.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use teamster::harness;
use teamster_mesh::{
    Connect, Function, Mesh, Worker,
    connection::Call,
    serve::{Serving, serve},
    topology::{Topology, ensure},
};
use teamster_protocol::{
    Contract, Event, Fault, Principal, Visibility,
    function::router::{ChatRequest, Completion},
    function::session::{
        ChangeReply, CostReply, CreateReply, ListReply, MessagesReply, SessionInfo,
    },
    usage::NanoUsd,
};
use teamster_testkit::{Secured, wait};

use crate::scene::{LIMIT, id, name, says, session};

/// A mesh as `up` and `deploy nats-accounts` make it: a key and generated rights for each worker.
struct Split {
    secured: Secured,
    operator: Mesh,
    _serving: Vec<Serving>,
}

async fn connect(secured: &Secured, user: &str) -> Mesh {
    let options = Connect {
        url: secured.url(),
        credentials: Some(secured.credentials()),
    };
    Mesh::connect(&options, name(user)).await.expect("connects")
}

fn router() -> Worker {
    let mut chat =
        Contract::new::<ChatRequest, Completion>(id("router::chat"), "A model by script.");
    chat.visibility = Visibility::Worker;
    Worker::new(name("router"), "A model by script.").function(Function::new(
        chat,
        |_, _: ChatRequest| async {
            Ok(Completion {
                cost: Some(NanoUsd(7)),
                ..says("done")
            })
        },
    ))
}

impl Split {
    async fn start() -> Self {
        let secured = Secured::start().await;
        let topology = connect(&secured, "topology").await;
        ensure(&topology, &Topology { replicas: 1 })
            .await
            .expect("ensures");
        let config = harness::Config {
            default_model: "test/model".to_owned(),
            ..harness::Config::default()
        };
        let mut serving = Vec::new();
        for worker in [
            router(),
            teamster_approval_gate::worker(&teamster_approval_gate::Config::default())
                .expect("a gate"),
            teamster_session::worker(&teamster_session::Config { file: None })
                .expect("a session worker"),
            harness::worker(&config).expect("a harness"),
        ] {
            let mesh = connect(&secured, worker.name.as_str()).await;
            serving.push(serve(mesh, worker).await.expect("serves"));
        }
        let operator = connect(&secured, "operator").await;
        let registry = operator.registry().await.expect("registry");
        registry
            .wait(LIMIT, |catalog| {
                catalog.functions.contains_key(&id("harness::send"))
                    && catalog.functions.contains_key(&id("session::delete"))
                    && !catalog.hooks.is_empty()
            })
            .await;
        Self {
            secured,
            operator,
            _serving: serving,
        }
    }

    async fn ask<Reply: DeserializeOwned>(
        &self,
        function: &str,
        request: &Value,
    ) -> Result<Reply, Fault> {
        let call = Call {
            principal: Some(Principal::parse("owner").expect("valid")),
            timeout: LIMIT,
            ..Call::new(id(function), request.to_string())
        };
        let reply = self.operator.call(call).await?;
        Ok(serde_json::from_slice(&reply).expect("a reply of the stated form"))
    }

    /// A change that was taken; its commit.
    async fn change(&self, function: &str, request: &Value) -> u64 {
        let reply: Result<ChangeReply, Fault> = self.ask(function, request).await;
        let reply = reply.unwrap_or_else(|fault| panic!("{function}: {fault}"));
        reply
            .commit
            .unwrap_or_else(|| panic!("{function} was stored and not taken"))
    }

    async fn turns(&self, session: &str, wanted: u64) {
        wait::until(LIMIT, "the turn ends", || async {
            let info: Result<SessionInfo, Fault> = self
                .ask("session::get", &json!({"session_id": session}))
                .await;
            info.is_ok_and(|info| info.turns == wanted && info.status == "idle")
        })
        .await;
    }
}

/// DUR-9: every act of administration works with the rights that the broker gives, a fork and a deletion to the end of its
/// clean-up included; and no worker but the session worker may store one.
#[tokio::test(flavor = "multi_thread")]
async fn dur_9_sessions_are_forked_and_deleted_where_the_broker_checks_everybody() {
    let split = Split::start().await;
    let request = json!({"session_id": "s", "session": {"title": "mine"}});
    let created: CreateReply = split
        .ask("session::create", &request)
        .await
        .expect("created");
    assert!(created.created);
    let ensured: CreateReply = split.ask("session::ensure", &request).await.expect("taken");
    assert!(!ensured.created);
    let note = json!([{"role": "custom", "kind": "note", "text": "kept"}]);
    let append = json!({"session_id": "s", "messages": note});
    split.change("session::append", &append).await;
    let meta = json!({"session_id": "s", "title": "ours", "metadata": {"team": "north"}});
    split.change("session::set-meta", &meta).await;
    let send = json!({"session_id": "s", "message": "go"});
    let _: Value = split.ask("harness::send", &send).await.expect("accepted");
    split.turns("s", 1).await;

    let fork = json!({"session_id": "s", "new_session_id": "copy"});
    split.change("session::fork", &fork).await;
    let copied: MessagesReply = split
        .ask("session::messages", &json!({"session_id": "copy"}))
        .await
        .expect("messages");
    assert_eq!(copied.total, 3, "the note, the message and the answer");
    let send = json!({"session_id": "copy", "message": "go on"});
    let _: Value = split.ask("harness::send", &send).await.expect("accepted");
    split.turns("copy", 1).await;

    let doomed = json!({"session_id": "copy", "confirm": true});
    split.change("session::delete", &doomed).await;
    let copy = session("copy");
    wait::until(LIMIT, "only the tombstone is left", || async {
        let log = split.operator.log();
        let tail = log.tail(&copy).await.expect("read").expect("a tombstone");
        log.read(&copy, 0, tail.seq).await.expect("read").len() == 1
    })
    .await;
    let tail = split.operator.log().tail(&copy).await.expect("read");
    let commit = teamster_protocol::Commit::decode(&tail.expect("there").body).expect("a commit");
    assert!(
        matches!(commit.events.last(), Some(Event::SessionDeleted { spent, .. }) if spent.len() == 1)
    );
    let listed: ListReply = split
        .ask("session::list", &json!({}))
        .await
        .expect("a list");
    let names: Vec<&str> = listed
        .sessions
        .iter()
        .map(|session| session.session_id.as_str())
        .collect();
    assert_eq!(names, ["s"]);
    let cost: CostReply = split
        .ask("session::cost", &json!({"by": ["session"]}))
        .await
        .expect("a sum");
    let rows: BTreeMap<_, _> = cost
        .rows
        .iter()
        .filter_map(|row| {
            Some((
                row.session_id.as_ref()?.as_str(),
                (row.deleted, row.sum.cost.0),
            ))
        })
        .collect();
    assert_eq!(
        rows,
        BTreeMap::from([("copy", (true, 7)), ("s", (false, 7))])
    );
    assert_eq!(cost.total.cost.0, 14);
    nobody_else_administers(&split).await;
}

/// What an act of administration comes to is not reached by the bus: the broker keeps its subject for the session worker.
async fn nobody_else_administers(split: &Split) {
    let subject = teamster_protocol::subject::turn_ctl(
        &session("s"),
        teamster_protocol::input::ControlKind::Admin,
    );
    for user in [
        "harness",
        "approval-gate",
        "router",
        "sandbox",
        "context",
        "operator",
    ] {
        let mesh = connect(&split.secured, user).await;
        let stored = mesh
            .request(
                subject.clone(),
                "{}".into(),
                std::time::Duration::from_millis(500),
            )
            .await;
        assert!(stored.is_err(), "{user} stored an act of administration");
    }
}
