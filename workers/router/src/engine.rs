//! One generation: attempts, waits, the sum of what they cost, and the completion that comes out.
//!
//! Owns: which provider answers a model id, and the loop over attempts. Invariants: once a request was understood there is
//! always a completion; nothing is tried again after something was visible; what was paid twice is in the sum.
//!
//! Never: the mesh. Deltas go to a sink, and who asked is not known here.

mod ledger;
mod verdict;

use std::{collections::BTreeMap, time::Duration};

use teamster_protocol::{
    function::router::{
        ChatRequest, Completion, CompletionError, DeltaKind, ErrorKind, Model, Price,
    },
    message::StopReason,
    usage::NanoUsd,
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use self::{
    ledger::Ledger,
    verdict::{Next, Outcome, Verdict, judge, next},
};
use crate::{
    classify,
    config::{Config, Kind, ModelConfig},
    price,
    provider::{
        Backend, Progress, Provider, Sink,
        openai::OpenAi,
        scripted::{GUIDED, Script, Scripted},
    },
    retry,
};

/// The longest generation that a configuration may allow: callers wait `GENERATION_MAX`, and must still hear the answer.
const TIMEOUT_MS_MAX: u64 = 300_000;

/// Tells a running generation to end.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Somebody asked for it: the completion says `aborted`.
    pub abort: CancellationToken,
    /// Nobody waits any more, or the process ends: the completion says `incomplete`, and the request may be made again.
    pub leave: CancellationToken,
}

/// All configured providers.
#[derive(Debug)]
pub struct Engine {
    providers: BTreeMap<String, Provider>,
    default_model: Option<String>,
    timeout: Duration,
}

impl Engine {
    /// Makes the providers of a configuration. One that cannot be made is kept with the reason, which its users are told;
    /// the others work.
    pub fn new(config: &Config) -> Self {
        let table = price::table().unwrap_or_else(|error| {
            tracing::error!(%error, "the compiled-in price table cannot be used");
            BTreeMap::new()
        });
        let providers = config.all_providers().into_iter().map(|(name, settings)| {
            let backend = backend(&name, &settings, config).unwrap_or_else(|error| {
                let reason = teamster_telemetry::chain(&error);
                tracing::warn!(provider = name, reason, "a provider cannot be used");
                Backend::Broken(reason)
            });
            let models = models(&name, &settings.models, &table, &backend);
            let retry = settings
                .retry
                .clone()
                .unwrap_or_else(|| config.retry.clone());
            (
                name.clone(),
                Provider {
                    name,
                    models,
                    retry,
                    backend,
                },
            )
        });
        Self {
            providers: providers.collect(),
            default_model: config.default_model.clone(),
            timeout: Duration::from_millis(config.timeout_ms.clamp(1, TIMEOUT_MS_MAX)),
        }
    }

    /// The models that are known, in the order of their ids; of `provider` alone, if given.
    pub fn models(&self, provider: Option<&str>) -> Vec<Model> {
        let wanted = |name: &&String| provider.is_none_or(|provider| provider == *name);
        self.providers
            .iter()
            .filter(|(name, _)| wanted(name))
            .flat_map(|(_, provider)| {
                provider
                    .models
                    .iter()
                    .map(|(name, config)| model(provider, name, config))
            })
            .collect()
    }

    /// One model, listed or not: a provider may have models that nobody listed. The error says what to do.
    pub fn model(&self, id: &str) -> Result<Model, CompletionError> {
        let (provider, name) = self.route(id)?;
        Ok(model(
            provider,
            name,
            &provider.models.get(name).cloned().unwrap_or_default(),
        ))
    }

    /// Generates. The future may be dropped at any time; to have the partial answer, use `stop`.
    pub async fn generate<S: Sink>(
        &self,
        request: &ChatRequest,
        stop: &Stop,
        sink: &mut S,
    ) -> Completion {
        let id = match (request.model.as_str(), &self.default_model) {
            ("", Some(default)) => default,
            (id, _) => id,
        };
        let completion = match self.route(id) {
            Ok((provider, name)) => self.run(provider, name, request, stop, sink).await,
            Err(error) => {
                Ledger::new(id.to_owned()).completion(StopReason::Error, Vec::new(), Some(error))
            }
        };
        sink.send(DeltaKind::Done).await;
        completion
    }

