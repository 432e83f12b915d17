//! From a transcript to the body of a provider's request. Pure.
//!
//! Owns: the OpenAI form of messages and tools. Invariants: every call has exactly one result, right behind it; ids on the
//! wire are unique; no text is empty; arguments are valid JSON objects. A damaged history never makes a request invalid.
//!
//! Never: a decision about what of the history is sent, I/O.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Serialize, de::IgnoredAny};
use serde_json::{Value, json};
use teamster_protocol::{
    CallId, Message,
    function::router::{ChatRequest, Tool},
    limits,
    message::{Content, WireCall},
    text,
};

use crate::config::OutputLimit;

pub mod schema;

/// What stands for a result that the history lacks.
const INTERRUPTED: &str = "interrupted, outcome unknown";
/// What stands for an empty result.
const NO_OUTPUT: &str = "(no output)";
/// Bytes of malformed arguments that the model sees again.
const RAW_BYTES_MAX: usize = 4096;

/// A request's body with what is needed to make sense of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The JSON text.
    pub json: Vec<u8>,
    /// The names of the tools that it offers, in order.
    pub tools: Vec<String>,
    /// Tools that could not be offered, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
}

#[derive(Serialize)]
struct Wire<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    stream: bool,
    stream_options: Value,
}

#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireToolCall<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: &'a str,
    },
}

#[derive(Debug, Serialize)]
struct WireToolCall<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Debug, Serialize)]
struct WireFunction<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

/// The body for `request`, for the model that the provider calls `model`, without the tools that `is_out` names.
/// `output_max` is what the model can produce, if known.
pub fn body(
    request: &ChatRequest,
    model: &str,
    output_limit: OutputLimit,
    output_max: Option<u64>,
    is_out: impl Fn(&Tool) -> bool,
) -> Result<Body, serde_json::Error> {
    let (tools, left_out) = tools(&request.tools, is_out);
    let limit = request
        .max_output_tokens
        .map(|limit| limit.min(output_max.unwrap_or(u64::MAX)));
    let (max_tokens, max_completion_tokens) = match output_limit {
        OutputLimit::MaxTokens => (limit, None),
        OutputLimit::MaxCompletionTokens => (None, limit),
    };
    let names = tools.iter().map(|(name, _)| name.clone()).collect();
    let wire = Wire {
        model,
        messages: messages(request.system_prompt.as_deref(), &request.messages),
        tools: tools.into_iter().map(|(_, tool)| tool).collect(),
        max_tokens,
        max_completion_tokens,
        stream: true,
        stream_options: json!({"include_usage": true}),
    };
    Ok(Body {
        json: serde_json::to_vec(&wire)?,
        tools: names,
        left_out,
    })
}

type Offered = Vec<(String, Value)>;
type LeftOut = Vec<(String, &'static str)>;

fn tools(tools: &[Tool], is_out: impl Fn(&Tool) -> bool) -> (Offered, LeftOut) {
    let (mut offered, mut left_out) = (Offered::new(), LeftOut::new());
    for tool in tools {
        let name = wire_name(&tool.name).into_owned();
        if is_out(tool) {
            left_out.push((name, "the provider refused it before"));
        } else if offered.iter().any(|(other, _)| *other == name) {
            left_out.push((name, "another tool has this name"));
        } else {
            match schema::project(&tool.parameters) {
                Ok(parameters) => {
                    let function = json!({"name": name, "description": tool.description, "parameters": parameters});
                    offered.push((name, json!({"type": "function", "function": function})));
                }
                Err(reason) => left_out.push((name, reason)),
            }
        }
    }
    (offered, left_out)
}

fn messages<'a>(
    system_prompt: Option<&'a str>,
    transcript: &'a [Arc<Message>],
) -> Vec<WireMessage<'a>> {
    let mut repair = Repair::of(transcript);
    let mut wire = Vec::with_capacity(transcript.len() + 1);
    if let Some(content) = system_prompt.filter(|prompt| !prompt.trim().is_empty()) {
        wire.push(WireMessage::System { content });
    }
    for message in transcript {
        match message.as_ref() {
            // Notes of whoever owns the session are not for models.
            Message::Custom { .. } => {}
            Message::User { text, .. } | Message::Notice { text, .. } => {
                push_user(&mut wire, Cow::Borrowed(text));
            }
            Message::Assistant { content, .. } => push_assistant(&mut wire, content, &mut repair),
            // With its call, if the call is there; what lost its call is told in words, since it may have been an effect.
            Message::FunctionResult {
                call,
                function,
                text,
                ..
            } => {
                if !repair.is_called(call) {
                    let name = function
                        .as_ref()
                        .map_or("a function", |function| function.as_str());
                    push_user(
                        &mut wire,
                        Cow::Owned(format!("[earlier result of {name}]\n{}", result_text(text))),
                    );
                }
            }
        }
    }
    wire
}

