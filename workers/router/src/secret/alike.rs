//! What looks like a key in somebody else's words. Pure.
//!
//! Owns: which words of a provider's answer are hidden although nobody knows their secret: a provider may repeat a key that
//! is none of ours, such as one that a proxy put in. Words, model names, tool names, and ids of requests stay readable.
//!
//! Never: what a model said; only what is told about a request.

use super::MASK;

/// How keys begin that say whose they are.
const PREFIXES: &[&str] = &[
    "sk-",
    "pk-",
    "rk-",
    "sk_",
    "pk_",
    "rk_",
    "csk-",
    "gsk_",
    "xai-",
    "pplx-",
    "nvapi-",
    "fw_",
    "r8_",
    "hf_",
    "tgp_v1_",
    "AIza",
    "ya29.",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "npm_",
    "pypi-",
    "dop_v1_",
    "SG.",
    "eyJ",
];
/// Characters behind a prefix from which on it is a key.
const PREFIXED_MIN: usize = 6;
/// How ids begin that are told in order to be repeated to the provider's support.
const IDS: &[&str] = &[
    "req", "chatcmpl", "cmpl", "msg", "resp", "call", "toolu", "gen", "run", "trace", "org",
    "proj", "fp", "asst", "thread",
];
/// Words behind which, with a sign between, a key stands, whatever it looks like.
const LABELS: &[&str] = &[
    "api key",
    "api-key",
    "api_key",
    "apikey",
    "key provided",
    "access token",
    "access_token",
    "auth token",
    "secret",
    "password",
    "bearer",
    "basic",
    "authorization",
    "credential",
    "credentials",
];
/// Words behind which a key may stand: it must look like one.
const HINTS: &[&str] = &["key", "token"];
/// Characters of a key that a label announces.
const LABELLED_MIN: usize = 8;
/// Characters of a key that a word only hints at.
const HINTED_MIN: usize = 16;
/// Characters without a sign between of a key that nothing announces.
const OPAQUE_MIN: usize = 24;

/// `text` with `[redacted]` where a key seems to stand.
pub(super) fn mask(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(from) = rest.find(is_of_key) {
        let (before, word) = rest.split_at(from);
        shown.push_str(before);
        let key = key(&shown, word);
        if key.is_empty() {
            let (word, after) = split(word, |character| !is_of_key(character));
            shown.push_str(word);
            rest = after;
        } else {
            shown.push_str(MASK);
            rest = word.strip_prefix(key).unwrap_or_default();
        }
    }
    shown + rest
}

/// The key that `rest` begins with, behind what was shown; empty: none.
fn key<'a>(shown: &str, rest: &'a str) -> &'a str {
    let (wide, _) = split(rest, |character| {
        character.is_whitespace() || "\"'`,;()[]{}<>&|".contains(character)
    });
    let wide = wide.trim_end_matches(['.', ':', '!', '?']);
    if is_announced(shown, wide) {
        return wide;
    }
    let (word, _) = split(rest, |character| !is_of_key(character));
    let word = word.trim_end_matches(['.', '-', '_']);
    if !is_prefixed(word) && !is_half_hidden(word) && !is_opaque(word) {
        return "";
    }
    // The rest of a key in base 64 goes with it.
    let (whole, _) = split(rest, |character| {
        !is_of_key(character) && !"+/=".contains(character)
    });
    whole.trim_end_matches(['.', '-', '_'])
}

