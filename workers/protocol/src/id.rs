//! Identifiers: newtypes whose text form is checked once, when they are made.
//!
//! Ids that the turn machine makes are `UUIDv7` values whose random part is a digest of what they name, so that the same
//! facts give the same id on every replay.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{digest::Digest, limits, subject};

/// A text that cannot be an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}: {rule}")]
pub struct ParseError {
    /// The kind of id that was wanted.
    pub kind: &'static str,
    /// The offending text, cut to 80 characters.
    pub text: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// Mints the text of a deterministic `UUIDv7` from a time in milliseconds and the fields that the id stands for.
pub fn mint(prefix: &str, at_ms: u64, fields: &[&[u8]]) -> String {
    let digest = Digest::of_fields(fields);
    let mut random = [0; 10];
    random.copy_from_slice(digest.as_bytes().first_chunk::<10>().unwrap_or(&[0; 10]));
    let uuid = uuid::Builder::from_unix_timestamp_millis(at_ms, &random).into_uuid();
    format!("{prefix}{}", uuid.simple())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
        #[serde(try_from = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        // Not derived by way of a `String`: that would copy each id of a history to write it.
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl $name {
            /// Checks `text` and makes it an id.
            pub fn parse(text: impl Into<String>) -> Result<Self, ParseError> {
                let text = text.into();
                let check: fn(&str) -> Result<(), &'static str> = $check;
                match check(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(rule) => Err(ParseError { kind: $kind, text: text.chars().take(80).collect(), rule }),
                }
            }

            /// The id's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.0)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseError;
            fn try_from(text: String) -> Result<Self, ParseError> {
                Self::parse(text)
            }
        }

        impl FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> {
                Self::parse(text)
            }
        }
    };
}

id!(
    /// A session. Any non-empty text without control characters whose encoded token has at most 128 bytes; those made here begin
    /// with `ses_`.
    SessionId,
    "session id",
    |text| {
        if text.is_empty() {
            Err("it must not be empty")
        } else if text.chars().any(char::is_control) {
            Err("it must not hold control characters")
        } else if subject::token(text).len() > limits::SESSION_TOKEN_BYTES_MAX {
            Err("its encoded form must have at most 128 bytes")
        } else {
            Ok(())
        }
    }
);
id!(
    /// A turn: from an accepted input to its end. `trn_` and a `UUIDv7`.
    TurnId,
    "turn id",
    |text| prefixed(text, "trn_")
);
id!(
    /// One call that a model asked for, under our own name (a model may use its own ids twice). `call_` and a `UUIDv7`.
    CallId,
    "call id",
    |text| prefixed(text, "call_")
);
id!(
    /// One request for a person's decision. `apr_` and a `UUIDv7`.
    ApprovalId,
    "approval id",
    |text| prefixed(text, "apr_")
);
id!(
    /// A message of a transcript, derived from what brought it. `msg_` and hexadecimal digits.
    MessageId,
    "message id",
    |text| prefixed(text, "msg_")
);
id!(
    /// One request to a model: `<session token>.<n>.<try>`, where `n` is the commit that holds its *generation started*.
    RequestId,
    "request id",
    |text| if text.is_empty() || text.len() > 192 || text.split('.').any(|part| !subject::is_token(part)) {
        Err("it must be subject tokens joined by dots, at most 192 bytes")
    } else {
        Ok(())
    }
);
id!(
    /// Who acts: one subject token, for example `owner`. It comes from a subject that the broker checked.
    Principal,
    "principal",
    |text| if subject::is_token(text) && text.len() <= 64 {
        Ok(())
    } else {
        Err("it must have 1 to 64 letters, digits, `_` or `-`")
    }
);
id!(
    /// A worker's name and the first segment of its functions' ids.
    WorkerName,
    "worker name",
    segment
);
id!(
    /// One life of one worker process: a fresh value at each start.
    Incarnation,
    "incarnation",
    |text| if subject::is_token(text) && text.len() <= 64 { Ok(()) } else { Err("it must be one subject token") }
);
id!(
    /// A function: two to four segments joined by `::`, for example `fs::read`. The first names the owner.
    FunctionId,
    "function id",
    |text| {
        if text.len() > limits::FUNCTION_ID_BYTES_MAX {
            return Err("it must have at most 128 bytes");
        }
        let count = text.split("::").count();
        if !(2..=4).contains(&count) {
            return Err("it must have two to four segments joined by `::`");
        }
        text.split("::").try_for_each(segment)
    }
);

impl SessionId {
    /// The session that a principal's first message without a session id but with an idempotency key belongs to, so that
    /// a repeated send finds the same session.
    pub fn for_key(principal: &Principal, key: &str) -> Self {
        let digest =
            Digest::of_fields(&[b"session", principal.as_str().as_bytes(), key.as_bytes()]);
        Self(format!("ses_{digest}"))
    }