/// Adds a user's text. Neighbours become one message: some chat templates demand that the roles alternate.
fn push_user<'a>(wire: &mut Vec<WireMessage<'a>>, text: Cow<'a, str>) {
    if text.trim().is_empty() {
        return;
    }
    if let Some(WireMessage::User { content }) = wire.last_mut() {
        let content = content.to_mut();
        content.push_str("\n\n");
        content.push_str(&text);
    } else {
        wire.push(WireMessage::User { content: text });
    }
}

fn push_assistant<'a>(
    wire: &mut Vec<WireMessage<'a>>,
    content: &'a [Content],
    repair: &mut Repair<'a>,
) {
    let mut said: Option<Cow<'a, str>> = None;
    let (mut tool_calls, mut results) = (Vec::new(), Vec::new());
    for part in content {
        match part {
            Content::Text { text } if text.is_empty() => {}
            Content::Text { text } => match &mut said {
                Some(said) => said.to_mut().push_str(text),
                None => said = Some(Cow::Borrowed(text)),
            },
            // Chat completions take no reasoning back.
            Content::Thinking { .. } => {}
            Content::Call(call) => {
                let (id, result) = repair.take(&call.call);
                results.push(WireMessage::Tool {
                    tool_call_id: id.clone(),
                    content: result,
                });
                tool_calls.push(tool_call(call, id));
            }
        }
    }
    let said = said.filter(|said| !said.trim().is_empty());
    if said.is_some() || !tool_calls.is_empty() {
        wire.push(WireMessage::Assistant {
            content: said,
            tool_calls,
        });
        wire.append(&mut results);
    }
}

fn tool_call<'a>(call: &'a WireCall, id: Cow<'a, str>) -> WireToolCall<'a> {
    WireToolCall {
        id,
        r#type: "function",
        function: WireFunction {
            name: wire_name(&call.name),
            arguments: arguments(&call.arguments),
        },
    }
}

/// The results of a transcript by call, and which calls were met.
struct Repair<'a> {
    results: BTreeMap<&'a CallId, VecDeque<&'a str>>,
    called: BTreeMap<&'a CallId, u32>,
    uses: BTreeMap<&'a CallId, u32>,
}

impl<'a> Repair<'a> {
    fn of(transcript: &'a [Arc<Message>]) -> Self {
        let mut repair = Self {
            results: BTreeMap::new(),
            called: BTreeMap::new(),
            uses: BTreeMap::new(),
        };
        for message in transcript {
            match message.as_ref() {
                Message::FunctionResult { call, text, .. } => {
                    repair
                        .results
                        .entry(call)
                        .or_default()
                        .push_back(result_text(text));
                }
                Message::Assistant { content, .. } => {
                    for part in content {
                        if let Content::Call(WireCall { call, .. }) = part {
                            *repair.called.entry(call).or_default() += 1;
                        }
                    }
                }
                Message::User { .. } | Message::Notice { .. } | Message::Custom { .. } => {}
            }
        }
        repair
    }

    fn is_called(&self, call: &CallId) -> bool {
        self.called.contains_key(call)
    }

    /// The wire id and the result of the next use of a call id. Later uses get a suffix.
    fn take(&mut self, call: &'a CallId) -> (Cow<'a, str>, &'a str) {
        let uses = self.uses.entry(call).or_default();
        *uses += 1;
        let id = match *uses {
            1 => Cow::Borrowed(call.as_str()),
            n => Cow::Owned(format!("{call}_{n}")),
        };
        let result = self.results.get_mut(call).and_then(VecDeque::pop_front);
        (id, result.unwrap_or(INTERRUPTED))
    }
}

fn result_text(text: &str) -> &str {
    if text.trim().is_empty() {
        NO_OUTPUT
    } else {
        text
    }
}

/// Argument text that a strict server takes: as it is where it is one JSON object, else an object that holds it.
fn arguments(raw: &str) -> Cow<'_, str> {
    if raw.trim().is_empty() {
        Cow::Borrowed("{}")
    } else if is_object(raw) {
        Cow::Borrowed(raw)
    } else {
        Cow::Owned(json!({"_raw": text::cut(raw, RAW_BYTES_MAX)}).to_string())
    }
}

/// Whether a text is one JSON object. Nothing is built of it: a request holds the arguments of a whole history.
fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// A name of the allowed alphabet and length. Names that were offered are such names already; a model may invent others.
fn wire_name(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= limits::WIRE_NAME_CHARS_MAX && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let name: String = name
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .take(limits::WIRE_NAME_CHARS_MAX)
        .collect();
    Cow::Owned(if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    })
}

#[cfg(test)]
mod tests;
