//! One chunk of an OpenAI-compatible answer, read with tolerance.
//!
//! Owns: the many shapes in which servers say the same thing, made one. Unknown fields are no error; what cannot be read is
//! absent, and where it would have been a part of the answer, it is told.
//!
//! Never: state between chunks.

use serde_json::Value;
use teamster_protocol::usage::Usage;

use crate::{halves, misfit};

/// What one chunk brings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chunk {
    /// An error that the provider reports after it began to answer.
    pub error: Option<InBand>,
    /// The tokens so far or in all.
    pub usage: Option<Usage>,
    /// Reasoning.
    pub thinking: String,
    /// Visible text.
    pub text: String,
    /// Whether the text is a refusal.
    pub is_refusal: bool,
    /// Pieces of calls.
    pub calls: Vec<CallPiece>,
    /// Why the model stopped, if it did.
    pub finish: Option<Finish>,
    /// Whether texts hold halves of characters, to be joined with their others.
    pub has_halves: bool,
    /// What cannot be read, and would have been a part of the answer.
    pub misfit: Option<String>,
}

/// A piece of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallPiece {
    /// The call's place, if the server counts.
    pub index: Option<u64>,
    /// The server's id of the call, if it names one.
    pub id: Option<String>,
    /// The tool's name.
    pub name: Option<String>,
    /// The next part of the argument text.
    pub arguments: String,
}

/// An error inside a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InBand {
    /// The HTTP status that it stands for, if it gives one.
    pub status: Option<u16>,
    /// The provider's own word, for example `overloaded_error`.
    pub code: String,
    /// The provider's text.
    pub message: String,
}

/// Why a model stopped, in the provider's words made one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It was done.
    End,
    /// It wants calls run.
    Call,
    /// It met its output limit.
    Length,
    /// A filter or a refusal.
    Refused,
    /// The provider failed.
    Error,
    /// The provider paused a long answer.
    Pause,
    /// A word that this build does not know.
    Unknown,
}

impl Chunk {
    /// Reads a chunk; `kind` is the type of the event that brought it. `None`: it is no JSON object.
    pub fn read(kind: &str, data: &str) -> Option<Self> {
        let read = |data: &str| serde_json::from_str::<Value>(data).ok();
        let (value, has_halves) = match read(data) {
            Some(value) => (value, false),
            None => (read(&halves::mark(data)?)?, true),
        };
        let mut chunk = value.is_object().then(|| Self::of(kind, &value))?;
        chunk.has_halves = has_halves;
        if has_halves {
            chunk.join_what_is_whole();
        }
        Some(chunk)
    }

    /// Joins the halves in texts that no other chunk continues.
    fn join_what_is_whole(&mut self) {
        let calls = self.calls.iter_mut();
        let names = calls.flat_map(|call| [&mut call.id, &mut call.name]);
        let error = self.error.iter_mut();
        let error = error.flat_map(|error| [&mut error.code, &mut error.message]);
        for text in names.flatten().chain(error) {
            halves::Joiner::default().join(text, true);
        }
    }

    /// Reads a parsed chunk or whole answer.
    pub fn of(kind: &str, value: &Value) -> Self {
        let mut chunk = Self {
            error: in_band(kind, value),
            usage: value.get("usage").and_then(usage),
            ..Self::default()
        };
        let choices = value.get("choices").and_then(Value::as_array);
        // One answer was asked for; further ones, and a chunk without any, bring nothing.
        let first = choices
            .into_iter()
            .flatten()
            .find(|choice| matches!(choice.get("index").and_then(Value::as_u64), None | Some(0)));
        if let Some(choice) = first {
            chunk.take_choice(choice);
        }
        // A provider that reports an error may say anything beside it.
        if chunk.error.is_none() {
            chunk.misfit = misfit::find(value);
        }
        chunk
    }

    fn take_choice(&mut self, choice: &Value) {
        if self.error.is_none() {
            self.error = in_band("", choice);
        }
        if self.usage.is_none() {
            self.usage = choice.get("usage").and_then(usage);
        }
        self.finish = choice
            .get("finish_reason")
            .and_then(Value::as_str)
            .and_then(Finish::of);
        let delta = ["delta", "message"]
            .iter()
            .find_map(|key| choice.get(key).filter(|value| value.is_object()));
        let Some(delta) = delta else {
            self.text = text(choice.get("text"));
            return;
        };
        self.text = text(delta.get("content"));
        let refusal = text(delta.get("refusal"));
        if !refusal.is_empty() {
            self.is_refusal = true;
            self.text.push_str(&refusal);
        }
        // Some servers send the same reasoning under both names.
        self.thinking = text(delta.get("reasoning_content"));
        if self.thinking.is_empty() {
            self.thinking = text(delta.get("reasoning"));
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array);
        self.calls = calls.into_iter().flatten().map(call_piece).collect();
        if let Some(legacy) = delta.get("function_call").filter(|value| value.is_object()) {
            self.calls.push(function_piece(legacy));
        }
    }
}

