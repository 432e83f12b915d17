//! What kind of failure a provider's answer is. Pure.
//!
//! Owns: the one table from HTTP statuses and providers' codes to [`ErrorKind`]. The status decides first; words decide only
//! where a status says too little (a 400, a 429, an error inside a stream without a code).
//!
//! Never: whether to try again; see `retry`.

use serde_json::Value;
use teamster_protocol::{
    function::router::{CompletionError, ErrorKind},
    limits, text,
};

use crate::chunk::{Chunk, InBand};

/// Words of an account without money. They are final whatever the status is.
const QUOTA: &[&str] = &[
    "insufficient_quota",
    "insufficient quota",
    "billing",
    "exceeded your current quota",
    "insufficient credit",
    "insufficient_credit",
    "credit balance",
    "payment required",
    "out of credits",
];
/// Words of a request that is larger than the model's window.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "context length",
    "context window",
    "maximum context",
    "context size",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "exceed_context_size",
];
/// Words of an overloaded server.
const TRANSIENT: &[&str] = &[
    "overloaded",
    "server_error",
    "api_error",
    "timeout",
    "unavailable",
    "internal_error",
];

/// Bytes that are shown of what was found instead of an answer.
const MALFORMED_BYTES_MAX: usize = 400;

/// The kind of an answer with an error status.
pub fn status(status: u16, code: &str, message: &str) -> ErrorKind {
    let has = |words: &[&str]| has(code, message, words);
    match status {
        402 => ErrorKind::Quota,
        500..=599 if !matches!(status, 501 | 505) => ErrorKind::Transient,
        408 | 409 | 425 => ErrorKind::Transient,
        429 if has(QUOTA) => ErrorKind::Quota,
        429 => ErrorKind::RateLimited,
        413 => ErrorKind::ContextOverflow,
        400 | 422 if has(OVERFLOW) => ErrorKind::ContextOverflow,
        400 | 403 | 422 if has(QUOTA) => ErrorKind::Quota,
        401 | 403 => ErrorKind::Auth,
        _ => ErrorKind::Rejected,
    }
}

/// The kind of an error inside a stream: by its status, else by its code, else transient, since the request itself had
/// been accepted.
pub fn in_band(error: &InBand) -> ErrorKind {
    if let Some(code) = error.status.filter(|code| *code >= 400) {
        return status(code, &error.code, &error.message);
    }
    let is = |words: &[&str]| {
        words
            .iter()
            .any(|word| error.code.eq_ignore_ascii_case(word) || error.code.contains(word))
    };
    if is(TRANSIENT) {
        ErrorKind::Transient
    } else if has(&error.code, &error.message, QUOTA) {
        ErrorKind::Quota
    } else if is(&["rate_limit"]) {
        ErrorKind::RateLimited
    } else if is(&["authentication", "permission", "invalid_api_key"]) {
        ErrorKind::Auth
    } else if has(&error.code, &error.message, OVERFLOW) {
        ErrorKind::ContextOverflow
    } else if is(&[
        "invalid_request",
        "not_found",
        "content_policy",
        "invalid_prompt",
    ]) {
        ErrorKind::Rejected
    } else {
        ErrorKind::Transient
    }
}

/// An error with the text cut and the next step named.
pub fn error(kind: ErrorKind, message: &str, provider: &str, model: &str) -> CompletionError {
    let message = if message.trim().is_empty() {
        "the provider gave no reason"
    } else {
        message.trim()
    };
    let hint = match kind {
        ErrorKind::Auth => Some(format!("check the key of the provider {provider}")),
        ErrorKind::Quota => Some(format!(
            "check plan and credit of the account at {provider}"
        )),
        ErrorKind::ContextOverflow => {
            Some("start a new session, or choose a model with a larger window".to_owned())
        }
        ErrorKind::RateLimited => Some("wait, then send again".to_owned()),
        ErrorKind::Rejected => Some(format!(
            "check that {provider} has the model {model} and that it takes functions"
        )),
        ErrorKind::Transient | ErrorKind::NotConfigured | ErrorKind::ContextTruncated => None,
    };
    CompletionError {
        kind,
        message: text::cut(message, limits::FAULT_TEXT_BYTES_MAX),
        hint,
    }
}

/// An answer that cannot be read; `what` names the place. It may be another one at the next attempt.
pub fn malformed(what: &str, provider: &str) -> CompletionError {
    CompletionError {
        kind: ErrorKind::Transient,
        message: format!(
            "the stream of {provider} cannot be read: {}",
            text::cut(what, MALFORMED_BYTES_MAX)
        ),
        hint: Some(format!(
            "check that the `base_url` of {provider} is that of an OpenAI-compatible API, and what stands between"
        )),
    }
}

/// Reads the body of an answer with an error status.
pub fn body(bytes: &[u8]) -> InBand {
    let text = String::from_utf8_lossy(bytes);
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        return InBand {
            message: text.trim().to_owned(),
            ..InBand::default()
        };
    };
    // Some servers answer with a list that holds one object, or put the text beside instead of under `error`.
    let value = match value {
        Value::Array(mut items) if !items.is_empty() => items.swap_remove(0),
        value => value,
    };
    Chunk::of("error", &value).error.unwrap_or_else(|| InBand {
        message: text.trim().to_owned(),
        ..InBand::default()
    })
}

