//! What `run`, `chat` and `send` make a message from: text and the options of a turn.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use teamster_core::display;
use teamster_protocol::{
    SessionId,
    function::{
        harness::{SendReply, SendRequest},
        router::{Model, UNKNOWN_MODEL},
    },
    input::{SessionOptions, TurnOptions},
    limits,
    policy::{Exposure, FunctionPolicy},
    usage::{Budget, NanoUsd},
};

use super::{failure::Failure, place};
use crate::client::{Client, Error, session::Session};

/// What the model of a new session may call: files, its own earlier results, and commands, about which policy asks a person
/// each time.
const DEFAULT_ALLOW: [&str; 3] = ["fs::*", "context::read", "sandbox::exec"];

/// What a turn runs with.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Turn {
    /// Model, as provider/name. Default: the session's, else the configured one, else the labelled script
    #[arg(long, value_name = "PROVIDER/NAME", value_parser = model)]
    pub model: Option<String>,
    /// Functions that the model may call, as globs; repeat for more. Default for a new session: `fs::*`, `context::read` and `sandbox::exec`
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub allow: Vec<String>,
    /// Functions that it may not call although --allow names them
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub deny: Vec<String>,
    /// How functions are offered to the model
    #[arg(long, value_enum)]
    pub expose: Option<Expose>,
    /// Steps (generations) that the turn may take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,
    /// Tokens of all kinds that the turn may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,
    /// Money that the turn may cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost_usd: Option<NanoUsd>,
    /// Calls that the model may propose
    #[arg(long, value_name = "N")]
    pub max_calls: Option<u32>,
    /// Seconds that the turn may take; waiting for a person does not count
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_seconds: Option<u64>,
}

/// What makes a message recognisable.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Key {
    /// Idempotency key: the same key is never a second message
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub key: Option<String>,
}

/// How functions are offered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Expose {
    /// Each function as a tool of its own
    Native,
    /// One tool, `agent_trigger`, which finds and calls functions
    #[value(name = "agent_trigger", alias = "agent-trigger")]
    AgentTrigger,
}

impl Turn {
    /// The options to send. `is_new` fills in what a new session needs.
    pub(super) fn options(&self, is_new: bool) -> TurnOptions {
        let says_functions =
            !self.allow.is_empty() || !self.deny.is_empty() || self.expose.is_some();
        let functions = (says_functions || is_new).then(|| FunctionPolicy {
            allow: if self.allow.is_empty() {
                DEFAULT_ALLOW
                    .iter()
                    .map(|glob| (*glob).to_owned())
                    .collect()
            } else {
                self.allow.clone()
            },
            deny: self.deny.clone(),
            expose: match self.expose {
                Some(Expose::AgentTrigger) => Exposure::AgentTrigger,
                Some(Expose::Native) | None => Exposure::Native,
            },
        });
        TurnOptions {
            model: self.model.clone(),
            functions,
            budget: Budget {
                steps: self.max_turns,
                tokens: self.max_tokens,
                cost: self.max_cost_usd,
                calls: self.max_calls,
                wall_ms: self.max_seconds.map(|seconds| seconds.saturating_mul(1000)),
            },
            ..TurnOptions::default()
        }
    }

    /// The whole request.
    pub(super) fn request(
        &self,
        session: Option<SessionId>,
        key: &Key,
        message: String,
        created_with: SessionOptions,
        is_new: bool,
    ) -> SendRequest {
        SendRequest {
            session_id: session,
            message,
            idempotency_key: key.key.clone(),
            session: created_with,
            options: self.options(is_new),
        }
    }
}

/// What is said when a key was used before: the text of this command is not a second message.
pub(super) const REPEATED: &str = "this key was used before in the session: the message was accepted then, and its first \
                                   answer is shown; the text given now is not sent";

impl Key {
    /// Whether the answer to a send tells of an earlier one with the same key.
    pub(super) fn is_repeated(&self, sent: &SendReply) -> bool {
        // Without a key of the user's own it is this very message, whose first answer was lost.
        self.key.is_some() && sent.deduplicated
    }
}

impl Turn {
    /// What has to be said before a turn is sent whose bound on money cannot hold, because nobody knows the model's price. A
    /// model that was asked for here and that no provider has is refused: its turn could only fail.
    pub(super) async fn look(
        &self,
        client: &Client,
        session: Option<&SessionId>,
        data: Option<&Path>,
    ) -> Result<Option<String>, Failure> {
        let asked = match &self.model {
            Some(model) => asked_for(client.model(model).await)?,
            None => None,
        };
        if self.max_cost_usd.is_none() {
            return Ok(None);
        }
        let Some(model) = self.model_of(client, session, data).await? else {
            return Ok(None);
        };
        let known = match asked {
            Some(known) => Some(known),
            None => client.model(&model).await.unwrap_or_default(),
        };
        let is_unpriced = known.is_some_and(|model| model.price.is_none() && !model.scripted);
        Ok(is_unpriced.then(|| {
            format!(
                "the price of {} is not known, so --max-cost-usd bounds nothing; --max-tokens does",
                display::terminal(&model)
            )
        }))
    }