impl Finish {
    /// Reads a finish reason; the empty text is the same as none.
    pub fn of(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "" | "null" => return None,
            "stop" | "end_turn" | "stop_sequence" | "eos" | "eos_token" | "completed" => Self::End,
            "tool_calls" | "tool_use" | "function_call" => Self::Call,
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_length"
            | "model_context_window_exceeded" => Self::Length,
            "content_filter" | "refusal" | "safety" | "prohibited_content" | "recitation" => {
                Self::Refused
            }
            "error" => Self::Error,
            "pause_turn" | "pause" => Self::Pause,
            _ => Self::Unknown,
        })
    }
}

/// Text that is given as a string or as a list of text parts.
fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| {
                part.as_str()
                    .or_else(|| part.get("text").and_then(Value::as_str))
            })
            .collect(),
        _ => String::new(),
    }
}

fn call_piece(value: &Value) -> CallPiece {
    let function = value.get("function").unwrap_or(value);
    let id = value.get("id").and_then(|id| match id {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    });
    let index = value.get("index").and_then(|index| match index {
        Value::String(index) => index.parse().ok(),
        index => index.as_u64(),
    });
    CallPiece {
        index,
        id: id.filter(|id| !id.is_empty()),
        ..function_piece(function)
    }
}

fn function_piece(function: &Value) -> CallPiece {
    let name = function.get("name").and_then(Value::as_str);
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        _ => String::new(),
    };
    CallPiece {
        name: name.filter(|name| !name.is_empty()).map(str::to_owned),
        arguments,
        ..CallPiece::default()
    }
}

fn in_band(kind: &str, value: &Value) -> Option<InBand> {
    let error = match value.get("error") {
        Some(Value::String(message)) if !message.is_empty() => {
            return Some(InBand {
                status: value.get("code").and_then(status),
                code: String::new(),
                message: message.clone(),
            });
        }
        Some(error @ Value::Object(_)) => error,
        _ if kind == "error" || value.get("type").and_then(Value::as_str) == Some("error") => value,
        _ => return None,
    };
    let word = |key| error.get(key).and_then(Value::as_str).unwrap_or_default();
    let code = match (word("code"), word("type")) {
        ("", kind) => kind,
        (code, _) if code.parse::<u16>().is_ok() => word("type"),
        (code, _) => code,
    };
    let message = match word("message") {
        "" => word("detail"),
        message => message,
    };
    Some(InBand {
        status: ["code", "status", "status_code"]
            .iter()
            .find_map(|key| error.get(*key).and_then(status)),
        code: code.to_owned(),
        message: if message.is_empty() {
            error.to_string()
        } else {
            message.to_owned()
        },
    })
}

fn status(value: &Value) -> Option<u16> {
    let status = match value {
        Value::String(text) => text.parse().ok()?,
        value => u16::try_from(value.as_u64()?).ok()?,
    };
    (100..600).contains(&status).then_some(status)
}

/// More tokens than any model reads or writes in one request: a larger count counts nothing.
const TOKENS_MAX: u64 = 1_000_000_000;

