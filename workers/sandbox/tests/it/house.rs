//! A server, a caller and the worker, each on a connection of its own.

use std::{path::Path, time::Duration};

use serde_json::Value;
use teamster_mesh::{
    Connect, Mesh,
    connection::Call,
    serve::{Serving, serve},
    topology::{Topology, ensure},
};
use teamster_protocol::{Fault, FunctionId, SessionId, id::WorkerName, limits};
use teamster_sandbox::{Config, worker};
use teamster_testkit::Nats;

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// A server, a caller, and the worker.
pub(crate) struct House {
    pub(crate) caller: Mesh,
    pub(crate) serving: Serving,
    _nats: Nats,
}

impl House {
    pub(crate) async fn new(config: Config) -> Self {
        let nats = Nats::start().await;
        let caller = join(&nats, "harness").await;
        ensure(&caller, &Topology { replicas: 1 })
            .await
            .expect("the streams");
        let serving = serve(join(&nats, "sandbox").await, worker(config))
            .await
            .expect("served");
        Self {
            caller,
            serving,
            _nats: nats,
        }
    }

    /// Calls a function in a workspace, as the harness does.
    pub(crate) async fn call(
        &self,
        id: &str,
        workspace: Option<&Path>,
        body: Value,
    ) -> Result<Value, Fault> {
        let mut call = Call::new(FunctionId::parse(id).expect("an id"), body.to_string());
        call.session = Some(SessionId::parse("ses_1").expect("an id"));
        call.workspace = workspace.map(|path| path.to_str().expect("a text path").to_owned());
        call.timeout = LIMIT;
        let reply = self.caller.call(call).await?;
        assert!(reply.len() <= limits::RESULT_BYTES_MAX);
        Ok(serde_json::from_slice(&reply).expect("JSON"))
    }
}

async fn join(nats: &Nats, worker: &str) -> Mesh {
    let options = Connect {
        url: nats.url(),
        credentials: None,
    };
    let name = WorkerName::parse(worker).expect("a name");
    Mesh::connect(&options, name).await.expect("connected")
}
