//! Functions outside of the product whose effects are counted where no crash reaches: in the test's own process, on disk.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};
use teamster_mesh::{
    Ctx, Function, Mesh, Worker,
    serve::{Serving, serve},
};
use teamster_protocol::{
    Class, Commit, Contract, Data, Digest, Event, Fault, FunctionId, SessionId, Trust, Visibility,
    hook::{self, Binding, CallResult, Mutations, Point, Stage, Verdict},
    id::WorkerName,
    limits,
};
use teamster_testkit::{Counter, wait};
use tokio::sync::watch;

/// How long `t::long` works: beyond the lease of whoever asked for it.
const LONG: Duration = limits::ACK_WAIT.saturating_add(Duration::from_secs(3));

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub session: String,
    pub call: String,
    pub function: String,
    /// Digest of the argument bytes as they came.
    pub digest: String,
    /// Whether the log held the intent when the effect came; none where the log could not be read then.
    pub had_intent: Option<bool>,
}

impl Effect {
    fn line(&self) -> String {
        let intent = self
            .had_intent
            .map_or("unread".to_owned(), |had| had.to_string());
        [
            &self.session,
            &self.call,
            &self.function,
            &self.digest,
            &intent,
        ]
        .map(String::as_str)
        .join("\t")
    }

    fn parse(line: &str) -> Self {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut next = || fields.next().expect("a line of five fields");
        Self {
            session: next(),
            call: next(),
            function: next(),
            digest: next(),
            had_intent: next().parse().ok(),
        }
    }
}

/// The door at which calls of `t::slow` wait.
#[derive(Clone)]
pub struct Door(Arc<watch::Sender<DoorState>>);

#[derive(Clone, Copy)]
struct DoorState {
    waiting: usize,
    is_open: bool,
}

impl Door {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(DoorState {
            waiting: 0,
            is_open: true,
        })))
    }

    pub fn shut(&self) {
        self.0.send_modify(|state| {
            *state = DoorState {
                waiting: 0,
                is_open: false,
            }
        });
    }

    pub fn open(&self) {
        self.0.send_modify(|state| state.is_open = true);
    }

    /// Waits until `calls` calls have come since it was shut.
    pub async fn reached(&self, calls: usize, limit: Duration) {
        let mut state = self.0.subscribe();
        let reached = state.wait_for(|state| state.waiting >= calls);
        drop(
            wait::within(limit, "a call comes to the door", reached)
                .await
                .expect("the sender is ours"),
        );
    }

    async fn pass(&self) {
        self.0.send_modify(|state| state.waiting += 1);
        let _ = self.0.subscribe().wait_for(|state| state.is_open).await;
    }
}

pub struct Outside {
    pub door: Door,
    counter: Counter,
    _serving: Serving,
}

impl Outside {
    /// Serves the functions of `t` on a connection of that name.
    pub async fn serve(mesh: Mesh, folder: &Path) -> Self {
        Self::serve_reading(mesh, None, folder).await
    }

    /// The same, where the log is read through another connection: this one may not.
    pub async fn serve_reading(mesh: Mesh, reader: Option<Mesh>, folder: &Path) -> Self {
        let reader = reader.unwrap_or_else(|| mesh.clone());
        let counter = Counter::at(&folder.join("effects"));
        let door = Door::new();
        // One at a time, so that the file is in the order of the effects.
        let order = Arc::new(Mutex::new(()));
        let mut worker = Worker::new(
            WorkerName::parse("t").expect("valid"),
            "Functions whose effects are counted.",
        );
        for (name, class) in [
            ("t::read", Class::Read),
            ("t::peek", Class::Read),
            ("t::write", Class::Write),
            ("t::slow", Class::Write),
            ("t::long", Class::Write),
            ("t::destroy", Class::Destructive),
        ] {
            let (counter, door, order) = (counter.clone(), door.clone(), Arc::clone(&order));
            let reader = reader.clone();
            let handler = move |ctx: Ctx, body: Bytes| {
                let (counter, door, order) = (counter.clone(), door.clone(), Arc::clone(&order));
                let reader = reader.clone();
                async move {
                    let effect = effect(&reader, &ctx, &body).await;
                    {
                        let _order = order.lock().expect("lock");
                        counter.record(&effect.line());
                    }
                    match name {
                        "t::slow" | "t::peek" => tokio::select! {
                            () = door.pass() => {}
                            () = ctx.cancel.cancelled() => return Err(Fault::gone("t.cancelled", "it was cancelled")),
                        },
                        "t::long" => wait::work(LONG).await,
                        _ => {}
                    }
                    Ok(Bytes::from(json!({"done": effect.call}).to_string()))
                }
            };
            worker = worker.function(Function::raw(
                contract(name, class),
                Arc::new(move |ctx, body| Box::pin(handler(ctx, body))),
            ));
        }
        let serving = serve(mesh, worker)
            .await
            .expect("the outside functions are served");
        Self {
            door,
            counter,
            _serving: serving,
        }
    }