    /// The model that the turn will run with, as far as it is known here.
    async fn model_of(
        &self,
        client: &Client,
        session: Option<&SessionId>,
        data: Option<&Path>,
    ) -> Result<Option<String>, Failure> {
        if self.model.is_some() {
            return Ok(self.model.clone());
        }
        if let Some(id) = session {
            match client.commits(id).await {
                Ok(commits) => {
                    let mut known = Session::default();
                    for (_, commit) in &commits {
                        known.apply(id, commit);
                    }
                    if let Some(model) = known.turn.and_then(|turn| turn.model) {
                        return Ok(Some(model));
                    }
                }
                Err(Error::NoSession(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let config = data.map(super::up::configuration).transpose()?;
        Ok(config.map(|config| config.harness.default_model))
    }
}

/// What the router knows about a model that was asked for by name.
pub(super) fn asked_for(known: Result<Option<Model>, Error>) -> Result<Option<Model>, Failure> {
    match known {
        Err(Error::Fault(fault)) if fault.code == UNKNOWN_MODEL => {
            let failure = Failure::usage(
                UNKNOWN_MODEL,
                format_args!("{}; nothing was sent", fault.message),
            );
            Err(match fault.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
        known => Ok(known?),
    }
}

/// Reads a model's name.
pub(super) fn model(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((provider, name)) if !provider.is_empty() && !name.is_empty() => Ok(text.to_owned()),
        _ => Err("write provider/name, for example scripted/guided".to_owned()),
    }
}

fn glob(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("an empty glob matches nothing; write for example fs::*".to_owned());
    }
    match globset::Glob::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.kind().to_string()),
    }
}

fn key(text: &str) -> Result<String, String> {
    if (1..=limits::KEY_BYTES_MAX).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(format!("a key has 1 to {} bytes", limits::KEY_BYTES_MAX))
}

fn dollars(text: &str) -> Result<NanoUsd, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=1e9).contains(&value) {
        return Err("must be between 0 and a billion dollars".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked, and a billionth more or less does not matter"
    )]
    Ok(NanoUsd((value * 1e9).round() as u64))
}

/// The message: the words, or standard input where there are none or only `-`.
/// `how` is the command that takes it, for the example.
pub(super) fn message(words: &[String], how: &str) -> Result<String, Failure> {
    let text = match words {
        [] => standard_input(how)?,
        [dash] if dash == "-" => standard_input(how)?,
        words => words.join(" "),
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("cli.no_message", "the message is empty")
            .hint(format_args!("{how} \"what is in this directory?\"")));
    }
    if text.len() > limits::MESSAGE_BYTES_MAX {
        return Err(Failure::usage(
            "cli.message_too_long",
            // Standard input is not read to its end, so its length is not known.
            format_args!(
                "the message has more than {} bytes, which is all that is taken",
                limits::MESSAGE_BYTES_MAX
            ),
        )
        .hint("put long material into a file of the workspace and name it in the message"));
    }
    Ok(text)
}

fn standard_input(how: &str) -> Result<String, Failure> {
    use std::io::IsTerminal as _;
    if std::io::stdin().is_terminal() {
        return Err(
            Failure::usage("cli.no_message", "there is no message").hint(format_args!(
                "{how} \"what is in this directory?\", or pipe the message in"
            )),
        );
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(limits::MESSAGE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            Failure::usage(
                "cli.stdin",
                format_args!("cannot read standard input: {error}"),
            )
            .hint(format_args!(
                "give the message as an argument: {how} \"...\", or pipe a file in: {how} < FILE"
            ))
        })?;
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage("cli.stdin", "standard input is not valid UTF-8").hint(format_args!(
            "pipe UTF-8 text in, or give it as an argument: {how} \"...\""
        ))
    })
}

/// What a new session is created with.
pub(super) fn created_with(
    title: Option<String>,
    workspace: Option<&PathBuf>,
) -> Result<SessionOptions, Failure> {
    let workspace = place::workspace(workspace.map(PathBuf::as_path))?;
    Ok(SessionOptions {
        metadata: std::collections::BTreeMap::new(),
        title,
        workspace: Some(workspace.to_string_lossy().into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_session_gets_the_file_functions_and_a_running_one_keeps_what_it_has() {
        let plain = Turn::default();
        let policy = plain.options(true).functions.expect("a policy");
        assert_eq!(policy.allow, DEFAULT_ALLOW);
        assert!(plain.options(false).functions.is_none());
        let narrow = Turn {
            deny: vec!["fs::write".to_owned()],
            ..Turn::default()
        };
        let policy = narrow.options(false).functions.expect("a policy");
        assert_eq!(
            (policy.allow, policy.deny),
            (
                DEFAULT_ALLOW.map(str::to_owned).to_vec(),
                vec!["fs::write".to_owned()]
            )
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_before_anything_is_sent() {
        for (text, is_model, is_glob, is_key) in [
            ("", false, false, false),
            ("nope", false, true, true),
            ("a/b", true, true, true),
            ("/b", false, true, true),
            ("a/", false, true, true),
            ("[", false, false, true),
            ("fs::*", false, true, true),
            ("{a,b", false, false, true),
        ] {
            assert_eq!(
                (model(text).is_ok(), glob(text).is_ok(), key(text).is_ok()),
                (is_model, is_glob, is_key),
                "{text:?}"
            );
        }
        assert!(key(&"k".repeat(limits::KEY_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn money_is_read_as_billionths() {
        assert_eq!(dollars("0.25"), Ok(NanoUsd(250_000_000)));
        assert_eq!(dollars("1"), Ok(NanoUsd(1_000_000_000)));
        for bad in ["", "x", "-1", "NaN", "inf", "1e12"] {
            assert!(dollars(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_make_one_message_and_none_is_refused() {
        let words = ["what".to_owned(), "now".to_owned()];
        assert_eq!(
            message(&words, "teamster run").expect("a message"),
            "what now"
        );
        assert_eq!(
            message(&[" ".to_owned()], "teamster run")
                .expect_err("empty")
                .code,
            "cli.no_message"
        );
        let long = "x".repeat(limits::MESSAGE_BYTES_MAX + 1);
        let failure = message(&[long], "teamster run").expect_err("too long");
        assert_eq!(failure.code, "cli.message_too_long");
        assert!(failure.message.contains("more than"), "{}", failure.message);
    }
}
