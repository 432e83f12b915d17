//! What a command or an embedding program uses: connect as an operator, send, stop, decide, follow.
//!
//! Owns: requests to operator functions and the reading of logs and live deltas. Invariants: every send carries an
//! idempotency key, so that a repetition after a lost answer is never a second message; the result of a turn comes from the
//! log, deltas are only for the eye.
//!
//! Never: a write to a session's log or lanes. A client asks; the harness and the gate write.

pub mod error;
mod history;
mod living;
pub mod session;
mod sessions;
pub mod stream;
pub mod watch;

use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use teamster_core::turn::fold::{behind_deletion, counting};
use teamster_mesh::{
    Connect, Mesh,
    connection::Call,
    log::{From as Begin, Survey},
    permission,
    registry::Catalog,
};
use teamster_protocol::{
    ApprovalId, Commit, Fault, FunctionId, Phase, Principal, SessionId, TurnId,
    contract::Visibility,
    function::{approval, harness, router},
    id::WorkerName,
};

pub use error::Error;
pub use watch::{Item, Watch};

use crate::witness;

/// How long a server may take to be reached; a person waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// Tries of a request that is safe to repeat.
const TRIES: u32 = 3;
/// How long a request waits for its answer; decisions wait for their commit within it.
const REQUEST: Duration = Duration::from_secs(20);

/// An operator's connection to a mesh: a cheap handle.
#[derive(Clone)]
pub struct Client {
    mesh: Mesh,
    principal: Principal,
}

/// A call of any function by an operator.
#[derive(Debug, Clone)]
pub struct DirectCall {
    /// The function.
    pub function: FunctionId,
    /// The exact argument bytes.
    pub arguments: Bytes,
    /// The session in whose name.
    pub session: Option<SessionId>,
    /// The workspace root, absolute.
    pub workspace: Option<String>,
    /// How long to wait.
    pub timeout: Duration,
}

impl Client {
    /// Connects as the operator.
    pub async fn connect(options: &Connect) -> Result<Self, Error> {
        let name = WorkerName::parse(permission::OPERATOR).map_err(Error::Name)?;
        let mesh = Mesh::connect_within(options, name, PATIENCE)
            .await
            .map_err(Error::Mesh)?;
        let principal = Principal::parse(permission::OWNER).map_err(Error::Name)?;
        Ok(Self { mesh, principal })
    }

    /// The connection, for what this type has no method for.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// What the registry says now.
    pub async fn catalog(&self) -> Result<std::sync::Arc<Catalog>, Error> {
        let registry = self.mesh.registry().await.map_err(Error::Mesh)?;
        let catalog = registry.wait(Duration::from_secs(2), |_| true).await;
        self.heard()?;
        Ok(catalog)
    }

    /// Waits until all of `workers` are registered, at most `limit`; the names that are missing at the end.
    pub async fn wait_for_workers(
        &self,
        workers: &[&str],
        limit: Duration,
    ) -> Result<Vec<String>, Error> {
        let registry = self.mesh.registry().await.map_err(Error::Mesh)?;
        let catalog = registry
            .wait(limit, |catalog| missing(catalog, workers).is_empty())
            .await;
        let missing = missing(&catalog, workers);
        if !missing.is_empty() {
            self.heard()?;
        }
        Ok(missing)
    }

    /// Whether answers reach this client; that nothing was heard says nothing otherwise.
    fn heard(&self) -> Result<(), Error> {
        self.mesh
            .deaf()
            .map_or(Ok(()), |error| Err(Error::Mesh(error)))
    }

