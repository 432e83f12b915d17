//! The section `harness` of the configuration.

use serde::{Deserialize, Serialize};
use teamster_core::turn::Settings;
use teamster_mesh::config::{Problem, Section};
use teamster_protocol::{
    Digest,
    id::WorkerName,
    limits,
    usage::{Budget, NanoUsd},
};

/// How turns run where a message says nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `provider/model` of turns that name none. Default: the scripted provider, which needs no key.
    pub default_model: String,
    /// Steps (generations) of one turn. Default 16.
    pub default_max_turns: u32,
    /// Tokens of one turn. Default: no bound.
    pub max_tokens: Option<u64>,
    /// Money of one turn, in billionths of a US dollar. Default: no bound.
    pub max_cost_nanousd: Option<u64>,
    /// Calls of one turn. Default: no bound.
    pub max_calls: Option<u32>,
    /// Working time of one turn, in milliseconds; waiting for people does not count. Default: no bound.
    pub max_wall_ms: Option<u64>,
    /// Tokens that one generation may produce. Default 8192.
    pub max_output_tokens: u64,
    /// Cut streams that one turn may resume. Default 1.
    pub max_transient_resumes: u32,
    /// How long an approval waits where the policy states nothing, in milliseconds. Default: 24 hours.
    pub default_pending_timeout_ms: u64,
    /// Bytes of raw history that are sent to a model. Default 1 MiB.
    pub history_bytes: usize,
    /// Sessions that run at once in this process. Default 512.
    pub sessions: usize,
    /// Workers whose hook must be bound before any call runs. Default: the approval-gate. An absent gate denies.
    pub required_hooks: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            default_model: settings.model,
            default_max_turns: limits::STEPS_DEFAULT,
            max_tokens: None,
            max_cost_nanousd: None,
            max_calls: None,
            max_wall_ms: None,
            max_output_tokens: settings.output_tokens,
            max_transient_resumes: settings.resumes_max,
            default_pending_timeout_ms: settings.approval_ttl_ms,
            history_bytes: settings.history_bytes,
            sessions: limits::SESSIONS_AT_ONCE_MAX,
            required_hooks: vec!["approval-gate".to_owned()],
        }
    }
}

impl Section for Config {
    // The doorbells' credit is taken when they are opened.
    const COLD: &'static [&'static str] = &["sessions"];

    fn check(&self) -> Result<(), Problem> {
        if !is_model(&self.default_model) {
            let said = "must be provider/name, for example scripted/guided";
            return Err(Problem::of("default_model", said));
        }
        let positive = [
            ("default_max_turns", u64::from(self.default_max_turns)),
            ("max_tokens", self.max_tokens.unwrap_or(1)),
            ("max_wall_ms", self.max_wall_ms.unwrap_or(1)),
            ("max_output_tokens", self.max_output_tokens),
            (
                "default_pending_timeout_ms",
                self.default_pending_timeout_ms,
            ),
            ("history_bytes", self.history_bytes as u64),
            ("sessions", self.sessions as u64),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Problem::of(key, "must be 1 or more"));
        }
        match self
            .required_hooks
            .iter()
            .find(|name| WorkerName::parse(name.as_str()).is_err())
        {
            Some(name) => Err(Problem::of(
                "required_hooks",
                format_args!("{name:?} is no worker's name"),
            )),
            None => Ok(()),
        }
    }
}

fn is_model(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(provider, name)| !provider.is_empty() && !name.is_empty())
}

impl Config {
    /// What of it the turn machine reads.
    pub(super) fn settings(&self) -> Settings {
        let revision = serde_json::to_vec(self).map_or(Digest::ZERO, Digest::of);
        Settings {
            model: self.default_model.clone(),
            budget: Budget {
                steps: Some(self.default_max_turns),
                tokens: self.max_tokens,
                cost: self.max_cost_nanousd.map(NanoUsd),
                calls: self.max_calls,
                wall_ms: self.max_wall_ms,
            },
            resumes_max: self.max_transient_resumes,
            output_tokens: self.max_output_tokens,
            approval_ttl_ms: self.default_pending_timeout_ms,
            history_bytes: self.history_bytes,
            revision,
        }
    }
}