    /// All effects so far, in their order.
    pub fn effects(&self) -> Vec<Effect> {
        self.counter
            .effects()
            .iter()
            .map(|line| Effect::parse(line))
            .collect()
    }

    pub fn effects_of(&self, session: &SessionId) -> Vec<Effect> {
        let effects = self.effects().into_iter();
        effects
            .filter(|effect| effect.session == session.as_str())
            .collect()
    }
}

/// Serves a hook that puts `withheld` in the place of every result.
pub async fn withhold(mesh: Mesh) -> Serving {
    let id = FunctionId::parse("guard::withhold").expect("valid");
    let mut contract = Contract::new::<hook::Request, Verdict>(id.clone(), "Withholds results.");
    contract.visibility = Visibility::Worker;
    let function = Function::new(contract, |_, _: hook::Request| async {
        let mutations = Mutations {
            result: Some(CallResult {
                text: "withheld".to_owned(),
                is_error: false,
            }),
            ..Mutations::default()
        };
        Ok(Verdict::Continue {
            mutations,
            annotation: None,
            judgement: None,
        })
    });
    let binding = Binding {
        point: Point::PostTrigger,
        function: id,
        priority: 0,
        stage: Stage::default(),
        functions: Vec::new(),
        timeout_ms: None,
        on_error: None,
    };
    let worker = Worker::new(
        WorkerName::parse("guard").expect("valid"),
        "Withholds results.",
    );
    serve(mesh, worker.function(function).hook(binding))
        .await
        .expect("the hook is served")
}

fn contract(name: &str, class: Class) -> Contract {
    let id = FunctionId::parse(name).expect("valid");
    let mut contract = Contract::new::<Value, Value>(id, "Counts its effects.");
    contract.class = class;
    contract.data = Data::Public;
    contract.trust = Trust::Trusted;
    contract.visibility = Visibility::Agent;
    contract.timeout_ms = Some(60_000);
    contract
}

async fn effect(reader: &Mesh, ctx: &Ctx, body: &[u8]) -> Effect {
    let session = ctx
        .session
        .clone()
        .expect("calls of a turn name their session");
    let call = ctx.call.clone().expect("calls of a turn have an id");
    Effect {
        had_intent: has_intent(reader, &session, &call).await,
        session: session.to_string(),
        call,
        function: ctx.function.to_string(),
        digest: Digest::of(body).to_string(),
    }
}

/// Whether the log holds that the call begins.
async fn has_intent(mesh: &Mesh, session: &SessionId, call: &str) -> Option<bool> {
    let tail = mesh.log().tail(session).await.ok()?;
    let upto = tail.map_or(0, |stored| stored.seq);
    let commits = mesh.log().read(session, 0, upto).await.ok()?;
    let mut events = commits
        .iter()
        .flat_map(|stored| Commit::decode(&stored.body).expect("a commit").events);
    Some(
        events.any(
            |event| matches!(event, Event::CallStarted { call: begun } if begun.as_str() == call),
        ),
    )
}