    /// Whether a harness answers now. The registry may still name one that was killed; this asks.
    pub async fn is_harness_there(&self) -> Result<bool, Error> {
        let id = FunctionId::parse("engine::functions::list").map_err(Error::Name)?;
        let mut call = Call::new(id, &br#"{"prefix":"engine::functions::list"}"#[..]);
        call.timeout = PATIENCE;
        match self.mesh.call(call).await {
            Ok(_) => Ok(true),
            Err(fault) if is_lost(&fault) => Ok(false),
            Err(fault) => Err(Error::Fault(fault)),
        }
    }

    /// Sends a message. Safe to repeat with the same key, and repeated by itself where the answer was lost.
    pub async fn send(
        &self,
        mut request: harness::SendRequest,
    ) -> Result<harness::SendReply, Error> {
        if request.idempotency_key.is_none() {
            request.idempotency_key = Some(fresh_key());
            if request.session_id.is_none() {
                request.session_id = Some(SessionId::fresh(uuid::Uuid::now_v7()));
            }
        }
        self.operate_again("harness::send", &request).await
    }

    /// Stops a turn: the one that runs, or the named one.
    pub async fn stop(
        &self,
        session: &SessionId,
        turn: Option<&TurnId>,
    ) -> Result<harness::StopReply, Error> {
        let request = harness::StopRequest {
            session_id: session.clone(),
            turn_id: turn.cloned(),
        };
        self.operate_again("harness::stop", &request).await
    }

    /// Lets a session go on whose log is damaged, from what the log still holds. What is missing is given up for good.
    pub async fn accept_loss(
        &self,
        session: &SessionId,
        confirm: bool,
    ) -> Result<harness::AcceptLossReply, Error> {
        let request = harness::AcceptLossRequest {
            session_id: session.clone(),
            confirm,
        };
        self.operate("harness::accept_loss", &request).await
    }

    /// What a session does.
    pub async fn status(&self, session: &SessionId) -> Result<harness::StatusReply, Error> {
        let request = harness::StatusRequest {
            session_id: session.clone(),
        };
        self.operate_again("harness::status", &request).await
    }

    /// What waits for a person, oldest first, and of which sessions not everything can be read.
    pub async fn pending(&self, session: Option<&SessionId>) -> Result<approval::ListReply, Error> {
        let request = approval::ListRequest {
            session_id: session.cloned(),
        };
        self.operate_again("approval::list", &request).await
    }

    /// One request for a decision and what became of it.
    pub async fn approval(&self, approval: &ApprovalId) -> Result<approval::GetReply, Error> {
        let request = approval::GetRequest {
            approval_id: approval.clone(),
        };
        self.operate_again("approval::get", &request).await
    }

    /// Decides. The answer says whether this decision is the one that counts.
    pub async fn resolve(
        &self,
        request: &approval::ResolveRequest,
    ) -> Result<approval::ResolveReply, Error> {
        self.operate_again("approval::resolve", request).await
    }

    /// Calls any function with exact argument bytes: an operator-only function as the operator, any other on its own
    /// subject. It is made once; a lost answer is an error, never a second call.
    pub async fn call(&self, call: DirectCall) -> Result<Bytes, Error> {
        let catalog = self.catalog().await?;
        let Some((contract, _)) = catalog.functions.get(&call.function) else {
            return Err(Error::Fault(
                Fault::gone(
                    "function.unknown",
                    format_args!("no worker serves {}", call.function),
                )
                .hint("`teamster functions ls` shows what is served"),
            ));
        };
        let mut request = Call::new(call.function, call.arguments);
        if contract.visibility == Visibility::Operator {
            request.principal = Some(self.principal.clone());
        }
        request.session = call.session;
        request.workspace = call.workspace;
        request.timeout = call.timeout;
        self.mesh.call(request).await.map_err(Error::Fault)
    }

    /// What the router knows of a model; `None` where no router answers. A model that no provider has is the fault
    /// [`router::UNKNOWN_MODEL`].
    pub async fn model(&self, model: &str) -> Result<Option<router::Model>, Error> {
        let id = FunctionId::parse("router::models::get").map_err(Error::Name)?;
        let request = router::ModelsGetRequest {
            model: model.to_owned(),
        };
        let body = serde_json::to_vec(&request).map_err(|source| Error::Request {
            function: id.to_string(),
            source,
        })?;
        let mut call = Call::new(id, body);
        call.timeout = PATIENCE;
        match self.mesh.call(call).await {
            Ok(reply) => Ok(serde_json::from_slice(&reply).ok()),
            Err(fault) if fault.code == router::UNKNOWN_MODEL => Err(Error::Fault(fault)),
            Err(_) => Ok(None),
        }
    }

    /// Calls an operator's function between typed bodies, once.
    pub async fn operate<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        request: &Request,
    ) -> Result<Reply, Error> {
        let id = FunctionId::parse(function).map_err(Error::Name)?;
        let body = serde_json::to_vec(request).map_err(|source| Error::Request {
            function: function.to_owned(),
            source,
        })?;
        let mut call = Call::new(id, body);
        call.principal = Some(self.principal.clone());
        call.timeout = REQUEST;
        let reply = self.mesh.call(call).await?;
        serde_json::from_slice(&reply).map_err(|source| Error::Reply {
            function: function.to_owned(),
            source,
        })
    }

