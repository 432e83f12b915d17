//! Providers: who answers, and what one attempt at an answer is.
//!
//! Owns: the common form of an attempt. Each provider turns its own wire into chunks and pushes them; what they mean,
//! whether to try again and what it costs is decided outside.
//!
//! Never: retries, money.

use std::{collections::BTreeMap, future::Future};

use teamster_protocol::function::router::{ChatRequest, CompletionError, DeltaKind};

use crate::{accumulate::Accumulator, config::ModelConfig, project::Body};

mod frames;
pub mod openai;
pub mod scripted;

/// Where deltas go while a generation runs.
pub trait Sink: Send {
    /// Takes the next delta. Called in order; must not wait for readers.
    fn send(&mut self, delta: DeltaKind) -> impl Future<Output = ()> + Send;
}

/// A sink that keeps everything, for callers without a mesh.
impl Sink for Vec<DeltaKind> {
    async fn send(&mut self, delta: DeltaKind) {
        self.push(delta);
    }
}

/// One configured provider.
#[derive(Debug)]
pub(crate) struct Provider {
    /// Its name, the first part of its models' ids.
    pub(crate) name: String,
    /// What is known about its models, by name.
    pub(crate) models: BTreeMap<String, ModelConfig>,
    /// How failing requests are repeated.
    pub(crate) retry: crate::config::Retry,
    /// Who answers.
    pub(crate) backend: Backend,
}

#[derive(Debug)]
pub(crate) enum Backend {
    /// A server that speaks chat completions.
    OpenAi(Box<openai::OpenAi>),
    /// Scripts.
    Scripted(scripted::Scripted),
    /// It cannot be used, for this reason.
    Broken(String),
}

/// How far an attempt has come. It is kept outside of the attempt, so that it survives when the attempt is dropped.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// What was said.
    pub(crate) accumulator: Accumulator,
    /// Whether the request went out.
    pub(crate) is_sent: bool,
    /// Whether the provider refused it before it began to answer, so that nothing was processed.
    pub(crate) is_refused: bool,
}

/// How an attempt came to its end.
#[derive(Debug)]
pub(crate) enum End {
    /// The stream ended; the accumulator knows how.
    Stream,
    /// It failed.
    Failed(Failure),
}

/// A failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What went wrong.
    pub(crate) error: CompletionError,
    /// How long the provider asks to wait, in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
    /// Whether it makes no sense to try again now, whatever the kind.
    pub(crate) is_final: bool,
    /// The offered tool that the provider does not take, by wire name.
    pub(crate) refused_tool: Option<String>,
}

impl From<CompletionError> for Failure {
    fn from(error: CompletionError) -> Self {
        Self {
            error,
            retry_after_ms: None,
            is_final: false,
            refused_tool: None,
        }
    }
}

impl Provider {
    /// Makes the request's body; `None` for a provider that needs none.
    pub(crate) fn body(
        &self,
        request: &ChatRequest,
        model: &str,
        config: &ModelConfig,
    ) -> Result<Body, serde_json::Error> {
        match &self.backend {
            Backend::OpenAi(server) => server.body(request, model, config),
            Backend::Scripted(_) | Backend::Broken(_) => Ok(Body {
                json: serde_json::to_vec(&request.messages)?,
                tools: Vec::new(),
                left_out: Vec::new(),
            }),
        }
    }

    /// Makes one attempt. Dropping the future ends it; what was said until then is in `progress`.
    pub(crate) async fn attempt<S: Sink>(
        &self,
        request: &ChatRequest,
        model: &str,
        body: &Body,
        progress: &mut Progress,
        sink: &mut S,
    ) -> End {
        match &self.backend {
            Backend::OpenAi(server) => server.attempt(model, body, progress, sink).await,
            Backend::Scripted(scripts) => scripts.attempt(request, model, progress, sink).await,
            Backend::Broken(reason) => End::Failed(Failure::from(CompletionError {
                kind: teamster_protocol::function::router::ErrorKind::NotConfigured,
                message: reason.clone(),
                hint: Some(format!(
                    "mend the provider {} in the configuration",
                    self.name
                )),
            })),
        }
    }
}

/// Sends what a piece of the stream made visible, neighbours of one kind as one frame.
pub(crate) async fn send_merged<S: Sink>(deltas: Vec<DeltaKind>, sink: &mut S) {
    let mut pending: Option<DeltaKind> = None;
    for delta in deltas {
        match (&mut pending, delta) {
            (Some(DeltaKind::Text { text }), DeltaKind::Text { text: more })
            | (Some(DeltaKind::Thinking { text }), DeltaKind::Thinking { text: more }) => {
                text.push_str(&more);
            }
            (_, delta) => {
                if let Some(ready) = pending.replace(delta) {
                    sink.send(ready).await;
                }
            }
        }
    }
    if let Some(ready) = pending {
        sink.send(ready).await;
    }
}
