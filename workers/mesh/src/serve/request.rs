//! What the headers and the subject of a request say. Pure.

use std::time::Duration;

use async_nats::{HeaderMap, HeaderValue};
use teamster_protocol::{
    Fault, Principal, SessionId, header, limits,
    policy::FunctionPolicy,
    subject::{self, untoken},
};

/// A request as its callee understands it, the body aside.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) call: Option<String>,
    pub(super) session: Option<SessionId>,
    pub(super) workspace: Option<String>,
    pub(super) principal: Option<Principal>,
    pub(super) functions: Option<FunctionPolicy>,
    pub(super) not_after_ms: Option<u64>,
    pub(super) timeout: Option<Duration>,
}

/// Reads a request. A header that cannot be read is a fault: guessing could widen what the call may do.
pub(super) fn read(subject: &str, headers: Option<&HeaderMap>) -> Result<Said, Fault> {
    let principal = if subject.starts_with("op.") {
        let (_, principal) = subject::parse_function(subject).ok_or_else(|| bad("subject"))?;
        principal
    } else {
        None
    };
    let Some(headers) = headers else {
        return Ok(Said {
            principal,
            ..Said::default()
        });
    };
    let text = |name: &'static str| headers.get(name).map(HeaderValue::as_str);
    let number = |name: &'static str| {
        text(name)
            .map(|text| text.parse::<u64>().map_err(|_| bad(name)))
            .transpose()
    };
    let call = text(header::CALL).map(str::to_owned);
    if call
        .as_ref()
        .is_some_and(|call| call.is_empty() || call.len() > limits::KEY_BYTES_MAX)
    {
        return Err(bad(header::CALL));
    }
    let session = text(header::SESSION)
        .map(|token| {
            untoken(token)
                .and_then(|text| SessionId::parse(text).ok())
                .ok_or_else(|| bad(header::SESSION))
        })
        .transpose()?;
    let functions = text(header::FUNCTIONS)
        .map(|json| serde_json::from_str(json).map_err(|_| bad(header::FUNCTIONS)))
        .transpose()?;
    Ok(Said {
        call,
        session,
        workspace: text(header::WORKSPACE).map(str::to_owned),
        principal,
        functions,
        not_after_ms: number(header::NOT_AFTER_MS)?,
        timeout: number(header::TIMEOUT_MS)?.map(Duration::from_millis),
    })
}

fn bad(what: &str) -> Fault {
    Fault::caller(
        "mesh.bad_request",
        format_args!("the request's {what} cannot be read"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read() {
        let session = SessionId::parse("a b").expect("a session");
        let mut headers = HeaderMap::new();
        headers.insert(header::CALL, "c");
        headers.insert(header::SESSION, session.token());
        headers.insert(header::TIMEOUT_MS, "250");
        headers.insert(header::NOT_AFTER_MS, "7");
        let said = read("op.me.x.y", Some(&headers)).expect("a request");
        assert_eq!(said.call.as_deref(), Some("c"));
        assert_eq!(said.session, Some(session));
        assert_eq!(said.timeout, Some(Duration::from_millis(250)));
        assert_eq!(said.not_after_ms, Some(7));
        assert_eq!(said.principal, Principal::parse("me").ok());
        assert_eq!(read("fn.x.y", None), Ok(Said::default()));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (name, value) in [
            (header::CALL, ""),
            (header::SESSION, "a b"),
            (header::TIMEOUT_MS, "soon"),
            (header::NOT_AFTER_MS, "-1"),
            (header::FUNCTIONS, "all"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            let fault = read("fn.x.y", Some(&headers)).expect_err(name);
            assert_eq!(fault.code, "mesh.bad_request");
        }
        assert!(read("op.x", None).is_err());
    }
}
