//! Chat completions over HTTP: one request, one stream of chunks.
//!
//! Owns: the connection's bounds (connect, silence), the key at the moment of use, and the tools that this server refused.
//! Invariant: neither key nor referenced headers are in any error, log or answer.
//!
//! Never: following a redirect (it would carry the key elsewhere), retries, the meaning of what was said.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as _,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use futures::FutureExt as _;
use reqwest::{
    Client, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER},
};
use secrecy::{ExposeSecret as _, SecretString};
use teamster_protocol::{
    Digest,
    function::router::{ChatRequest, CompletionError, ErrorKind, Tool},
};
use teamster_telemetry::{chain, task};
use tokio::time::{Instant, timeout, timeout_at};

mod reader;

use self::reader::{Piece, Reader};
use super::{End, Failure, Progress, Sink, frames::Frames};
use crate::{
    classify,
    config::{self, ModelConfig, OutputLimit},
    error::Error,
    project::{self, Body},
    retry,
    secret::{self, Reference},
};

/// Bytes of an error's body that are read.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// How long usage may still come after the model has stopped.
const LINGER: Duration = Duration::from_secs(5);
/// How long the end of a body that is not needed any more is waited for, so that the connection can be used again.
const DRAIN: Duration = Duration::from_secs(1);
/// Refused tools that are remembered.
const REFUSED_MAX: usize = 256;
/// Connections that are kept for the next request.
const IDLE_CONNECTIONS_MAX: usize = 128;

/// One server.
#[derive(Debug)]
pub(crate) struct OpenAi {
    provider: String,
    url: Url,
    key: Reference,
    headers: BTreeMap<String, String>,
    output_limit: OutputLimit,
    connect_timeout: Duration,
    idle_timeout: Duration,
    client: OnceLock<Client>,
    refused: Mutex<BTreeSet<Digest>>,
}

impl OpenAi {
    /// The server that `provider` describes; the settings were checked.
    pub(crate) fn new(
        name: &str,
        provider: &config::Provider,
        config: &config::Config,
    ) -> Result<Self, Error> {
        let base_url = provider.base_url.as_deref().unwrap_or_default();
        let url = format!("{}/chat/completions", base_url.trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| Error::Provider {
            provider: name.to_owned(),
            problem: format!("its `base_url` is no address: {error}"),
        })?;
        Ok(Self {
            provider: name.to_owned(),
            url,
            key: provider.key.clone().unwrap_or(Reference::None),
            headers: provider.headers.clone(),
            output_limit: provider.output_limit.unwrap_or_default(),
            connect_timeout: Duration::from_millis(config.connect_timeout_ms),
            idle_timeout: Duration::from_millis(config.idle_timeout_ms.max(1)),
            client: OnceLock::new(),
            refused: Mutex::default(),
        })
    }

