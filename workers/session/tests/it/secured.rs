//! The worker under the rights that the product's own broker gives it.

use serde_json::{Value, json};
use teamster_mesh::{
    connection::Call,
    notice::{Told, Wanted},
    serve::serve,
};
use teamster_protocol::{FunctionId, Phase, notice::NoticeKind};
use teamster_session::{Config, worker};
use teamster_testkit::{Secured, connect, prepare, wait};

use crate::{
    ask::turn,
    rig::{Asker, LIMIT, Writer, created},
};

/// Operators alone ask about sessions, and what the worker needs for it is all that it may do.
#[tokio::test(flavor = "multi_thread")]
async fn the_worker_has_the_rights_that_it_needs_and_workers_cannot_ask_it() {
    let secured = Secured::start().await;
    prepare(&secured).await;
    let dir = tempfile::tempdir().expect("a folder");
    let config = Config {
        file: Some(dir.path().join("session.sqlite")),
    };
    let mesh = connect(&secured, "session").await;
    let _served = serve(mesh, worker(&config).expect("a worker"))
        .await
        .expect("served");
    let harness = connect(&secured, "harness").await;
    let mut writer = Writer::new(&harness, "one");
    writer.commit(Phase::Idle, vec![created("one")]).await;
    turn(&mut writer, 1, "ask", "answer").await;

    let operator = connect(&secured, "operator").await;
    let mut notices = operator
        .notices()
        .follow(&Wanted::default(), 0)
        .await
        .expect("notices");
    let asker = Asker(operator);
    for (function, request) in [
        ("session::status", json!({})),
        ("session::list", json!({})),
        ("session::get", json!({"session_id": "one"})),
        ("session::messages", json!({"session_id": "one"})),
        ("session::events", json!({"session_id": "one"})),
        ("session::search", json!({"query": "answer"})),
        ("session::cost", json!({})),
        ("session::approvals", json!({})),
    ] {
        let reply: Result<Value, _> = asker.ask(function, &request).await;
        reply.unwrap_or_else(|fault| panic!("{function}: {fault}"));
        // A worker asks on the subject of workers, where nobody serves it, and may not use the operators'.
        let id = FunctionId::parse(function).expect("an id");
        let call = Call::new(id, request.to_string());
        let fault = harness.call(call).await.expect_err("not for workers");
        assert_eq!(fault.code, "mesh.no_responders", "{function}");
    }
    let mut kinds = Vec::new();
    while kinds.last() != Some(&NoticeKind::TurnCompleted) {
        match wait::within(LIMIT, "a notice comes", notices.next()).await {
            Some(Told::Notice { kind, .. }) => kinds.push(kind),
            Some(Told::CaughtUp) => {}
            other => panic!("a notice: {other:?}"),
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}