fn split(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

fn is_of_key(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.*~\u{2022}\u{2026}".contains(character)
}

/// Whether what stands before says that `word` is a key.
fn is_announced(shown: &str, word: &str) -> bool {
    let label = shown.trim_end_matches([' ', '\t', '"', '\'', '`', ':', '=', '\\']);
    let between = shown.get(label.len()..).unwrap_or_default();
    let before = teamster_protocol::text::tail(label, 24).to_ascii_lowercase();
    let ends = |words: &[&str]| {
        words.iter().any(|word| {
            before.strip_suffix(word).is_some_and(|lead| {
                !lead.ends_with(|character: char| character.is_ascii_alphanumeric())
            })
        })
    };
    // `Authorization: Bearer`, where no sign stands between.
    let has_sign = between.contains([':', '=', '"', '\'', '`']) || ends(&["bearer", "basic"]);
    let is_mixed = word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_scheme = ["bearer", "basic"].contains(&word.to_ascii_lowercase().as_str());
    let is_labelled = has_sign && word.len() >= LABELLED_MIN && ends(LABELS);
    let is_hinted = is_mixed && word.len() >= HINTED_MIN && (ends(HINTS) || ends(LABELS));
    !is_scheme && !word.starts_with("http") && (is_labelled || is_hinted)
}

fn is_prefixed(word: &str) -> bool {
    PREFIXES.iter().any(|prefix| {
        word.strip_prefix(prefix).is_some_and(|rest| {
            let is_short = rest.chars().count() < PREFIXED_MIN;
            // A word with hyphens is no key: keys have digits, capitals or what hides them.
            let is_key = |character: char| !character.is_ascii_lowercase() && character != '-';
            !is_short && (rest.contains(is_key) || rest.chars().count() >= HINTED_MIN)
        })
    })
}

/// Whether somebody has hidden the middle of it: `abcd****wxyz`.
fn is_half_hidden(word: &str) -> bool {
    let inner = word.trim_matches('*');
    inner.contains("***") || inner.contains("\u{2022}\u{2022}")
}

/// Whether it is no word of any language: long, without a sign, capitals, small letters and digits mixed.
fn is_opaque(word: &str) -> bool {
    let is_id = IDS.iter().any(|id| {
        word.strip_prefix(id)
            .is_some_and(|rest| rest.starts_with(['-', '_']))
    });
    let counts = |part: &str, is: fn(&u8) -> bool| part.bytes().filter(is).count() >= 3;
    !is_id
        && word.split(['-', '_', '.']).any(|part| {
            part.len() >= OPAQUE_MIN
                && counts(part, u8::is_ascii_digit)
                && counts(part, u8::is_ascii_uppercase)
                && counts(part, u8::is_ascii_lowercase)
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_looks_like_a_key_is_hidden() {
        for (text, shown) in [
            (
                "Incorrect API key provided: sk-abc123def456. You can find your API key at https://platform.openai.com/account/api-keys.",
                "Incorrect API key provided: [redacted]. You can find your API key at https://platform.openai.com/account/api-keys.",
            ),
            (
                "Incorrect API key provided: sk-proj-****wxyz.",
                "Incorrect API key provided: [redacted].",
            ),
            (
                "Incorrect API key provided: hunterhunter",
                "Incorrect API key provided: [redacted]",
            ),
            (
                "invalid x-api-key 'abc+def/ghi=='",
                "invalid x-api-key '[redacted]'",
            ),
            (
                "key sk-ant-api03-AbC_dEf-123 is revoked",
                "key [redacted] is revoked",
            ),
            (
                "Authorization: Bearer abc.def/ghi+jkl= was refused",
                "Authorization: Bearer [redacted] was refused",
            ),
            (
                "bad header `Authorization: Basic dXNlcjpwYXNz`",
                "bad header `Authorization: Basic [redacted]`",
            ),
            (
                "{\"api_key\":\"0123456789abcdef\"}",
                "{\"api_key\":\"[redacted]\"}",
            ),
            (
                "GET /v1?key=AIzaSyA1234567890abc&alt=sse",
                "GET /v1?key=[redacted]&alt=sse",
            ),
            (
                "the token eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.sig-_n expired",
                "the token [redacted] expired",
            ),
            ("gsk_A1b2C3d4 and hf_AbCdEfGh", "[redacted] and [redacted]"),
            ("no account for abcd****wxyz", "no account for [redacted]"),
            (
                "a1B2c3D4e5F6g7H8i9J0k1L2m3N4 is not known",
                "[redacted] is not known",
            ),
            (
                "key 0123456789abcdef0123 not found",
                "key [redacted] not found",
            ),
        ] {
            assert_eq!(mask(text), shown);
        }
    }

    #[test]
    fn what_helps_a_reader_stays() {
        for text in [
            "The model `Meta-Llama-3.1-405B-Instruct-Turbo` does not exist",
            "model claude-sonnet-4-5-20250929 is overloaded (request req_011CSHoEeqs5C35K2UUqR7Fy)",
            "chatcmpl-9A8b7C6d5E4f3G2h1I0jKlMnOpQrS failed",
            "request 6f1c7a52-0b1e-4a53-9f43-2f6d7f6f3a11, trace 4bf92f3577b34da6a3ce929d0e0e4736",
            "Unrecognized key: 'max_completion_tokens'",
            "unexpected token: 'identifier' at 12",
            "max tokens: 16384, context_length_exceeded: 131072 tokens",
            "Invalid schema for function 'mcp__crm__getCustomer2ByIdentifierLong'",
            "tools[0].function.parameters: JSON schema is invalid",
            "Your API key is not valid. Check your API key: it must be set.",
            "sk-learn and pk-values, risk-averse-people, task-oriented",
            "Authorization: Bearer is missing",
            "**important** ***note*** \u{2026} é你🦀",
            "set the key at https://example.org/settings/keys",
            "",
        ] {
            assert_eq!(mask(text), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_masking_twice_is_masking_once(text in "\\PC{0,120}") {
            let once = mask(&text);
            prop_assert_eq!(mask(&once), once);
        }

        #[test]
        fn a_key_of_a_known_kind_never_shows(key in "sk-[A-Za-z0-9]{4,8}[0-9][A-Za-z0-9]{12,30}", before in "[a-z ]{0,12}", quote in "[\"' (=:]", after in "[\"' ).,;]") {
            let shown = mask(&format!("{before}{quote}{key}{after} is wrong"));
            prop_assert!(!shown.contains(&key), "{}", shown);
            prop_assert!(shown.ends_with(" is wrong"), "{}", shown);
        }
    }
}
