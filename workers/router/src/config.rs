//! The router's configuration: providers, models, retries.
//!
//! Owns: the typed tree, its defaults, and the providers that are compiled in. Keys are references, never values.
//!
//! Never: resolving a key, opening a connection.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_mesh::config::{Problem, Section};
use teamster_protocol::{form, function::router::Price, limits};

use crate::{error::Error, secret::Reference};

/// Section `router` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `provider/model` that is used where a request names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
    /// Providers by name. `openai`, `openrouter`, `ollama`, `vllm`, `llamacpp` and `scripted` are there already; an entry of
    /// the same name overrides the fields that it gives.
    pub providers: BTreeMap<String, Provider>,
    /// How failing requests are repeated.
    pub retry: Retry,
    /// How long a connection may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a provider may be silent, in milliseconds; comments count as signs of life.
    pub idle_timeout_ms: u64,
    /// How long a generation may take with all attempts, in milliseconds; at most `GENERATION_MAX` less 20 s.
    pub timeout_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_model: None,
            providers: BTreeMap::new(),
            retry: Retry::default(),
            connect_timeout_ms: 10_000,
            idle_timeout_ms: 120_000,
            timeout_ms: 300_000,
        }
    }
}

/// How failing requests are repeated. Only what failed before anything was visible is repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Requests for one generation, the first included; 1 to 10.
    pub attempts_max: u32,
    /// The first wait, in milliseconds; it doubles with each further one and is spread between half and full.
    pub base_ms: u64,
    /// The longest wait of our own choice, in milliseconds.
    pub cap_ms: u64,
    /// The longest wait that a provider may ask for, in milliseconds; a longer one fails the generation at once.
    pub retry_after_max_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            base_ms: 500,
            cap_ms: 8_000,
            retry_after_max_ms: 30_000,
        }
    }
}

/// What kind of provider it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Speaks OpenAI's chat completions with streaming.
    #[default]
    Openai,
    /// Plays scripts and is no model at all.
    Scripted,
}

/// Which field bounds the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputLimit {
    /// `max_tokens`, which nearly every server knows.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which OpenAI's reasoning models demand.
    MaxCompletionTokens,
}

/// One provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Provider {
    /// What kind of provider it is; `openai` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The address before `/chat/completions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Where the key is: `env:NAME`, `file:/path` or `none`; none when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Reference>,
    /// Further request headers. A value `env:NAME` or `file:/path` is a reference.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is known about models, by name without the provider.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, ModelConfig>,
    /// Retries, where they differ from the router's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Which field bounds the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<OutputLimit>,
    /// Scripts by model name, as YAML files (`scripted` only). They are read when the router starts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scripts: BTreeMap<String, PathBuf>,
}

/// What is known about one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Tokens that fit into it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Tokens that it may produce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Its prices. A model of one's own machine is free of charge only if zeros are written here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

impl ModelConfig {
    /// These values where they say something, else those of `base`.
    pub(crate) fn or(self, base: Option<&Self>) -> Self {
        let Some(base) = base else { return self };
        Self {
            context_window: self.context_window.or(base.context_window),
            max_output_tokens: self.max_output_tokens.or(base.max_output_tokens),
            price: self.price.or_else(|| base.price.clone()),
        }
    }
}

impl Provider {
    fn or(self, base: &Self) -> Self {
        let mut headers = base.headers.clone();
        headers.extend(self.headers);
        Self {
            kind: self.kind.or(base.kind),
            base_url: self.base_url.or_else(|| base.base_url.clone()),
            key: self.key.or_else(|| base.key.clone()),
            headers,
            models: self.models,
            retry: self.retry.or_else(|| base.retry.clone()),
            output_limit: self.output_limit.or(base.output_limit),
            scripts: self.scripts,
        }
    }

    /// Refuses settings that cannot work or that hold a secret in plain text.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let refuse = |problem: &str| {
            Err(Error::Provider {
                provider: name.to_owned(),
                problem: problem.to_owned(),
            })
        };
        if name.is_empty() || name.contains('/') {
            return refuse("its name must not be empty and must not hold a slash");
        }
        if self.kind == Some(Kind::Scripted) {
            return Ok(());
        }
        let Some(base_url) = &self.base_url else {
            return refuse("it needs a `base_url`");
        };
        if !base_url.starts_with("https://") && !base_url.starts_with("http://") {
            return refuse("its `base_url` must begin with https:// or http://");
        }
        if base_url.contains('@') {
            return refuse("its `base_url` must not hold credentials; use `key`");
        }
        let is_secret = |header: &str| {
            [
                "authorization",
                "proxy-authorization",
                "cookie",
                "api-key",
                "x-api-key",
            ]
            .iter()
            .any(|secret| header.eq_ignore_ascii_case(secret))
        };
        let plain = |value: &str| {
            !matches!(
                Reference::parse(value),
                Ok(Reference::Env(_) | Reference::File(_))
            )
        };
        if self
            .headers
            .iter()
            .any(|(header, value)| is_secret(header) && plain(value))
        {
            return refuse(
                "a header that carries a secret must be a reference (`env:NAME` or `file:/path`)",
            );
        }
        Ok(())
    }
}