    fn route<'a>(&'a self, id: &'a str) -> Result<(&'a Provider, &'a str), CompletionError> {
        let refuse = |message: String, hint: String| CompletionError {
            kind: ErrorKind::NotConfigured,
            message,
            hint: Some(hint),
        };
        let known = || {
            let names: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            format!(
                "name a model as `provider/model`; providers: {}",
                names.join(", ")
            )
        };
        let Some((name, model)) = id.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            let problem = if id.is_empty() {
                "no model was chosen".to_owned()
            } else {
                format!("{id:?} is no model id")
            };
            return Err(refuse(problem, known()));
        };
        let provider = self
            .providers
            .get(name)
            .ok_or_else(|| refuse(format!("there is no provider called {name:?}"), known()))?;
        if let Backend::Scripted(scripts) = &provider.backend
            && !scripts.0.contains_key(model)
        {
            let scripts: Vec<&str> = scripts.0.keys().map(String::as_str).collect();
            return Err(refuse(
                format!("there is no script called {model:?}"),
                format!("scripts: {}", scripts.join(", ")),
            ));
        }
        Ok((provider, model))
    }

    async fn run<S: Sink>(
        &self,
        provider: &Provider,
        model: &str,
        request: &ChatRequest,
        stop: &Stop,
        sink: &mut S,
    ) -> Completion {
        let deadline = Instant::now() + self.timeout;
        let config = provider.models.get(model).cloned().unwrap_or_default();
        let mut ledger = Ledger::new(format!("{}/{model}", provider.name));
        let seed = retry::seed(request.request_id.as_str());
        for tried in 1.. {
            let body = match provider.body(request, model, &config) {
                Ok(body) => body,
                Err(error) => {
                    let error = classify::error(
                        ErrorKind::Rejected,
                        &error.to_string(),
                        &provider.name,
                        model,
                    );
                    return ledger.completion(StopReason::Error, Vec::new(), Some(error));
                }
            };
            for (tool, reason) in &body.left_out {
                tracing::warn!(tool, reason, model = ledger.model, "a tool is not offered");
            }
            let mut progress = Progress::default();
            let outcome = tokio::select! {
                biased;
                () = stop.abort.cancelled() => Outcome::Aborted,
                () = stop.leave.cancelled() => Outcome::Left,
                () = sleep_until(deadline) => Outcome::TimedOut,
                end = provider.attempt(request, model, &body, &mut progress, sink) => Outcome::Ended(end),
            };
            ledger.enter(&body, &progress, config.price.as_ref());
            let failure = match judge(outcome, &progress, &provider.name, model) {
                Verdict::Over(stop, error) => {
                    return ledger.completion(stop, progress.accumulator.into_parts(stop), error);
                }
                Verdict::Failed(failure) => failure,
            };
            let (wait_ms, reason) = match next(provider, model, request, tried, failure, seed) {
                Next::Again { wait_ms, reason } => (wait_ms, reason),
                Next::GiveUp(error) => {
                    return ledger.completion(StopReason::Error, Vec::new(), Some(error));
                }
            };
            tracing::warn!(
                model = ledger.model,
                tried,
                wait_ms,
                reason,
                "a request is made again"
            );
            sink.send(DeltaKind::Retry {
                attempt: tried + 1,
                wait_ms,
                reason,
            })
            .await;
            if let Some(ended) = pause(stop, deadline, Duration::from_millis(wait_ms)).await
                && let Verdict::Over(stop, error) =
                    judge(ended, &Progress::default(), &provider.name, model)
            {
                return ledger.completion(stop, Vec::new(), error);
            }
        }
        ledger.completion(StopReason::Error, Vec::new(), None)
    }
}

/// Waits before the next attempt; `Some` if something ended the generation meanwhile.
async fn pause(stop: &Stop, deadline: Instant, wait: Duration) -> Option<Outcome> {
    tokio::select! {
        () = stop.abort.cancelled() => Some(Outcome::Aborted),
        () = stop.leave.cancelled() => Some(Outcome::Left),
        () = sleep_until(deadline) => Some(Outcome::TimedOut),
        () = sleep(wait) => None,
    }
}

fn backend(
    name: &str,
    settings: &crate::config::Provider,
    config: &Config,
) -> Result<Backend, crate::Error> {
    settings.check(name)?;
    match settings.kind.unwrap_or_default() {
        Kind::Openai => Ok(Backend::OpenAi(Box::new(OpenAi::new(
            name, settings, config,
        )?))),
        Kind::Scripted => {
            let mut scripts = BTreeMap::from([(GUIDED.to_owned(), Script::guided()?)]);
            for (name, path) in &settings.scripts {
                scripts.insert(name.clone(), Script::load(name, path)?);
            }
            Ok(Backend::Scripted(Scripted(scripts)))
        }
    }
}

/// What is known about a provider's models: the configuration's word, then the table's.
fn models(
    provider: &str,
    configured: &BTreeMap<String, ModelConfig>,
    table: &BTreeMap<String, ModelConfig>,
    backend: &Backend,
) -> BTreeMap<String, ModelConfig> {
    let listed = |(id, config): (&String, &ModelConfig)| {
        let (owner, name) = id.split_once('/')?;
        (owner == provider).then(|| (name.to_owned(), config.clone()))
    };
    let mut models: BTreeMap<String, ModelConfig> = table.iter().filter_map(listed).collect();
    if let Backend::Scripted(scripts) = backend {
        models.extend(scripts.0.keys().map(|name| (name.clone(), free())));
    }
    for (name, config) in configured {
        let merged = config.clone().or(models.get(name));
        models.insert(name.clone(), merged);
    }
    models
}

/// A script costs nothing, which is known and not unknown.
fn free() -> ModelConfig {
    let nothing = NanoUsd(0);
    ModelConfig {
        price: Some(Price {
            input: nothing,
            cache_read: nothing,
            cache_write: nothing,
            output: nothing,
            as_of: "1970-01-01".to_owned(),
        }),
        ..ModelConfig::default()
    }
}

fn model(provider: &Provider, name: &str, config: &ModelConfig) -> Model {
    Model {
        id: format!("{}/{name}", provider.name),
        context_window: config.context_window,
        max_output_tokens: config.max_output_tokens,
        price: config.price.clone(),
        scripted: matches!(provider.backend, Backend::Scripted(_)),
    }
}

#[cfg(test)]
mod tests;
