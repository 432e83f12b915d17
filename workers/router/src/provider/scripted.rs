//! The scripted provider: no model at all, but rules that are matched on a request's messages.
//!
//! Owns: the form of a script and its playing. It keeps nothing between requests: the same messages give the same answer.
//! Invariant: its models are labelled `scripted`, so that no answer is taken for a model's.
//!
//! Never: the network, randomness.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};
use teamster_protocol::{
    FunctionId, Message,
    function::router::{ChatRequest, CompletionError, ErrorKind},
    limits,
    message::ResultKind,
    text, wire_name,
};

use super::{End, Failure, Progress, Sink};
use crate::{
    chunk::{CallPiece, Chunk, Finish},
    error::Error,
};

/// Name of the script that is compiled in.
pub const GUIDED: &str = "guided";
/// The longest wait between two words.
const PACE_MS_MAX: u64 = 10_000;
/// Bytes of a message or result that a placeholder stands for.
const QUOTED_BYTES_MAX: usize = 600;
/// The one tool of the exposure that hides functions behind it.
const AGENT_TRIGGER: &str = "agent_trigger";

/// The scripts by model name.
#[derive(Debug)]
pub(crate) struct Scripted(pub(crate) BTreeMap<String, Script>);

/// A script: the first rule that matches answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    when: When,
    say: String,
    #[serde(default)]
    pace_ms: u64,
    #[serde(default)]
    slow_on_first_try: bool,
    #[serde(default)]
    calls: Vec<Call>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct When {
    last_role: Option<Role>,
    contains: Option<String>,
    results: Option<usize>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    User,
    Result,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Ok,
    Denied,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    function: FunctionId,
    #[serde(default = "empty")]
    arguments: Value,
}

fn empty() -> Value {
    json!({})
}

impl Script {
    /// Reads a script.
    pub fn parse(name: &str, yaml: &str) -> Result<Self, Error> {
        let what = || format!("the script {name:?}");
        if yaml.len() > limits::YAML_BYTES_MAX {
            return Err(Error::YamlTooLarge { what: what() });
        }
        let script: Self = serde_yaml::from_str(yaml).map_err(|source| Error::Yaml {
            what: what(),
            source,
        })?;
        for (place, rule) in script.rules.iter().enumerate() {
            let refuse = |problem: &str| Error::Script {
                script: name.to_owned(),
                rule: place,
                problem: problem.to_owned(),
            };
            if rule.pace_ms > PACE_MS_MAX {
                return Err(refuse("`pace_ms` is at most 10000"));
            }
            if rule.calls.iter().any(|call| !call.arguments.is_object()) {
                return Err(refuse("the arguments of a call are an object"));
            }
            if rule.say.trim().is_empty() && rule.calls.is_empty() {
                return Err(refuse("it says nothing and calls nothing"));
            }
        }
        Ok(script)
    }

    /// Reads a script's file.
    pub fn load(name: &str, path: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::metadata(path).map_err(read)?.len();
        if bytes > limits::YAML_BYTES_MAX as u64 {
            return Err(Error::YamlTooLarge {
                what: path.display().to_string(),
            });
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        Self::parse(name, &text).map_err(|error| error.of_file(path))
    }

    /// The script that is compiled in.
    pub fn guided() -> Result<Self, Error> {
        Self::parse(
            GUIDED,
            include_str!("../../../../config/scripts/guided.yaml"),
        )
    }

    /// What the script answers to a request; `None`: no rule matches.
    fn answer(&self, request: &ChatRequest) -> Option<Answer> {
        let scene = Scene::of(request);
        let rule = self.rules.iter().find(|rule| rule.when.matches(&scene))?;
        let is_slow = !rule.slow_on_first_try || (scene.attempt <= 1 && !scene.is_resumed);
        let calls = rule
            .calls
            .iter()
            .map(|call| scene.call(call, request))
            .collect();
        Some(Answer {
            say: scene.expand(&rule.say),
            pace: Duration::from_millis(if is_slow { rule.pace_ms } else { 0 }),
            calls,
        })
    }
}

/// What a rule comes to for one request.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    say: String,
    pace: Duration,
    calls: Vec<CallPiece>,
}

impl Scripted {
    /// Plays the script that is called `model`.
    pub(crate) async fn attempt<S: Sink>(
        &self,
        request: &ChatRequest,
        model: &str,
        progress: &mut Progress,
        sink: &mut S,
    ) -> End {
        let refuse = |kind, message: String| {
            End::Failed(Failure::from(CompletionError {
                kind,
                message,
                hint: Some("see docs/scripted-models.md".to_owned()),
            }))
        };
        let Some(script) = self.0.get(model) else {
            return refuse(
                ErrorKind::NotConfigured,
                format!("there is no script called {model:?}"),
            );
        };
        let Some(answer) = script.answer(request) else {
            return refuse(
                ErrorKind::Rejected,
                format!("no rule of the script {model:?} matches these messages"),
            );
        };
        progress.is_sent = true;
        for word in answer.say.split_inclusive(char::is_whitespace) {
            let chunk = Chunk {
                text: word.to_owned(),
                ..Chunk::default()
            };
            super::send_merged(progress.accumulator.push(chunk), sink).await;
            if !answer.pace.is_zero() {
                tokio::time::sleep(answer.pace).await;
            }
        }
        let finish = if answer.calls.is_empty() {
            Finish::End
        } else {
            Finish::Call
        };
        let last = Chunk {
            calls: answer.calls,
            finish: Some(finish),
            ..Chunk::default()
        };
        super::send_merged(progress.accumulator.push(last), sink).await;
        End::Stream
    }
}

