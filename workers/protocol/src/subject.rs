//! Subjects: built here, parsed here, tested as pairs. No other place joins tokens with dots.

use std::fmt::Write as _;

use crate::{
    commit::Lane,
    digest::Digest,
    id::{FunctionId, Incarnation, Principal, RequestId, SessionId},
    input::ControlKind,
    limits,
    notice::NoticeKind,
};

/// Encodes any text injectively as one subject token: `[A-Za-z0-9_-]` stay, every other byte becomes `=HH` (upper-case
/// hexadecimal digits).
pub fn token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            token.push(char::from(byte));
        } else {
            let _ = write!(token, "={byte:02X}");
        }
    }
    token
}

/// Decodes what [`token`] encoded; anything else is `None`.
pub fn untoken(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let value = hex(rest.next()?)? << 4 | hex(rest.next()?)?;
            if is_plain(value) {
                return None; // a second spelling of a plain byte would not be injective
            }
            bytes.push(value);
        } else if is_plain(byte) {
            bytes.push(byte);
        } else {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

/// Whether `text` is one non-empty token without anything that needs encoding, `=` allowed.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| is_plain(byte) || byte == b'=')
}

/// The partition of a session token: FNV-1a-32 modulo 64, written with two digits.
///
/// Vectors: empty → `05`, `a` → `44`, `foobar` → `40`, `ses_1` → see the golden test.
pub fn partition(token: &str) -> u8 {
    let hash = token.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    u8::try_from(hash % u32::from(limits::PARTITIONS)).unwrap_or(0)
}

/// The log stream that holds a partition.
pub fn log_stream_of(partition: u8) -> u8 {
    partition % limits::LOG_STREAMS
}

/// The tokens `<p>.<s>` of a session.
fn place(session: &SessionId) -> String {
    let token = session.token();
    format!("{:02}.{token}", partition(&token))
}

/// A session's user messages: `turn.in.<p>.<s>`.
pub fn turn_in(session: &SessionId) -> String {
    format!("turn.in.{}", place(session))
}

/// A session's control inputs of one kind: `turn.ctl.<p>.<s>.<kind>`.
pub fn turn_ctl(session: &SessionId, kind: ControlKind) -> String {
    format!("turn.ctl.{}.{}", place(session), kind.as_str())
}

/// All control inputs of a session: `turn.ctl.<p>.<s>.*`.
pub fn turn_ctl_all(session: &SessionId) -> String {
    format!("turn.ctl.{}.*", place(session))
}

/// A doorbell without content: `turn.kick.<p>.<s>`.
pub fn turn_kick(session: &SessionId) -> String {
    format!("turn.kick.{}", place(session))
}

/// A durable timer: `turn.tmr.<p>.<s>.<id>`.
pub fn turn_timer(session: &SessionId, id: &str) -> String {
    format!("turn.tmr.{}.{}", place(session), token(id))
}

/// All timers of a session: `turn.tmr.<p>.<s>.*`.
pub fn turn_timer_all(session: &SessionId) -> String {
    format!("turn.tmr.{}.*", place(session))
}

/// A session's log: `log.<p>.<s>`.
pub fn log(session: &SessionId) -> String {
    format!("log.{}", place(session))
}

/// A session's snapshot: `snap.<p>.<s>`.
pub fn snap(session: &SessionId) -> String {
    format!("snap.{}", place(session))
}

/// The second copy of a session's head: `$KV.heads.<s>`.
pub fn head(session: &SessionId) -> String {
    format!("$KV.heads.{}", session.token())
}

/// All second copies of heads.
pub fn head_pattern() -> String {
    "$KV.heads.*".to_owned()
}

/// The session whose head's second copy a subject stands for; `None` for any other subject.
pub fn read_head(subject: &str) -> Option<SessionId> {
    SessionId::parse(untoken(subject.strip_prefix("$KV.heads.")?)?).ok()
}

/// What is being generated for a session: `live.<s>`.
pub fn live(session: &SessionId) -> String {
    format!("live.{}", session.token())
}

/// A notice: `evt.<kind>.<s>`.
pub fn notice(kind: NoticeKind, session: &SessionId) -> String {
    format!("evt.{}.{}", kind.as_str(), session.token())
}