    /// Like [`Client::operate`], for requests whose repetition changes nothing: made again where the answer was lost.
    async fn operate_again<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        function: &str,
        request: &Request,
    ) -> Result<Reply, Error> {
        let mut tried = 1;
        loop {
            match self.operate(function, request).await {
                Err(Error::Fault(fault)) if tried < TRIES && is_lost(&fault) => {
                    tried += 1;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                result => return result,
            }
        }
    }

    /// Follows a session's log after stream sequence `after`, together with its live deltas.
    pub fn watch(&self, session: &SessionId, after: u64) -> Watch {
        Watch::open(self.mesh.clone(), session.clone(), after)
    }

    /// Whether any session is active or has something in its queues. A parked session needs nobody.
    pub async fn is_busy(&self) -> Result<bool, Error> {
        if !self
            .mesh
            .lanes()
            .sessions()
            .await
            .map_err(Error::Mesh)?
            .is_empty()
        {
            return Ok(true);
        }
        let mut follow = self
            .mesh
            .log()
            .follow(Begin::LastOfEach, false)
            .await
            .map_err(Error::Mesh)?;
        while let Some(stored) = follow.next().await {
            let (session, stored) = stored.map_err(Error::Mesh)?;
            // A session whose log cannot be read runs nowhere.
            if decode(&session, &stored).is_ok_and(|commit| commit.head.phase == Phase::Active) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many accepted messages of a session no turn has taken up yet.
    pub async fn queued(&self, session: &SessionId) -> Result<u64, Error> {
        let lanes = self.mesh.lanes();
        // The queue is read first: what has left it by then stands in the log that is read after it.
        let waiting = lanes.waiting(session).await.map_err(Error::Mesh)?;
        if waiting == 0 {
            return Ok(0);
        }
        let tail = self.mesh.log().tail(session).await.map_err(Error::Mesh)?;
        let commit = tail.and_then(|tail| Commit::decode(&tail.body).ok());
        let cursor = commit.map_or(0, |commit| commit.head.cursor.input);
        let left = lanes.unconsumed(session, cursor).await;
        left.map_err(Error::Mesh)
    }

    /// What can be read of a session's log, as it is stored, and what is wrong with it: by itself, and by what is known of it from
    /// elsewhere. An error where nothing is known of such a session.
    pub(crate) async fn survey(&self, session: &SessionId) -> Result<Surveyed, Error> {
        let seen = witness::all(&self.mesh, session).await;
        let seen = seen.map_err(Error::Mesh)?;
        let survey = self.mesh.log().survey(session).await;
        let survey = survey.map_err(Error::Mesh)?;
        let is_empty = survey.stored == 0 && survey.commits.is_empty();
        if is_empty && seen.is_empty() {
            return Err(Error::NoSession(session.to_string()));
        }
        let damage = history::damage(session, &survey, &pieces(&survey), &seen);
        Ok(Surveyed { survey, damage })
    }

    /// What can be read of a session's log, oldest first, each commit with its stream sequence, and what is wrong with it. A log that
    /// is sound leaves out what was given up; of one that is damaged, everything that can be read is there.
    pub async fn history(&self, session: &SessionId) -> Result<History, Error> {
        let Surveyed { survey, damage } = self.survey(session).await?;
        let bytes = pieces(&survey);
        let Some(damage) = damage else {
            let commits = counting(session, &bytes).map_err(|(seq, source)| Error::Commit {
                session: session.to_string(),
                seq,
                source,
            })?;
            return Ok(History {
                commits,
                damage: None,
            });
        };
        let mut commits = Vec::new();
        // What a deleted session of the same name has left is not the session's.
        let first = behind_deletion(&bytes).first().map_or(0, |(seq, _)| *seq);
        for stored in survey.commits.iter().filter(|one| one.seq >= first) {
            match decode(session, stored) {
                Ok(commit) => commits.push((stored.seq, commit)),
                // Nothing is lost where a newer build wrote.
                Err(error) if error.is_newer() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(History {
            commits,
            damage: Some(damage),
        })
    }

    /// A session's whole log, oldest first, each commit with its stream sequence. Commits whose loss was accepted are left out.
    pub async fn commits(&self, session: &SessionId) -> Result<Vec<(u64, Commit)>, Error> {
        let log = self.mesh.log();
        let Some(tail) = log.tail(session).await.map_err(Error::Mesh)? else {
            return Err(Error::NoSession(session.to_string()));
        };
        let stored = log.read(session, 0, tail.seq).await.map_err(Error::Mesh)?;
        let bytes: Vec<(u64, &[u8])> = stored.iter().map(|one| (one.seq, &*one.body)).collect();
        counting(session, &bytes).map_err(|(seq, source)| Error::Commit {
            session: session.to_string(),
            seq,
            source,
        })
    }
}

/// What can be read of a session's log.
#[derive(Debug, Clone)]
pub struct History {
    /// The commits, each with its stream sequence, oldest first.
    pub commits: Vec<(u64, Commit)>,
    /// What is wrong, and where; `None` for a log that is sound.
    pub damage: Option<String>,
}

/// A log as it is stored.
pub(crate) struct Surveyed {
    /// What can be read of it, and how much cannot.
    pub(crate) survey: Survey,
    /// What is wrong with it, and where; `None` for a log that is sound.
    pub(crate) damage: Option<String>,
}

/// The commits that a survey read, with their sequences.
fn pieces(survey: &Survey) -> Vec<(u64, &[u8])> {
    let commits = survey.commits.iter();
    commits.map(|one| (one.seq, &*one.body)).collect()
}

/// Reads a stored commit.
pub(crate) fn decode(
    session: &SessionId,
    stored: &teamster_mesh::log::Stored,
) -> Result<Commit, Error> {
    Commit::decode(&stored.body).map_err(|source| Error::Commit {
        session: session.to_string(),
        seq: stored.seq,
        source,
    })
}

/// A key that no other send has.
pub fn fresh_key() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Whether the answer, not the request, was lost, or nobody was there yet.
fn is_lost(fault: &Fault) -> bool {
    matches!(
        fault.code.as_str(),
        "mesh.timeout" | "mesh.no_responders" | "mesh.callee_lost"
    )
}

fn missing(catalog: &Catalog, workers: &[&str]) -> Vec<String> {
    workers
        .iter()
        .filter(|name| {
            !catalog
                .workers
                .iter()
                .any(|worker| worker.name.as_str() == **name)
        })
        .map(|name| (*name).to_owned())
        .collect()
}
