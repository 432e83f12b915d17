//! Questions to the session worker and changes that it stores. A worker that is not there is an error that names it.

use std::time::Duration;

use teamster_protocol::{Commit, Event, Message, SessionId, function::session};

use super::{Client, Error};

/// How long the registry may take to say which workers there are.
const NOW: Duration = Duration::from_millis(200);

impl Client {
    /// Sessions, the last used first.
    pub async fn sessions(
        &self,
        request: &session::ListRequest,
    ) -> Result<session::ListReply, Error> {
        self.ask_sessions("session::list", request).await
    }

    /// One session in short.
    pub async fn session(&self, session: &SessionId) -> Result<session::SessionInfo, Error> {
        let request = session::GetRequest {
            session_id: session.clone(),
        };
        self.ask_sessions("session::get", &request).await
    }

    /// A part of a transcript.
    pub async fn messages(
        &self,
        request: &session::MessagesRequest,
    ) -> Result<session::MessagesReply, Error> {
        self.ask_sessions("session::messages", request).await
    }

    /// A part of a session's events.
    pub async fn events(
        &self,
        request: &session::EventsRequest,
    ) -> Result<session::EventsReply, Error> {
        self.ask_sessions("session::events", request).await
    }

    /// Messages of all transcripts that match.
    pub async fn search(
        &self,
        request: &session::SearchRequest,
    ) -> Result<session::SearchReply, Error> {
        self.ask_sessions("session::search", request).await
    }

    /// Tokens and money, added up.
    pub async fn cost(&self, request: &session::CostRequest) -> Result<session::CostReply, Error> {
        self.ask_sessions("session::cost", request).await
    }

    /// Requests for a decision with what became of them, newest first, those of deleted sessions included.
    pub async fn approvals(
        &self,
        request: &session::ApprovalsRequest,
    ) -> Result<session::ApprovalsReply, Error> {
        self.ask_sessions("session::approvals", request).await
    }

    /// Begins a new session with the transcript of another. Safe to repeat: a repetition is refused, since the new session
    /// exists then.
    pub async fn fork(
        &self,
        request: &session::ForkRequest,
    ) -> Result<session::ChangeReply, Error> {
        self.absent(self.operate("session::fork", request).await)
            .await
    }

    /// Deletes a session for good.
    pub async fn delete(
        &self,
        request: &session::DeleteRequest,
    ) -> Result<session::ChangeReply, Error> {
        self.absent(self.operate("session::delete", request).await)
            .await
    }

    /// Changes a session's title or metadata.
    pub async fn set_meta(
        &self,
        request: &session::SetMetaRequest,
    ) -> Result<session::ChangeReply, Error> {
        self.ask_sessions("session::set-meta", request).await
    }

    /// How far the projection is.
    pub async fn projection(&self) -> Result<session::StatusReply, Error> {
        self.ask_sessions("session::status", &serde_json::json!({}))
            .await
    }

    /// The messages that a fork took over from its source; none for a session that is no fork. What cannot be read is left
    /// out: it is for the eye only.
    pub async fn inherited(&self, commits: &[(u64, Commit)]) -> Vec<Message> {
        // It need not be the first commit: the tombstone of a session that had the name before may be.
        let fork = commits
            .iter()
            .flat_map(|(_, commit)| &commit.events)
            .find_map(|event| match event {
                Event::SessionForked { fork, .. } => Some(fork),
                _ => None,
            });
        let Some(fork) = fork else {
            return Vec::new();
        };
        match self.mesh().blobs().get(&fork.transcript).await {
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    async fn ask_sessions<Request, Reply>(
        &self,
        function: &str,
        request: &Request,
    ) -> Result<Reply, Error>
    where
        Request: serde::Serialize,
        Reply: serde::de::DeserializeOwned,
    {
        self.absent(self.operate_again(function, request).await)
            .await
    }

    /// Nobody to answer means that no session worker runs, or one that does not serve the function.
    async fn absent<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        match result {
            Err(Error::Fault(fault)) if fault.code == "mesh.no_responders" => {
                let missing = self.wait_for_workers(&["session"], NOW).await?;
                Err(if missing.is_empty() {
                    Error::Fault(fault)
                } else {
                    Error::NoWorker("session")
                })
            }
            result => result,
        }
    }
}