/// The offered tool whose schema or name a provider refused, if the message tells.
pub fn refused_tool<'a>(
    status: u16,
    message: &str,
    tools: &(impl ExactSizeIterator<Item = &'a str> + Clone),
) -> Option<usize> {
    if !matches!(status, 400 | 422)
        || !["tool", "function", "schema"]
            .iter()
            .any(|word| message.to_ascii_lowercase().contains(word))
    {
        return None;
    }
    let named = |name: &str| {
        ['\'', '"', '`']
            .iter()
            .any(|quote| message.contains(&format!("{quote}{name}{quote}")))
    };
    if let Some(place) = tools.clone().position(named) {
        return Some(place);
    }
    let count = tools.len();
    ["tools[", "tools.", "functions[", "functions.", "tool "]
        .iter()
        .find_map(|lead| {
            let (_, rest) = message.split_once(lead)?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok().filter(|place| *place < count)
        })
}

fn has(code: &str, message: &str, words: &[&str]) -> bool {
    let (code, message) = (code.to_ascii_lowercase(), message.to_ascii_lowercase());
    words
        .iter()
        .any(|word| code.contains(word) || message.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_2_the_status_decides_first() {
        for (code, message, want) in [
            (408, "", ErrorKind::Transient),
            (409, "", ErrorKind::Transient),
            (429, "slow down", ErrorKind::RateLimited),
            (429, "insufficient_quota", ErrorKind::Quota),
            (
                429,
                "You exceeded your current quota, please check your plan and billing details.",
                ErrorKind::Quota,
            ),
            (500, "billing service is down", ErrorKind::Transient),
            (503, "", ErrorKind::Transient),
            (529, "overloaded", ErrorKind::Transient),
            (402, "", ErrorKind::Quota),
            (401, "rate limit of your key", ErrorKind::Auth),
            (403, "", ErrorKind::Auth),
            (404, "no such model", ErrorKind::Rejected),
            (413, "", ErrorKind::ContextOverflow),
            (
                400,
                "This model's maximum context length is 8192 tokens",
                ErrorKind::ContextOverflow,
            ),
            (400, "bad schema", ErrorKind::Rejected),
            (307, "", ErrorKind::Rejected),
        ] {
            assert_eq!(status(code, "", message), want, "{code} {message}");
        }
    }

    #[test]
    fn stream_6_an_error_inside_a_stream_is_classed_like_a_status() {
        let of = |status, code: &str, message: &str| {
            in_band(&InBand {
                status,
                code: code.to_owned(),
                message: message.to_owned(),
            })
        };
        assert_eq!(of(Some(502), "", "x"), ErrorKind::Transient);
        assert_eq!(of(Some(429), "", "x"), ErrorKind::RateLimited);
        assert_eq!(of(None, "overloaded_error", "x"), ErrorKind::Transient);
        assert_eq!(of(None, "rate_limit_exceeded", "x"), ErrorKind::RateLimited);
        assert_eq!(of(None, "insufficient_quota", "x"), ErrorKind::Quota);
        assert_eq!(of(None, "invalid_request_error", "x"), ErrorKind::Rejected);
        assert_eq!(
            of(None, "context_length_exceeded", "x"),
            ErrorKind::ContextOverflow
        );
        assert_eq!(of(None, "", "upstream closed"), ErrorKind::Transient);
    }

    #[test]
    fn bodies_of_errors_are_read_in_their_shapes() {
        for (text, want) in [
            (r#"{"error":{"message":"m","type":"t"}}"#, "m"),
            (r#"{"error":"m"}"#, "m"),
            (r#"[{"error":{"message":"m"}}]"#, "m"),
            (r#"{"message":"m","object":"error"}"#, "m"),
            (r#"{"detail":"m"}"#, "m"),
            ("<html>m</html>", "<html>m</html>"),
            ("", ""),
        ] {
            assert_eq!(body(text.as_bytes()).message, want, "{text}");
        }
    }

    #[test]
    fn hist_6_the_refused_tool_is_found() {
        let tools = ["fs__read", "mcp__a", "mcp__b"];
        let of = |status, message| refused_tool(status, message, &tools.iter().copied());
        assert_eq!(
            of(
                400,
                "Invalid schema for function 'mcp__b': schema must be of type object"
            ),
            Some(2)
        );
        assert_eq!(
            of(400, "tools.1.custom.input_schema: JSON schema is invalid"),
            Some(1)
        );
        assert_eq!(
            of(400, "Invalid value for 'tools[2].function.parameters'"),
            Some(2)
        );
        assert_eq!(of(400, "tools[9] is invalid"), None);
        assert_eq!(of(400, "messages are too long"), None);
        assert_eq!(of(500, "tools[1] is invalid"), None);
    }
}