impl Config {
    /// All providers: those that are compiled in, with what the configuration says on top.
    pub fn all_providers(&self) -> BTreeMap<String, Provider> {
        let mut providers = built_in();
        for (name, provider) in &self.providers {
            let merged = match providers.get(name) {
                Some(base) => provider.clone().or(base),
                None => provider.clone(),
            };
            providers.insert(name.clone(), merged);
        }
        providers
    }

    /// Finds what is wrong before it is used. A router runs all the same and answers requests to a broken provider with
    /// `not_configured`.
    pub fn check(&self) -> Result<(), Error> {
        for (name, provider) in self.all_providers() {
            provider.check(&name)?;
            for (script, path) in &provider.scripts {
                crate::provider::scripted::Script::load(script, path)?;
            }
        }
        Ok(())
    }
}

impl Section for Config {
    // The context worker remembers what it was told about a model, and a harness what the context worker made of it.
    const LATE: (&'static [&'static str], Duration) = (
        &["context_window", "max_output_tokens"],
        limits::CONTEXT_MODEL_TTL.saturating_mul(2),
    );

    fn check(&self) -> Result<(), Problem> {
        Self::check(self).map_err(|error| {
            let key = match &error {
                Error::Provider { provider, .. } => Some(format!("providers.{provider}")),
                _ => None,
            };
            Problem {
                key,
                problem: form::words(&teamster_telemetry::chain(&error)),
            }
        })
    }
}

fn built_in() -> BTreeMap<String, Provider> {
    let server = |base_url: &str, key: Reference, output_limit| Provider {
        kind: Some(Kind::Openai),
        base_url: Some(base_url.to_owned()),
        key: Some(key),
        output_limit: Some(output_limit),
        ..Provider::default()
    };
    let env = |name: &str| Reference::Env(name.to_owned());
    let scripted = Provider {
        kind: Some(Kind::Scripted),
        ..Provider::default()
    };
    [
        (
            "openai",
            server(
                "https://api.openai.com/v1",
                env("OPENAI_API_KEY"),
                OutputLimit::MaxCompletionTokens,
            ),
        ),
        (
            "openrouter",
            server(
                "https://openrouter.ai/api/v1",
                env("OPENROUTER_API_KEY"),
                OutputLimit::MaxTokens,
            ),
        ),
        (
            "ollama",
            server(
                "http://127.0.0.1:11434/v1",
                Reference::None,
                OutputLimit::MaxTokens,
            ),
        ),
        (
            "vllm",
            server(
                "http://127.0.0.1:8000/v1",
                Reference::None,
                OutputLimit::MaxTokens,
            ),
        ),
        (
            "llamacpp",
            server(
                "http://127.0.0.1:8080/v1",
                Reference::None,
                OutputLimit::MaxTokens,
            ),
        ),
        ("scripted", scripted),
    ]
    .into_iter()
    .map(|(name, provider)| (name.to_owned(), provider))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(yaml: &str) -> Config {
        serde_yaml::from_str(yaml).expect("valid")
    }

    #[test]
    fn an_entry_overrides_what_it_gives_of_a_built_in_provider() {
        let config = config(
            "providers: {openai: {base_url: 'http://127.0.0.1:9/v1'}, mine: {base_url: 'https://x.test/v1', key: 'env:MINE'}}",
        );
        let all = config.all_providers();
        let openai = &all["openai"];
        assert_eq!(openai.base_url.as_deref(), Some("http://127.0.0.1:9/v1"));
        assert_eq!(
            openai.key,
            Some(Reference::Env("OPENAI_API_KEY".to_owned()))
        );
        assert_eq!(openai.output_limit, Some(OutputLimit::MaxCompletionTokens));
        assert_eq!(all["mine"].key, Some(Reference::Env("MINE".to_owned())));
        assert_eq!(all.len(), 7);
        config.check().expect("all are usable");
    }

    #[test]
    fn a_secret_in_plain_text_is_refused_and_not_repeated() {
        let error = serde_yaml::from_str::<Config>("providers: {openai: {key: 'sk-secret'}}")
            .expect_err("a plain key");
        assert!(!error.to_string().contains("sk-secret"));
        for bad in [
            "providers: {a: {}}",
            "providers: {a: {base_url: 'ftp://x'}}",
            "providers: {a: {base_url: 'https://user:pass@x.test/v1'}}",
            "providers: {a: {base_url: 'https://x.test', headers: {Authorization: 'Bearer sk-1'}}}",
            "providers: {'a/b': {base_url: 'https://x.test'}}",
            "providers: {s: {kind: scripted, scripts: {x: /nowhere/x.yaml}}}",
        ] {
            let error = config(bad).check().expect_err(bad);
            assert!(!error.to_string().contains("sk-1") && !error.to_string().contains("pass"));
        }
        config("providers: {a: {base_url: 'https://x.test', headers: {Api-Key: 'env:A'}}}")
            .check()
            .expect("a reference is fine");
    }

    #[test]
    fn unknown_fields_are_refused() {
        for bad in [
            "provders: {}",
            "providers: {openai: {baseurl: x}}",
            "retry: {attempts: 3}",
        ] {
            assert!(serde_yaml::from_str::<Config>(bad).is_err(), "{bad}");
        }
    }
}