/// Reads token counts into disjoint classes. Counts that cannot be are none, so that they are estimated.
fn usage(value: &Value) -> Option<Usage> {
    let number = |pointers: &[&str]| {
        pointers
            .iter()
            .find_map(|pointer| value.pointer(pointer).and_then(Value::as_u64))
    };
    let prompt = number(&["/prompt_tokens", "/input_tokens"]);
    let completion = number(&["/completion_tokens", "/output_tokens"]);
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let (mut prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    // Where the input is not called a prompt, these two stand beside it and are not part of it.
    let beside = ["/cache_read_input_tokens", "/cache_creation_input_tokens"];
    if value.get("prompt_tokens").is_none() && number(&beside).is_some() {
        let cached = beside.map(|pointer| number(&[pointer]).unwrap_or(0));
        prompt = cached.into_iter().fold(prompt, u64::saturating_add);
    }
    let cache_read = number(&[
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cache_read_input_tokens",
    ])
    .unwrap_or(0)
    .min(prompt);
    let cache_write = number(&[
        "/prompt_tokens_details/cache_write_tokens",
        "/cache_creation_input_tokens",
    ])
    .unwrap_or(0)
    .min(prompt - cache_read);
    let reasoning = number(&[
        "/completion_tokens_details/reasoning_tokens",
        "/output_tokens_details/reasoning_tokens",
    ])
    .unwrap_or(0);
    // Most count reasoning as part of the completion; where the total says otherwise, it stands beside it.
    let sum = prompt
        .checked_add(completion)
        .and_then(|sum| sum.checked_add(reasoning));
    let stands_beside =
        reasoning > 0 && (number(&["/total_tokens"]) == sum || reasoning > completion);
    let output = if stands_beside {
        completion
    } else {
        completion - reasoning
    };
    let input = prompt - cache_read - cache_write;
    let counts = [input, cache_read, cache_write, output, reasoning];
    counts
        .iter()
        .all(|count| *count <= TOKENS_MAX)
        .then_some(Usage {
            input,
            cache_read,
            cache_write,
            output,
            reasoning,
            estimated: false,
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(data: &str) -> Chunk {
        Chunk::read("", data).expect(data)
    }

    /// STREAM-3: a chunk without choices brings nothing, and its usage and error are read.
    #[test]
    fn stream_3_a_chunk_without_choices_is_read() {
        assert_eq!(read(r#"{"choices":[]}"#), Chunk::default());
        assert_eq!(read(r#"{"id":"x"}"#), Chunk::default());
        assert_eq!(
            read(r#"{"choices":null,"usage":null,"error":null}"#),
            Chunk::default()
        );
        let tail = read(r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#);
        assert_eq!(tail.usage.map(|usage| usage.total()), Some(7));
        let error = read(r#"{"error":{"code":502,"message":"x"},"choices":[]}"#).error;
        assert_eq!(
            error,
            Some(InBand {
                status: Some(502),
                code: String::new(),
                message: "x".to_owned()
            })
        );
    }

    #[test]
    fn halves_in_names_and_errors_are_joined() {
        let call = read(
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"a\udd80b","function":{"name":"c\udd80d"}}]}}]}"#,
        );
        let call = call.calls.first().expect("one");
        assert_eq!(call.id.as_deref(), Some("a\u{fffd}b"));
        assert_eq!(call.name.as_deref(), Some("c\u{fffd}d"));
        let error = read(r#"{"error":{"code":"x","message":"\udd80 \ud83e."}}"#).error;
        assert_eq!(error.expect("one").message, "\u{fffd} \u{fffd}.");
    }

    /// STREAM-6: the shapes of an error inside a stream.
    #[test]
    fn stream_6_errors_inside_a_stream_are_read() {
        for (kind, data, status, code, message) in [
            ("", r#"{"error":"boom"}"#, None, "", "boom"),
            (
                "",
                r#"{"error":{"code":"429","type":"rate_limit","message":"slow"}}"#,
                Some(429),
                "rate_limit",
                "slow",
            ),
            (
                "error",
                r#"{"type":"overloaded_error","message":"busy"}"#,
                None,
                "overloaded_error",
                "busy",
            ),
            (
                "",
                r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
                None,
                "overloaded_error",
                "busy",
            ),
            (
                "",
                r#"{"choices":[{"error":{"code":503,"message":"gone"},"finish_reason":"error"}]}"#,
                Some(503),
                "",
                "gone",
            ),
            (
                "",
                r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#,
                None,
                "insufficient_quota",
                "pay",
            ),
        ] {
            let error = Chunk::read(kind, data).expect(data).error.expect(data);
            assert_eq!(
                (error.status, error.code.as_str(), error.message.as_str()),
                (status, code, message),
                "{data}"
            );
        }
        assert_eq!(read(r#"{"error":"","choices":[]}"#).error, None);
    }

    /// STREAM-5, STREAM-7: the words for an end, and the empty one that is none.
    #[test]
    fn stream_5_finish_reasons_are_mapped() {
        for (word, want) in [
            ("", None),
            ("stop", Some(Finish::End)),
            ("tool_calls", Some(Finish::Call)),
            ("length", Some(Finish::Length)),
            ("MAX_TOKENS", Some(Finish::Length)),
            ("content_filter", Some(Finish::Refused)),
            ("refusal", Some(Finish::Refused)),
            ("pause_turn", Some(Finish::Pause)),
            ("error", Some(Finish::Error)),
            ("novelty", Some(Finish::Unknown)),
        ] {
            let data = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{word}"}}]}}"#);
            assert_eq!(read(&data).finish, want, "{word}");
        }
        assert_eq!(
            read(r#"{"choices":[{"delta":{},"finish_reason":null}]}"#).finish,
            None
        );
    }

    #[test]
    fn cost_1_usage_comes_in_disjoint_classes() {
        let of = |data: &str| usage(&serde_json::from_str(data).expect("JSON"));
        for impossible in [
            r#"{"prompt_tokens":18446744073709551615,"completion_tokens":1}"#,
            r#"{"prompt_tokens":1,"completion_tokens":1000000001}"#,
            r#"{"input_tokens":1,"cache_read_input_tokens":9999999999}"#,
            r#"{"prompt_tokens":1,"completion_tokens":1,"completion_tokens_details":{"reasoning_tokens":18446744073709551615}}"#,
        ] {
            assert_eq!(of(impossible), None, "{impossible}");
        }
        let classes = |data: &str| {
            let usage = of(data).expect(data);
            [
                usage.input,
                usage.cache_read,
                usage.cache_write,
                usage.output,
                usage.reasoning,
            ]
        };
        assert_eq!(
            classes(
                r#"{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":20}}"#
            ),
            [40, 60, 0, 30, 20]
        );
        // Reasoning beside the completion.
        assert_eq!(
            classes(
                r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":35,"completion_tokens_details":{"reasoning_tokens":20}}"#
            ),
            [10, 0, 0, 5, 20]
        );
        assert_eq!(
            classes(r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4}"#),
            [6, 4, 0, 5, 0]
        );
        assert_eq!(
            classes(r#"{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":99}}"#),
            [0, 10, 0, 0, 0]
        );
        // Cached tokens beside the input, and as a part of the prompt.
        assert_eq!(
            classes(
                r#"{"input_tokens":3,"cache_creation_input_tokens":12304,"cache_read_input_tokens":7,"output_tokens":550}"#
            ),
            [3, 7, 12304, 550, 0]
        );
        assert_eq!(
            classes(
                r#"{"prompt_tokens":12314,"cache_creation_input_tokens":12304,"cache_read_input_tokens":7,"completion_tokens":550}"#
            ),
            [3, 7, 12304, 550, 0]
        );
        assert_eq!(of("null"), None);
        assert_eq!(of("{}"), None);
    }

    #[test]
    fn text_and_reasoning_come_in_several_shapes() {
        let chunk = read(
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},"b"],"reasoning_content":"t","reasoning":"t"}}]}"#,
        );
        assert_eq!((chunk.text.as_str(), chunk.thinking.as_str()), ("ab", "t"));
        let whole = read(
            r#"{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}"#,
        );
        assert!(whole.is_refusal && whole.text == "no");
        let second = read(r#"{"choices":[{"index":1,"delta":{"content":"x"}}]}"#);
        assert_eq!(second, Chunk::default());
        let object = read(
            r#"{"choices":[{"delta":{"tool_calls":[{"index":"1","id":7,"function":{"name":"f","arguments":{"a":1}}}]}}]}"#,
        );
        assert_eq!(
            object.calls,
            [CallPiece {
                index: Some(1),
                id: Some("7".to_owned()),
                name: Some("f".to_owned()),
                arguments: r#"{"a":1}"#.to_owned()
            }]
        );
    }

    proptest! {
        /// COST-1: however a server states it, each token is counted in one class.
        #[test]
        fn cost_1_no_token_is_counted_twice(input in 0_u64..1 << 27, read in 0_u64..1 << 27, write in 0_u64..1 << 27, output in 0_u64..1 << 27, reasoning in 0_u64..1 << 27) {
            let prompt = input + read + write;
            let inside = serde_json::json!({
                "prompt_tokens": prompt, "completion_tokens": output + reasoning, "total_tokens": prompt + output + reasoning,
                "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
                "completion_tokens_details": {"reasoning_tokens": reasoning},
            });
            let beside = serde_json::json!({
                "input_tokens": input, "output_tokens": output + reasoning,
                "cache_read_input_tokens": read, "cache_creation_input_tokens": write,
                "output_tokens_details": {"reasoning_tokens": reasoning},
            });
            for stated in [inside, beside] {
                let usage = usage(&stated).expect("stated");
                prop_assert_eq!((usage.input, usage.cache_read, usage.cache_write), (input, read, write));
                prop_assert_eq!(usage.total(), prompt + output + reasoning);
            }
        }

        #[test]
        fn no_json_panics(text in r#"\{"(choices|error|usage|type)":(\[\{"(delta|message|error|index)":(\{\}|null|1|"x"|\[\])\}\]|\{"(code|message|prompt_tokens|completion_tokens)":(1|99999999999999999999|-1|null|"5")\}|null|3|"error")\}"#) {
            let _ = Chunk::read("", &text);
            let _ = Chunk::read("error", &text);
        }
    }
}
