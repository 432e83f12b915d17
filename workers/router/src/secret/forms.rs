//! The forms in which somebody else may repeat a secret. Pure.
//!
//! Owns: a secret as it is, as JSON and HTML write it, as an address carries it, as Base64 wraps it, and its beginning where a
//! server shows no more of it.
//!
//! Never: what only looks like a secret, which is [`super::alike`]'s.

use std::fmt::Write as _;

use data_encoding::{BASE64, BASE64URL_NOPAD};

/// Characters of a beginning from which on it is as bad as the whole, and the share of a secret that it is at least.
const BEGINNING_MIN: usize = 12;

/// Each form of a secret, the longest first, so that no rest of one is left.
pub(super) fn of(secret: &str) -> Vec<String> {
    let json = json(secret);
    let mut forms = vec![
        secret.to_owned(),
        json.replace('/', "\\/"),
        self::json(&json),
        json,
        html(secret),
        percent(secret, |byte| format!("%{byte:02X}")),
        percent(secret, |byte| format!("%{byte:02x}")),
        BASE64
            .encode(secret.as_bytes())
            .trim_end_matches('=')
            .to_owned(),
        BASE64URL_NOPAD.encode(secret.as_bytes()),
    ];
    forms.extend(beginning(secret));
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms.dedup();
    forms
}

/// A text as it stands within a JSON string.
fn json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let within = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    within.unwrap_or(text).to_owned()
}

fn html(secret: &str) -> String {
    secret
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn percent(secret: &str, escaped: impl Fn(u8) -> String) -> String {
    let mut text = String::with_capacity(secret.len());
    for byte in secret.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "{}", escaped(byte));
        }
    }
    text
}

/// Half of a long secret: what a server shows before dots.
fn beginning(secret: &str) -> Option<String> {
    let half = secret.chars().count() / 2;
    (half >= BEGINNING_MIN).then(|| secret.chars().take(half).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::SecretString;

    use crate::secret::scrub;

    const KEY: &str = "pass/word+with=\"quote\"&chars\\12345";

    #[test]
    fn a_secret_is_hidden_in_whatever_form_it_is_repeated() {
        let secret = SecretString::from(KEY);
        let json = serde_json::json!({"detail": {"a": [KEY]}}).to_string();
        for said in [
            KEY.to_owned(),
            json.clone(),
            json.replace('/', "\\/"),
            serde_json::json!({"body": json}).to_string(),
            "bad &lt; pass/word+with=&quot;quote&quot;&amp;chars\\12345".to_owned(),
            "key=pass%2Fword%2Bwith%3D%22quote%22%26chars%5C12345&x".to_owned(),
            "key=pass%2fword%2bwith%3d%22quote%22%26chars%5c12345&x".to_owned(),
            format!("Basic {}", data_encoding::BASE64.encode(KEY.as_bytes())),
            format!("{}...", KEY.chars().take(20).collect::<String>()),
        ] {
            let shown = scrub(&said, [&secret]);
            assert!(shown.contains("[redacted]"), "{said}: {shown}");
            for part in ["pass/word", "pass%2", "cGFzcy93b3Jk", "quote"] {
                assert!(!shown.contains(part), "{said}: {shown}");
            }
        }
    }

    proptest! {
        /// However a key is made, an error body that repeats it as JSON does not tell it.
        #[test]
        fn no_key_passes_as_json(key in "[!-~]{8,40}") {
            let secret = SecretString::from(key.clone());
            let shown = scrub(&serde_json::json!({"detail": [key]}).to_string(), [&secret]);
            prop_assert!(!shown.contains(&key), "{}", shown);
            prop_assert!(shown.contains("[redacted]"), "{}", shown);
        }
    }
}