/// Reads the subject of a notice back.
pub fn parse_notice(subject: &str) -> Option<(NoticeKind, SessionId)> {
    match subject.split('.').collect::<Vec<_>>().as_slice() {
        ["evt", kind, s] => Some((
            NoticeKind::parse(kind)?,
            SessionId::parse(untoken(s)?).ok()?,
        )),
        _ => None,
    }
}

/// All stored values.
pub fn blob_pattern() -> String {
    "blob.*".to_owned()
}

/// The name of the value that a subject stands for; `None` for any other subject.
pub fn read_blob(subject: &str) -> Option<Digest> {
    Digest::try_from(subject.strip_prefix("blob.")?.to_owned()).ok()
}

/// A stored value: `blob.<sha256>`.
pub fn blob(sha256: &Digest) -> String {
    format!("blob.{sha256}")
}

/// A finished completion: `gen.<request id>`.
pub fn generation(request: &RequestId) -> String {
    format!("gen.{request}")
}

/// All finished completions of a session: `gen.<s>.*.*`.
pub fn generations(session: &SessionId) -> String {
    format!("gen.{}.*.*", session.token())
}

/// Asks the router that streams a request: `gen.run.<request id>`.
pub fn generation_run(request: &RequestId) -> String {
    format!("gen.run.{request}")
}

/// Asks one harness about the sessions it holds: `own.<incarnation>`.
pub fn own(incarnation: &Incarnation) -> String {
    format!("own.{incarnation}")
}

/// A harness's heartbeat: `own.beat.<incarnation>`.
pub fn own_beat(incarnation: &Incarnation) -> String {
    format!("own.beat.{incarnation}")
}

/// Asks the workers of a namespace about one call: `call.<namespace>.<call id>`.
pub fn call(namespace: &str, call: &str) -> String {
    format!("call.{}.{}", token(namespace), token(call))
}

/// All questions about calls of a namespace: `call.<namespace>.*`.
pub fn call_all(namespace: &str) -> String {
    format!("call.{}.*", token(namespace))
}

/// A function for workers and models: `fn.` and the id with `::` as dots.
pub fn function(id: &FunctionId) -> String {
    format!("fn.{}", id.as_str().replace("::", "."))
}

/// An operator-only function: `op.<principal>.` and the id with `::` as dots.
pub fn operator(principal: &str, id: &FunctionId) -> String {
    format!("op.{principal}.{}", id.as_str().replace("::", "."))
}

/// Reads the function id and, for an operator's subject, the principal back.
pub fn parse_function(subject: &str) -> Option<(FunctionId, Option<Principal>)> {
    if let Some(rest) = subject.strip_prefix("fn.") {
        return Some((FunctionId::parse(rest.replace('.', "::")).ok()?, None));
    }
    let (principal, rest) = subject.strip_prefix("op.")?.split_once('.')?;
    Some((
        FunctionId::parse(rest.replace('.', "::")).ok()?,
        Some(Principal::parse(principal).ok()?),
    ))
}

/// What a subject of TURNS or CONTROL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doorbell {
    /// A user message.
    In(SessionId),
    /// A control input.
    Control(SessionId, ControlKind),
    /// An empty doorbell.
    Kick(SessionId),
}

/// Why a subject cannot be taken as a doorbell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DoorbellError {
    /// The subject has another shape.
    #[error("the subject {0:?} is no input of a session")]
    Shape(String),
    /// The partition token does not belong to the session token.
    #[error("the subject {0:?} carries another partition than its session's")]
    Partition(String),
}

impl Doorbell {
    /// Reads a subject of TURNS or CONTROL. An input under the wrong partition is refused.
    pub fn parse(subject: &str) -> Result<Self, DoorbellError> {
        let shape = || DoorbellError::Shape(subject.to_owned());
        let tokens: Vec<&str> = subject.split('.').collect();
        let (partition_token, session_token) = match tokens.as_slice() {
            ["turn", "in" | "kick", p, s] | ["turn", "ctl", p, s, _] => (*p, *s),
            _ => return Err(shape()),
        };
        let session = untoken(session_token)
            .and_then(|text| SessionId::parse(text).ok())
            .ok_or_else(shape)?;
        if format!("{:02}", partition(session_token)) != partition_token {
            return Err(DoorbellError::Partition(subject.to_owned()));
        }
        match tokens.as_slice() {
            ["turn", "in", ..] => Ok(Self::In(session)),
            ["turn", "kick", ..] => Ok(Self::Kick(session)),
            [.., kind] => Ok(Self::Control(
                session,
                ControlKind::parse(kind).ok_or_else(shape)?,
            )),
            [] => Err(shape()),
        }
    }