    /// The body of a request.
    pub(crate) fn body(
        &self,
        request: &ChatRequest,
        model: &str,
        config: &ModelConfig,
    ) -> Result<Body, serde_json::Error> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_out = |tool: &Tool| !refused.is_empty() && refused.contains(&digest(model, tool));
        project::body(
            request,
            model,
            self.output_limit,
            config.max_output_tokens,
            is_out,
        )
    }

    /// Remembers that the server does not take a tool, so that no further request fails because of it.
    pub(crate) fn refuse(&self, model: &str, tool: &Tool) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= REFUSED_MAX {
            refused.pop_first();
        }
        refused.insert(digest(model, tool));
    }

    /// Makes one attempt.
    pub(crate) async fn attempt<S: Sink>(
        &self,
        model: &str,
        body: &Body,
        progress: &mut Progress,
        sink: &mut S,
    ) -> End {
        let secrets = match Secrets::resolve(&self.key, &self.headers).await {
            Ok(secrets) => secrets,
            Err(missing) => {
                return End::Failed(Failure::from(CompletionError {
                    kind: ErrorKind::Auth,
                    message: format!("{}: {}", self.provider, missing.problem),
                    hint: Some(missing.hint),
                }));
            }
        };
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => {
                return End::Failed(Failure::from(CompletionError {
                    kind: ErrorKind::NotConfigured,
                    message: chain(&error),
                    hint: None,
                }));
            }
        };
        let send = self.request(client, &secrets, body).send();
        progress.is_sent = true;
        let response = match timeout(self.idle_timeout, send).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                progress.is_sent = !error.is_connect() && !error.is_builder();
                return End::Failed(self.broken(error, &secrets));
            }
            Err(_) => return End::Failed(self.silent()),
        };
        if response.status() != StatusCode::OK {
            progress.is_refused = true;
            return End::Failed(self.refusal(response, model, body, &secrets).await);
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        if content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
            progress.is_refused = true;
            return End::Failed(self.misplaced("a web page"));
        }
        match self.read(response, progress, sink, &secrets).await {
            Ok(()) => End::Stream,
            Err(failure) => End::Failed(failure),
        }
    }

    fn client(&self) -> Result<&Client, Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        crate::install_tls();
        let mut builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(self.connect_timeout)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .tcp_nodelay(true)
            .user_agent(concat!("teamster/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&self.url) {
            // A server of this machine is not reached through a proxy.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|source| Error::Client { source })?;
        Ok(self.client.get_or_init(|| client))
    }

    fn request(&self, client: &Client, secrets: &Secrets, body: &Body) -> RequestBuilder {
        let mut request = client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json")
            .body(body.json.clone());
        for (name, value) in &self.headers {
            let value = secrets
                .headers
                .get(name)
                .map_or(value.as_str(), |secret| secret.expose_secret());
            request = request.header(name, value);
        }
        match &secrets.key {
            Some(key) => request.bearer_auth(key.expose_secret()),
            None => request,
        }
    }

    /// Reads the stream to its end.
    async fn read<S: Sink>(
        &self,
        mut response: Response,
        progress: &mut Progress,
        sink: &mut S,
        secrets: &Secrets,
    ) -> Result<(), Failure> {
        let mut frames = Frames::new(sink);
        let read = self
            .read_pieces(&mut response, progress, &mut frames, secrets)
            .await;
        frames.show().await;
        let is_left = read?;
        if !is_left {
            return Ok(());
        }
        // A body that was read to its end leaves its connection to the next request.
        if !matches!(response.chunk().now_or_never(), Some(Ok(None) | Err(_))) {
            task::spawn(
                "drain of a finished stream",
                timeout(DRAIN, async move {
                    while let Ok(Some(_)) = response.chunk().await {}
                }),
            );
        }
        Ok(())
    }

    /// Reads piece by piece; whether the answer was over before the body was.
    async fn read_pieces<S: Sink>(
        &self,
        response: &mut Response,
        progress: &mut Progress,
        frames: &mut Frames<'_, S>,
        secrets: &Secrets,
    ) -> Result<bool, Failure> {
        let mut reader = Reader::default();
        while !progress.accumulator.is_over() {
            let limit = if progress.accumulator.is_finished() {
                LINGER.min(self.idle_timeout)
            } else {
                self.idle_timeout
            };
            let silent_at = Instant::now() + limit;
            let next = loop {
                let until = frames.due().unwrap_or(silent_at).min(silent_at);
                match timeout_at(until, response.chunk()).await {
                    Err(_) if until < silent_at => frames.show().await,
                    next => break next,
                }
            };
            let piece = match next {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => {
                    let chunks = reader.finish().map_err(|error| self.unreadable(&error))?;
                    self.take(chunks, progress, frames, secrets).await;
                    return Ok(false);
                }
                Ok(Err(_)) | Err(_) if progress.accumulator.is_finished() => return Ok(false),
                Ok(Err(error)) => return Err(self.broken(error, secrets)),
                Err(_) => return Err(self.silent()),
            };
            let chunks = reader
                .push(&piece)
                .map_err(|error| self.unreadable(&error))?;
            self.take(chunks, progress, frames, secrets).await;
        }
        Ok(true)
    }

    async fn take<S: Sink>(
        &self,
        pieces: Vec<Piece>,
        progress: &mut Progress,
        frames: &mut Frames<'_, S>,
        secrets: &Secrets,
    ) {
        let mut deltas = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Done => progress.accumulator.done(),
                Piece::Stray(event) => progress.accumulator.stray(secrets.scrub(&event)),
                Piece::Chunk(mut chunk) => {
                    if let Some(error) = &mut chunk.error {
                        error.message = secrets.scrub(&error.message);
                    }
                    if let Some(misfit) = &mut chunk.misfit {
                        *misfit = secrets.scrub(misfit);
                    }
                    deltas.extend(progress.accumulator.push(*chunk));
                }
            }
        }
        frames.add(deltas).await;
    }

    /// What an answer with an error status means.
    async fn refusal(
        &self,
        mut response: Response,
        model: &str,
        body: &Body,
        secrets: &Secrets,
    ) -> Failure {
        let status = response.status();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let retry_after_ms = retry_after.and_then(|value| retry::retry_after_ms(value, now_ms()));
        let bytes = timeout(self.idle_timeout, async {
            let mut bytes = Vec::new();
            while let Ok(Some(piece)) = response.chunk().await {
                bytes.extend_from_slice(&piece);
                if bytes.len() > ERROR_BODY_BYTES_MAX {
                    break;
                }
            }
            bytes
        });
        let said = classify::body(&bytes.await.unwrap_or_default());
        let message = secrets.scrub(&said.message);
        if status.is_redirection() {
            return self.misplaced(&format!("a redirect ({status}), which is not followed"));
        }
        let kind = classify::status(status.as_u16(), &said.code, &message);
        let tools = body.tools.iter().map(String::as_str);
        let refused_tool = classify::refused_tool(status.as_u16(), &said.message, &tools)
            .filter(|_| kind == ErrorKind::Rejected)
            .and_then(|place| body.tools.get(place).cloned());
        let message = if message.is_empty() {
            String::new()
        } else {
            format!(": {message}")
        };
        let message = format!("{} answered {status}{message}", self.provider);
        Failure {
            retry_after_ms,
            refused_tool,
            ..Failure::from(classify::error(kind, &message, &self.provider, model))
        }
    }

    fn broken(&self, error: reqwest::Error, secrets: &Secrets) -> Failure {
        let is_connect = error.is_connect();
        let error = error.without_url();
        let cause = error.source().map_or_else(|| error.to_string(), chain);
        let what = if is_connect {
            "cannot be reached"
        } else {
            "broke the connection"
        };
        let place = self.url.origin().ascii_serialization();
        Failure::from(CompletionError {
            kind: ErrorKind::Transient,
            message: secrets.scrub(&format!("{} at {place} {what}: {cause}", self.provider)),
            hint: is_connect.then(|| format!("check that {} answers at {place}", self.provider)),
        })
    }

    /// The address is not that of a model server.
    fn misplaced(&self, answer: &str) -> Failure {
        Failure::from(CompletionError {
            kind: ErrorKind::Rejected,
            message: format!("{} answered with {answer}", self.provider),
            hint: Some(format!("check the `base_url` of {}", self.provider)),
        })
    }

    fn silent(&self) -> Failure {
        Failure {
            is_final: true,
            ..Failure::from(CompletionError {
                kind: ErrorKind::Transient,
                message: format!(
                    "{} was silent for {} s",
                    self.provider,
                    self.idle_timeout.as_secs()
                ),
                hint: None,
            })
        }
    }

    fn unreadable(&self, error: &dyn std::error::Error) -> Failure {
        Failure::from(classify::malformed(&error.to_string(), &self.provider))
    }
}

/// The secrets of one request.
struct Secrets {
    key: Option<SecretString>,
    headers: BTreeMap<String, SecretString>,
}

impl Secrets {
    async fn resolve(
        key: &Reference,
        headers: &BTreeMap<String, String>,
    ) -> Result<Self, secret::Missing> {
        let mut secrets = Self {
            key: key.resolve(env).await?,
            headers: BTreeMap::new(),
        };
        for (name, value) in headers {
            if let Ok(reference @ (Reference::Env(_) | Reference::File(_))) =
                Reference::parse(value)
                && let Some(secret) = reference.resolve(env).await?
            {
                secrets.headers.insert(name.clone(), secret);
            }
        }
        Ok(secrets)
    }

    fn scrub(&self, text: &str) -> String {
        secret::scrub(text, self.key.iter().chain(self.headers.values()))
    }
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn digest(model: &str, tool: &Tool) -> Digest {
    let parameters = tool.parameters.to_string();
    Digest::of_fields(&[
        model.as_bytes(),
        tool.name.as_bytes(),
        parameters.as_bytes(),
    ])
}

fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}
