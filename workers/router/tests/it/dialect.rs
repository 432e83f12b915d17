//! Streams in the manner of the servers that speak this wire, written down as they send them.

use teamster_protocol::{
    function::router::{Completion, Part},
    message::StopReason,
    usage::Usage,
};

/// A recording and what it comes to.
pub(crate) struct Dialect {
    pub(crate) name: &'static str,
    pub(crate) stream: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
}

impl Dialect {
    pub(crate) fn assert_whole(&self, completion: &Completion, how: &str) {
        let name = self.name;
        assert_eq!(completion.parts, self.parts, "{name}, {how}");
        assert_eq!(completion.stop, self.stop, "{name}, {how}");
        assert_eq!(completion.usage, self.usage, "{name}, {how}");
        assert_eq!(completion.error, None, "{name}, {how}");
    }
}

pub(crate) fn all() -> Vec<Dialect> {
    vec![openai(), openrouter(), ollama(), vllm(), llamacpp()]
}

fn events(data: &[&str]) -> String {
    data.iter().fold(String::new(), |stream, data| {
        stream + "data: " + data + "\n\n"
    })
}

fn text(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
    }
}

fn call(name: &str, arguments: &str) -> Part {
    Part::Call {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }
}

/// The id and the name once, then arguments in pieces, two calls at two places; usage in a chunk without choices.
fn openai() -> Dialect {
    let chunk =
        |rest: &str| format!(r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk",{rest}}}"#);
    let delta = |delta: &str| {
        chunk(&format!(
            r#""choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}],"usage":null,"obfuscation":"a8Kq""#
        ))
    };
    let data = [
        delta(r#"{"role":"assistant","content":"","refusal":null}"#),
        delta(r#"{"content":"é你🦀"}"#),
        delta(r#"{"content":" \ud83e\udd80\n"}"#),
        delta(
            r#"{"tool_calls":[{"index":0,"id":"call_A","type":"function","function":{"name":"fs__read","arguments":""}}]}"#,
        ),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"c\":"}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"杭\"}"}}]}"#),
        delta(
            r#"{"tool_calls":[{"index":1,"id":"call_B","type":"function","function":{"name":"fs__list","arguments":"{}"}}]}"#,
        ),
        chunk(r#""choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":null"#),
        chunk(
            r#""choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20}}"#,
        ),
        "[DONE]".to_owned(),
    ];
    let data: Vec<&str> = data.iter().map(String::as_str).collect();
    Dialect {
        name: "openai",
        stream: events(&data),
        parts: vec![
            text("é你🦀 🦀\n"),
            call("fs__read", r#"{"c":"杭"}"#),
            call("fs__list", "{}"),
        ],
        stop: StopReason::Call,
        usage: Usage {
            input: 36,
            cache_read: 64,
            output: 30,
            reasoning: 20,
            ..Usage::default()
        },
    }
}

/// Comments while it queues, reasoning in its own field, the finish reason under two names, usage with the last choice.
fn openrouter() -> Dialect {
    let stream = [
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
        r#"data: {"id":"gen-1","provider":"Anthropic","model":"anthropic/claude-sonnet-4.5","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Let me ","reasoning_details":[{"type":"reasoning.text","text":"Let me "}]},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}"#,
        "\n\n: OPENROUTER PROCESSING\n\n",
        r#"data: {"id":"gen-1","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"see."},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"id":"gen-1","choices":[{"index":0,"delta":{"role":"assistant","content":"Grüße"},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"id":"gen-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop","native_finish_reason":"end_turn"}]}"#,
        "\n\n",
        r#"data: {"id":"gen-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21,"cost":0.0001,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":4}}}"#,
        "\n\ndata: [DONE]\n\n",
    ];
    Dialect {
        name: "openrouter",
        stream: stream.concat(),
        parts: vec![
            Part::Thinking {
                text: "Let me see.".to_owned(),
                signature: None,
            },
            text("Grüße"),
        ],
        stop: StopReason::End,
        usage: Usage {
            input: 12,
            output: 5,
            reasoning: 4,
            ..Usage::default()
        },
    }
}

/// Every call whole, all of them at place 0, the finish reason `stop` or `tool_calls`.
fn ollama() -> Dialect {
    let data = [
        r#"{"id":"chatcmpl-7","object":"chat.completion.chunk","model":"qwen3:8b","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_x1","index":0,"type":"function","function":{"name":"fs__read","arguments":"{\"path\":\"a\"}"}}]},"finish_reason":null}]}"#,
        r#"{"id":"chatcmpl-7","object":"chat.completion.chunk","model":"qwen3:8b","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_x2","index":0,"type":"function","function":{"name":"fs__read","arguments":"{\"path\":\"b\"}"}}]},"finish_reason":null}]}"#,
        r#"{"id":"chatcmpl-7","object":"chat.completion.chunk","model":"qwen3:8b","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"tool_calls"}]}"#,
        r#"{"id":"chatcmpl-7","object":"chat.completion.chunk","model":"qwen3:8b","system_fingerprint":"fp_ollama","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":8,"total_tokens":38}}"#,
        "[DONE]",
    ];
    Dialect {
        name: "ollama",
        stream: events(&data),
        parts: vec![
            call("fs__read", r#"{"path":"a"}"#),
            call("fs__read", r#"{"path":"b"}"#),
        ],
        stop: StopReason::Call,
        usage: Usage {
            input: 30,
            output: 8,
            ..Usage::default()
        },
    }
}

/// CRLF line ends, `reasoning_content`, usage in every chunk, empty finish reasons, `stop_reason` beside.
fn vllm() -> Dialect {
    let stream = [
        r#"data: {"id":"chatcmpl-v","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":20,"total_tokens":20,"completion_tokens":0}}"#,
        r#"data: {"id":"chatcmpl-v","choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":""}],"usage":{"prompt_tokens":20,"total_tokens":21,"completion_tokens":1}}"#,
        r#"data: {"id":"chatcmpl-v","choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-1","type":"function","index":0,"function":{"name":"fs__grep","arguments":""}}]},"finish_reason":""}]}"#,
        r#"data: {"id":"chatcmpl-v","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"pattern\": \"日本\"}"}}]},"finish_reason":""}]}"#,
        r#"data: {"id":"chatcmpl-v","choices":[{"index":0,"delta":{"content":""},"finish_reason":"tool_calls","stop_reason":null}],"usage":{"prompt_tokens":20,"total_tokens":29,"completion_tokens":9}}"#,
        "data: [DONE]",
    ];
    Dialect {
        name: "vllm",
        stream: stream.map(|line| format!("{line}\r\n\r\n")).concat(),
        parts: vec![
            Part::Thinking {
                text: "hm".to_owned(),
                signature: None,
            },
            call("fs__grep", r#"{"pattern": "日本"}"#),
        ],
        stop: StopReason::Call,
        usage: Usage {
            input: 20,
            output: 9,
            ..Usage::default()
        },
    }
}

/// A first chunk without content, `null` content, timings beside usage.
fn llamacpp() -> Dialect {
    let data = [
        r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"c","model":"m","object":"chat.completion.chunk"}"#,
        r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hello"}}],"id":"c"}"#,
        r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" 👋🏽"}}],"id":"c"}"#,
        r#"{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"id":"c"}"#,
        r#"{"choices":[],"id":"c","usage":{"completion_tokens":3,"prompt_tokens":11,"total_tokens":14},"timings":{"prompt_n":11,"predicted_n":3}}"#,
        "[DONE]",
    ];
    Dialect {
        name: "llamacpp",
        stream: events(&data),
        parts: vec![text("Hello 👋🏽")],
        stop: StopReason::Length,
        usage: Usage {
            input: 11,
            output: 3,
            ..Usage::default()
        },
    }
}
