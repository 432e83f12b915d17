//! The person who sends, decides and reads, however often it takes.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use teamster::client::Client;
use teamster_protocol::{
    Commit, Event, MessageId, Phase, Principal, SessionId,
    event::EndReason,
    function::{
        approval::{Pending, ResolveRequest},
        harness::{SendReply, SendRequest},
    },
    input::{Admin, AdminAction, ControlKind, Decision, SessionOptions, TurnOptions},
    policy::FunctionPolicy,
};
use teamster_telemetry::task;
use teamster_testkit::wait;
use tokio::task::JoinHandle;

/// How long anything may take on a busy machine; what takes a lease of last resort is within it.
pub const LIMIT: Duration = Duration::from_secs(90);
/// How long one request is given before it is made again.
const TRY: Duration = Duration::from_secs(8);

/// A cheap handle.
#[derive(Clone)]
pub struct Operator {
    pub client: Client,
    pub workspace: PathBuf,
    /// What was read last of each session, for whoever reads a failure.
    seen: Arc<Mutex<BTreeMap<SessionId, Vec<Commit>>>>,
}

pub fn session(text: &str) -> SessionId {
    SessionId::parse(text).expect("valid")
}

impl Operator {
    pub fn new(client: Client, workspace: PathBuf) -> Self {
        Self {
            client,
            workspace,
            seen: Arc::default(),
        }
    }