    /// The session whose doorbell this is.
    pub fn session(&self) -> &SessionId {
        match self {
            Self::In(session) | Self::Control(session, _) | Self::Kick(session) => session,
        }
    }

    /// The lane whose stream the doorbell's sequence counts in. Kicks live in CONTROL.
    pub fn lane(&self) -> Lane {
        match self {
            Self::In(_) => Lane::In,
            Self::Control(..) | Self::Kick(_) => Lane::Ctl,
        }
    }
}

/// The session of a subject `log.<p>.<s>` or `snap.<p>.<s>`.
pub fn parse_log(subject: &str) -> Option<SessionId> {
    match subject.split('.').collect::<Vec<_>>().as_slice() {
        ["log" | "snap", p, s] if format!("{:02}", partition(s)) == *p => {
            SessionId::parse(untoken(s)?).ok()
        }
        _ => None,
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn partitions_follow_the_published_vectors() {
        // FNV-1a-32: "" = 811c9dc5, "a" = e40c292c, "foobar" = bf9cf968.
        for (token, want) in [
            ("", 0x811c_9dc5_u32 % 64),
            ("a", 0xe40c_292c % 64),
            ("foobar", 0xbf9c_f968 % 64),
        ] {
            assert_eq!(u32::from(partition(token)), want, "{token}");
        }
        assert_eq!(
            [partition(""), partition("a"), partition("foobar")],
            [5, 44, 40]
        );
    }

    #[test]
    fn doorbells_are_read_back() {
        let session = SessionId::parse("chat/42 é").expect("valid");
        assert_eq!(
            Doorbell::parse(&turn_in(&session)),
            Ok(Doorbell::In(session.clone()))
        );
        assert_eq!(
            Doorbell::parse(&turn_kick(&session)),
            Ok(Doorbell::Kick(session.clone()))
        );
        for kind in ControlKind::ALL {
            assert_eq!(
                Doorbell::parse(&turn_ctl(&session, kind)),
                Ok(Doorbell::Control(session.clone(), kind))
            );
        }
        assert_eq!(parse_log(&log(&session)), Some(session.clone()));
        for kind in NoticeKind::ALL {
            assert_eq!(
                parse_notice(&notice(kind, &session)),
                Some((kind, session.clone()))
            );
        }
        assert_eq!(parse_notice("evt.turn-started"), None);
        let right = format!("{:02}", partition(&session.token()));
        let wrong = turn_in(&session).replace(&format!(".{right}."), ".99.");
        assert_eq!(
            Doorbell::parse(&wrong),
            Err(DoorbellError::Partition(wrong.clone()))
        );
        for bad in [
            "",
            "turn",
            "turn.in",
            "turn.in.05",
            "turn.ctl.05.s",
            "turn.ctl.05.s.what",
            "log.05.s",
        ] {
            assert!(Doorbell::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn function_subjects_are_read_back() {
        let id = FunctionId::parse("engine::functions::list").expect("valid");
        assert_eq!(function(&id), "fn.engine.functions.list");
        assert_eq!(parse_function(&function(&id)), Some((id.clone(), None)));
        let owner = Principal::parse("owner").expect("valid");
        assert_eq!(
            parse_function(&operator("owner", &id)),
            Some((id, Some(owner)))
        );
        assert_eq!(parse_function("op.owner"), None);
    }

    proptest! {
        #[test]
        fn a_token_is_read_back(text in ".{0,40}") {
            let token = token(&text);
            prop_assert!(text.is_empty() || is_token(&token));
            prop_assert_eq!(untoken(&token), Some(text));
        }

        #[test]
        fn only_one_token_decodes_to_a_text(token_text in "[A-Za-z0-9_=-]{0,24}") {
            if let Some(text) = untoken(&token_text) {
                prop_assert_eq!(token(&text), token_text);
            }
        }
    }
}