impl When {
    fn matches(&self, scene: &Scene<'_>) -> bool {
        self.last_role
            .is_none_or(|role| scene.last_role == Some(role))
            && self.results.is_none_or(|results| scene.results == results)
            && self
                .outcome
                .is_none_or(|outcome| scene.outcome == Some(outcome))
            && self.contains.as_ref().is_none_or(|part| {
                scene
                    .last_text
                    .to_lowercase()
                    .contains(&part.to_lowercase())
            })
    }
}

/// What rules look at.
#[derive(Debug)]
struct Scene<'a> {
    last_role: Option<Role>,
    last_text: &'a str,
    outcome: Option<Outcome>,
    message: &'a str,
    result: &'a str,
    results: usize,
    attempt: u32,
    is_resumed: bool,
}

impl<'a> Scene<'a> {
    fn of(request: &'a ChatRequest) -> Self {
        let last_part = request
            .request_id
            .as_str()
            .rsplit('.')
            .next()
            .unwrap_or_default();
        let mut scene = Self {
            last_role: None,
            last_text: "",
            outcome: None,
            message: "",
            result: "",
            results: 0,
            attempt: last_part.parse().unwrap_or(1),
            is_resumed: false,
        };
        for message in &request.messages {
            match message.as_ref() {
                Message::User { text, .. } => {
                    scene = Self {
                        last_role: Some(Role::User),
                        last_text: text,
                        message: text,
                        outcome: None,
                        results: 0,
                        ..scene
                    };
                }
                Message::FunctionResult { text, outcome, .. } => {
                    let outcome = Some(Outcome::of(*outcome));
                    let results = scene.results + 1;
                    scene = Self {
                        last_role: Some(Role::Result),
                        last_text: text,
                        result: text,
                        outcome,
                        results,
                        ..scene
                    };
                }
                // A notice and a part of an answer change nothing but that the answer goes on.
                Message::Notice { .. } | Message::Assistant { .. } | Message::Custom { .. } => {}
            }
        }
        let last = request.messages.last();
        scene.is_resumed = matches!(
            last.map(AsRef::as_ref),
            Some(Message::Notice { .. } | Message::Assistant { partial: true, .. })
        );
        scene
    }

    /// A call under the name by which it was offered.
    fn call(&self, call: &Call, request: &ChatRequest) -> CallPiece {
        let name = wire_name::encode(&call.function);
        let arguments = self.expand_value(&call.arguments);
        let offers = |name: &str| request.tools.iter().any(|tool| tool.name == name);
        let (name, arguments) = if !offers(&name) && offers(AGENT_TRIGGER) {
            (
                AGENT_TRIGGER.to_owned(),
                json!({"function": call.function, "payload": arguments}),
            )
        } else {
            (name, arguments)
        };
        CallPiece {
            name: Some(name),
            arguments: arguments.to_string(),
            ..CallPiece::default()
        }
    }

    fn expand_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.expand(text)),
            Value::Array(items) => items.iter().map(|item| self.expand_value(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (key.clone(), self.expand_value(value)))
                .collect(),
            other => other.clone(),
        }
    }

    /// Puts in what `{message}`, `{result}` and `{result:/pointer}` stand for; other braces stay.
    fn expand(&self, template: &str) -> String {
        let mut expanded = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            expanded.push_str(before);
            let found = after
                .split_once('}')
                .and_then(|(name, tail)| Some((self.placeholder(name)?, tail)));
            if let Some((value, tail)) = found {
                expanded.push_str(&text::cut(&value, QUOTED_BYTES_MAX));
                rest = tail;
            } else {
                expanded.push('{');
                rest = after;
            }
        }
        expanded.push_str(rest);
        expanded
    }

    fn placeholder(&self, name: &str) -> Option<String> {
        match name.split_once(':') {
            None if name == "message" => Some(self.message.to_owned()),
            None if name == "result" => Some(self.result.to_owned()),
            Some(("result", pointer)) => {
                let value = serde_json::from_str::<Value>(self.result).ok();
                let found = value.as_ref().and_then(|value| value.pointer(pointer));
                Some(match found {
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                    None => self.result.to_owned(),
                })
            }
            _ => None,
        }
    }
}

impl Outcome {
    fn of(kind: ResultKind) -> Self {
        match kind {
            ResultKind::Ok => Self::Ok,
            ResultKind::DeniedByPolicy
            | ResultKind::DeniedByOwner
            | ResultKind::Expired
            | ResultKind::GateUnavailable => Self::Denied,
            ResultKind::Error
            | ResultKind::Invalid
            | ResultKind::OutcomeUnknown
            | ResultKind::Cancelled => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