    /// Prints what was read last of the sessions that are not at rest.
    pub fn dump(&self) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let open = seen.iter().filter(|(_, commits)| {
            commits
                .last()
                .is_none_or(|last| last.head.phase != Phase::Idle)
        });
        for (session, commits) in open {
            eprintln!("{session}");
            for commit in commits {
                eprintln!("  {}", serde_json::to_string(commit).unwrap_or_default());
            }
        }
    }

    /// Sends a message, with a key, until it is accepted.
    pub async fn send(&self, session: &SessionId, text: &str) -> SendReply {
        let request = SendRequest {
            session_id: Some(session.clone()),
            message: text.to_owned(),
            idempotency_key: Some(text.to_owned()),
            session: SessionOptions {
                workspace: Some(self.workspace.display().to_string()),
                ..SessionOptions::default()
            },
            options: TurnOptions {
                functions: Some(FunctionPolicy {
                    allow: ["t::*", "fs::*", "sandbox::exec"]
                        .map(str::to_owned)
                        .to_vec(),
                    ..FunctionPolicy::default()
                }),
                ..TurnOptions::default()
            },
        };
        wait::some(LIMIT, "a message is accepted", || async {
            tokio::time::timeout(TRY, self.client.send(request.clone()))
                .await
                .ok()?
                .ok()
        })
        .await
    }

    /// Sends a message in a task of its own: where a commit is stopped on its way to the server, the harness's answer may
    /// stand behind it.
    pub fn begin(&self, session: &SessionId, text: &'static str) -> JoinHandle<SendReply> {
        let (owner, session) = (self.clone(), session.clone());
        task::spawn("send", async move { owner.send(&session, text).await })
    }

    /// Stores an administrator's input, with a key, until it is accepted.
    pub async fn administer(
        &self,
        session: &SessionId,
        key: &str,
        action: AdminAction,
    ) -> MessageId {
        let id = MessageId::of_input(session, "admin", key);
        let admin = Admin {
            id: id.clone(),
            by: Principal::parse("owner").expect("valid"),
            action,
        };
        let body = serde_json::to_vec(&admin).expect("encodes");
        let lanes = self.client.mesh().lanes();
        wait::some(LIMIT, "an administrator's input is accepted", || async {
            let stored = lanes.control(session, ControlKind::Admin, &id, body.clone().into());
            tokio::time::timeout(TRY, stored).await.ok()?.ok()
        })
        .await;
        id
    }

    /// Waits until these inputs are consumed and nothing is left to do, and approves whatever is asked for.
    pub async fn settle_inputs(&self, session: &SessionId, inputs: &[MessageId]) {
        let description = format!("{session} comes to rest");
        wait::until(LIMIT, &description, || async {
            let Some(commits) = self.commits(session).await else {
                return false;
            };
            let consumed = commits.iter().flat_map(|commit| &commit.consumed);
            let known: Vec<_> = consumed.map(|input| &input.id).collect();
            let rests = commits
                .last()
                .is_some_and(|last| matches!(last.head.phase, Phase::Idle | Phase::Deleted));
            if rests && inputs.iter().all(|id| known.contains(&id)) {
                return true;
            }
            self.approve_what_waits(session, &commits).await;
            false
        })
        .await;
    }

    /// The session's commits as far as they can be read now.
    pub async fn commits(&self, session: &SessionId) -> Option<Vec<Commit>> {
        let log = self.client.mesh().log();
        let upto = log.tail(session).await.ok()?.map_or(0, |stored| stored.seq);
        let stored = log.read(session, 0, upto).await.ok()?;
        let commits: Vec<Commit> = stored
            .iter()
            .map(|stored| Commit::decode(&stored.body).expect("a commit"))
            .collect();
        self.seen
            .lock()
            .expect("lock")
            .insert(session.clone(), commits.clone());
        Some(commits)
    }

    /// How many commits the session has.
    pub async fn count(&self, session: &SessionId) -> usize {
        wait::some(LIMIT, "the log is read", || self.commits(session))
            .await
            .len()
    }

    /// Waits until the session's events satisfy `wanted`.
    pub async fn until(
        &self,
        session: &SessionId,
        description: &str,
        wanted: impl Fn(&[Event]) -> bool,
    ) {
        let description = format!("{session}: {description}");
        wait::until(LIMIT, &description, || async {
            let events: Vec<Event> = self
                .commits(session)
                .await
                .unwrap_or_default()
                .into_iter()
                .flat_map(|c| c.events)
                .collect();
            wanted(&events)
        })
        .await;
    }

    /// Waits for a request for a decision of the session.
    pub async fn pending(&self, session: &SessionId) -> Pending {
        wait::some(LIMIT, "a request for a decision", || {
            self.look_for_pending(session)
        })
        .await
    }

    async fn look_for_pending(&self, session: &SessionId) -> Option<Pending> {
        let pending = tokio::time::timeout(TRY, self.client.pending(Some(session)))
            .await
            .ok()?
            .ok()?;
        pending.pending.into_iter().next()
    }

    /// Approves until it is known that a decision counts.
    pub async fn approve(&self, pending: &Pending) {
        let request = ResolveRequest {
            approval_id: pending.approval_id.clone(),
            digest: pending.digest,
            decision: Decision::Approve,
            channel: "crash".to_owned(),
        };
        wait::some(LIMIT, "a decision is taken", || async {
            tokio::time::timeout(TRY, self.client.resolve(&request))
                .await
                .ok()?
                .ok()
        })
        .await;
    }

    /// Waits until all of `accepted` are consumed and nothing is left to do, and approves whatever is asked for.
    pub async fn settle(&self, session: &SessionId, accepted: &[SendReply]) {
        let ids = accepted.iter().map(|reply| reply.message_id.clone());
        self.settle_inputs(session, &ids.collect::<Vec<_>>()).await;
    }

    async fn approve_what_waits(&self, session: &SessionId, commits: &[Commit]) {
        if is_asking(commits)
            && let Some(pending) = self.look_for_pending(session).await
        {
            self.approve(&pending).await;
        }
    }

    /// Waits until so many turns have ended, and approves whatever they ask for.
    pub async fn finish(&self, session: &SessionId, turns: usize) -> Vec<EndReason> {
        let description = format!("{session}: {turns} turns end");
        wait::some(LIMIT, &description, || async {
            let commits = self.commits(session).await?;
            let reasons = reasons(&commits);
            if reasons.len() >= turns {
                return Some(reasons);
            }
            self.approve_what_waits(session, &commits).await;
            None
        })
        .await
    }
}

/// Why the turns ended.
pub fn reasons(commits: &[Commit]) -> Vec<EndReason> {
    let events = commits.iter().flat_map(|commit| &commit.events);
    events
        .filter_map(|event| match event {
            Event::TurnEnded { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .collect()
}

/// Whether a person is asked for something.
fn is_asking(commits: &[Commit]) -> bool {
    commits
        .iter()
        .flat_map(|commit| &commit.events)
        .fold(0_i64, |open, event| match event {
            Event::ApprovalRequested { .. } => open + 1,
            Event::ApprovalResolved { .. } | Event::ApprovalExpired { .. } => open - 1,
            _ => open,
        })
        > 0
}