    /// A new session's id from a fresh `UUIDv7` in its simple form.
    pub fn fresh(uuid: uuid::Uuid) -> Self {
        Self(format!("ses_{}", uuid.simple()))
    }

    /// The session's subject token.
    pub fn token(&self) -> String {
        subject::token(&self.0)
    }
}

impl TurnId {
    /// What stands for the id of a turn whose beginning cannot be read any more.
    pub fn unknown() -> Self {
        Self("trn_unknown".to_owned())
    }

    /// The id of the turn that commit `n` of `session` starts.
    pub fn of(session: &SessionId, n: u64, at_ms: u64) -> Self {
        Self(mint(
            "trn_",
            at_ms,
            &[b"turn", session.0.as_bytes(), &n.to_be_bytes()],
        ))
    }
}

impl CallId {
    /// The id of the call at `index` of the answer to `request`.
    pub fn of(request: &RequestId, index: usize, at_ms: u64) -> Self {
        Self(mint(
            "call_",
            at_ms,
            &[b"call", request.0.as_bytes(), &(index as u64).to_be_bytes()],
        ))
    }
}

impl ApprovalId {
    /// The id of the `round`th request for a decision about `call` (an edited call may be asked about again).
    pub fn of(call: &CallId, round: u32, at_ms: u64) -> Self {
        Self(mint(
            "apr_",
            at_ms,
            &[b"approval", call.0.as_bytes(), &round.to_be_bytes()],
        ))
    }
}

impl MessageId {
    /// The id of an input message: the same session, lane and key always give the same id.
    pub fn of_input(session: &SessionId, lane: &str, key: &str) -> Self {
        let digest = Digest::of_fields(&[
            b"input",
            session.0.as_bytes(),
            lane.as_bytes(),
            key.as_bytes(),
        ]);
        Self(format!(
            "msg_{}",
            digest.to_string().chars().take(32).collect::<String>()
        ))
    }

    /// The id of a message that the turn machine itself adds: the `index`th of commit `n`.
    pub fn of_commit(session: &SessionId, n: u64, index: usize) -> Self {
        let digest = Digest::of_fields(&[
            b"commit",
            session.0.as_bytes(),
            &n.to_be_bytes(),
            &(index as u64).to_be_bytes(),
        ]);
        Self(format!(
            "msg_{}",
            digest.to_string().chars().take(32).collect::<String>()
        ))
    }
}

impl RequestId {
    /// The id of the `attempt`th try of the generation that commit `n` of `session` starts.
    pub fn of(session: &SessionId, n: u64, attempt: u32) -> Self {
        Self(format!("{}.{n}.{attempt}", session.token()))
    }
}

impl FunctionId {
    /// The worker that owns the id's namespace by the first segment.
    pub fn namespace(&self) -> &str {
        self.0.split("::").next().unwrap_or_default()
    }
}

fn prefixed(text: &str, prefix: &str) -> Result<(), &'static str> {
    match text.strip_prefix(prefix) {
        Some(rest) if subject::is_token(rest) && rest.len() <= 64 => Ok(()),
        _ => Err("it must be its prefix followed by 1 to 64 letters, digits, `_` or `-`"),
    }
}

fn segment(text: &str) -> Result<(), &'static str> {
    let valid = text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
    if valid && text.len() <= 48 {
        Ok(())
    } else {
        Err(
            "a segment must begin with a lower-case letter and hold only lower-case letters, digits, `_` and `-`",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minted_ids_are_uuid_v7_and_depend_on_their_fields_alone() {
        let session = SessionId::parse("s").expect("valid");
        let turn = TurnId::of(&session, 7, 1_700_000_000_000);
        assert_eq!(turn, TurnId::of(&session, 7, 1_700_000_000_000));
        assert_ne!(turn, TurnId::of(&session, 8, 1_700_000_000_000));
        let uuid = uuid::Uuid::parse_str(turn.as_str().trim_start_matches("trn_")).expect("a uuid");
        assert_eq!(uuid.get_version_num(), 7);
        assert_eq!(TurnId::parse(turn.as_str()).expect("own form"), turn);
    }

    #[test]
    fn function_ids_are_checked() {
        for good in [
            "fs::read",
            "engine::functions::list",
            "a::b::c::d",
            "approval-gate::x",
        ] {
            assert!(FunctionId::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "fs",
            "fs::",
            "::fs",
            "fs::Read",
            "fs::re ad",
            "a::b::c::d::e",
            "fs:read",
            "fs::*",
        ] {
            assert!(FunctionId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_session_id_is_any_text_that_fits() {
        assert!(SessionId::parse("Ünïcode chat / 42").is_ok());
        assert!(SessionId::parse("").is_err());
        assert!(
            SessionId::parse("a\nb  idle").is_err(),
            "a line of its own in a list"
        );
        assert!(
            SessionId::parse("é".repeat(22)).is_err(),
            "each é takes six bytes of token"
        );
        assert!(SessionId::parse("a".repeat(128)).is_ok());
    }
}
